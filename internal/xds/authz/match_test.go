package authz

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pilotmesh/pilot/internal/api"
)

// TestTemplateRegex checks which paths a template matches.
func TestTemplateRegex(t *testing.T) {
	for _, c := range []struct {
		template, yes, no string
	}{
		{"/a/{*}", "/a/b /a/|", "/a/ /a /a/b/c"},
		{"/a/{**}", "/a/ /a/b /a/b/c", "/a /ab"},
		{"/{*}/b/{**}", "/x/b/ /x/b/c.d/e", "//b/c /x/b"},
		{"/{**}/b", "/x/b /x/y/b //b", "/b /x/bb"},
		{"/a.c/{*}", "/a.c/d", "/abc/d"},
	} {
		r := regexp.MustCompile("^(?:" + templateRegex(c.template) + ")$")
		for _, path := range strings.Fields(c.yes) {
			if !r.MatchString(path) {
				t.Errorf("%s does not match %s", c.template, path)
			}
		}
		for _, path := range strings.Fields(c.no) {
			if r.MatchString(path) {
				t.Errorf("%s matches %s", c.template, path)
			}
		}
	}
}

// FuzzTemplate checks that every template that validation accepts is one regular expression that matches what the template stands for.
func FuzzTemplate(f *testing.F) {
	for _, s := range []string{"/a/{*}", "/{**}", "/{*}/b/{**}/c", "/a{b}", "{*}", "/(/{*}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, template string) {
		if api.CheckPathTemplate(template) != "" || !strings.ContainsAny(template, "{}") || !utf8.ValidString(template) { // documents are UTF-8
			t.Skip()
		}
		r, err := regexp.Compile("^(?:" + templateRegex(template) + ")$")
		if err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(template, "\n") {
			t.Skip()
		}
		path := strings.NewReplacer("{*}", "x", "{**}", "y/z").Replace(template)
		if !r.MatchString(path) {
			t.Errorf("%q does not match %q", template, path)
		}
		if strings.Contains(template, "{*}") && r.MatchString(strings.NewReplacer("{*}", "", "{**}", "").Replace(template)) {
			t.Errorf("%q matches an empty segment", template)
		}
	})
}

// TestExpandTrustDomain checks which principals stand for others.
func TestExpandTrustDomain(t *testing.T) {
	domains := []string{"td", "old.td"}
	for pattern, want := range map[string][]string{
		"td/ns/a/sa/b":            {"td/ns/a/sa/b", "old.td/ns/a/sa/b"},
		"old.td/ns/a/sa/b":        {"td/ns/a/sa/b", "old.td/ns/a/sa/b"},
		"cluster.local/ns/a/sa/b": {"td/ns/a/sa/b", "old.td/ns/a/sa/b"},
		"foreign/ns/a/sa/b":       {"foreign/ns/a/sa/b"},
		"*.td/ns/a/sa/b":          {"*.td/ns/a/sa/b", "td/ns/a/sa/b", "old.td/ns/a/sa/b"},
		"*/ns/a/sa/b":             {"*/ns/a/sa/b"},
		"*":                       {"*"},
		"td*":                     {"td*"},
	} {
		if got := expandTrustDomain(pattern, domains); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", pattern, got, want)
		}
	}
}

// TestRequestPrincipal checks at which slashes a pattern is split into issuer and subject.
func TestRequestPrincipal(t *testing.T) {
	for pattern, want := range map[string]int{"*": 1, "iss/sub": 1, "https://i/s": 3, "iss/*": 2, "*/sub": 2, "nothing": 0} {
		if got := len(requestPrincipal(nil, pattern)); got != want {
			t.Errorf("%s: %d alternatives, want %d", pattern, got, want)
		}
	}
}
