package authz

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"

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

// FuzzTemplate checks that every template that validation accepts is one regular expression that matches the paths of the template.
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

// TestExpandTrustDomain checks which principals are equivalent.
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

// TestRequestPrincipal checks which issuers and subjects a pattern matches, narrow and wide. What only the wide matcher matches is marked.
func TestRequestPrincipal(t *testing.T) {
	for pattern, want := range map[string]string{
		"*":           "i s, i t/s, i -?, i/t s, j as, https://i s",
		"i/s":         "i s",
		"i/t/s":       "i/t s, i t/s?",
		"i/*":         "i s, i t/s, i -?, i/t s?",
		"*/s":         "i s, i/t s, i t/s?, https://i s",
		"*s":          "i s, i t/s, i/t s, j as, https://i s",
		"i*":          "i s, i t/s, i -?, i/t s",
		"https://i/s": "https://i s",
		"https://*":   "https://i s",
		"*i/s":        "i s, https://i s",
		"a*/s":        "",
		"*/t/s":       "i/t s, i t/s?",
		"j/a*":        "j as",
	} {
		var got []string
		for _, token := range []string{"i s", "i t/s", "i -", "i/t s", "j as", "https://i s"} {
			issuer, subject, _ := strings.Cut(token, " ")
			matches := func(wide bool) bool {
				return slices.ContainsFunc(requestPrincipal(&translation{wide: wide}, pattern), func(p *rbacv3.Principal) bool {
					all := p.GetAndIds().GetIds()
					if all == nil {
						all = []*rbacv3.Principal{p}
					}
					return !slices.ContainsFunc(all, func(p *rbacv3.Principal) bool {
						text := issuer
						if p.GetMetadata().GetPath()[1].GetKey() == "sub" { //nolint:staticcheck // package authz uses it
							text = subject
						}
						return text == "-" || !matchesText(t, p.GetMetadata().GetValue().GetStringMatch(), text) //nolint:staticcheck // package authz uses it
					})
				})
			}
			switch narrow, wide := matches(false), matches(true); {
			case narrow && !wide:
				t.Errorf("%s: only the narrow matcher matches %s", pattern, token)
			case narrow:
				got = append(got, token)
			case wide:
				got = append(got, token+"?")
			}
		}
		wanted := strings.Split(want, ", ")
		slices.Sort(got)
		slices.Sort(wanted)
		if strings.Join(got, ", ") != strings.Join(wanted, ", ") {
			t.Errorf("%s matches %q, want %q", pattern, got, wanted)
		}
	}
}
