package syntax

import (
	"strings"
	"testing"
)

func TestEnvoyExpression(t *testing.T) {
	for text, want := range map[string]string{
		`response.code >= 400`:                        "",
		`has(request.host) && size(request.path) > 1`: "",
		`request.path.matches('^/a\\d+$')`:            "",
		`request.path.matches(r'^/a\d+$')`:            "",
		`request.path.matches(request.host)`:          "",
		`request.time.getHours('UTC') < 7`:            "",
		`int(request.headers['n']) in [1, 2]`:         "",
		`string(response.code) == '200'`:              "no string()",
		`request.host.split('.')[0] == 'a'`:           "no split()",
		`request.headers.exists(h, h == 'a')`:         "disabled",
		`Message{a: 1}.a == 1`:                        "no messages",
		`request.path.matches('(')`:                   "not a regular expression",
		`size(1, 2) == 1`:                             "another number",
		`getHours(request.time) == 1`:                 "no getHours()",
		`a b`:                                         "not an expression of CEL",
	} {
		if got := EnvoyExpression(text); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestUnknownName(t *testing.T) {
	for text, want := range map[string]string{
		`request.headers['tea'] == response.code_details && has(xds.node.metadata.a)`: "",
		`type(request.path) == string && filter_state["tea"] != 'tea.x'`:              "",
		`tea > 4`: "tea", `request.path.matches(cup)`: "cup", `[source.port, node.id][1]`: "node", `a(b.c)`: "b",
	} {
		if got := UnknownName(text); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestLogFormat(t *testing.T) {
	for format, want := range map[string]string{
		`%PROTOCOL% %REQ_WITHOUT_QUERY(:PATH):10%`:       "",
		`%CEL(request.host)% and %CEL(response.code):3%`: "",
		`%CEL(string(response.code))%`:                   "no string()",
		`%CEL(request.host)% %CEL(a b)%`:                 "not an expression",
		`%NOTHING%`:                                      "no NOTHING",
		`%CEL(`:                                          "unfinished",
	} {
		if got := LogFormat(format); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", format, got, want)
		}
	}
}

func FuzzEnvoyExpression(f *testing.F) {
	for _, text := range []string{`a.matches("(")`, `size(a)`, `%CEL(a)%`, `a.matches('`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if EnvoyExpression(text) == "" && Expression(text) != "" {
			t.Error("a text that is no expression is accepted")
		}
		LogFormat(text)
	})
}
