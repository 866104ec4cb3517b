package syntax

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, c := range []struct {
		name  string
		check func(string) string
		good  []string
		bad   []string
	}{
		{"Label", Label, []string{"a", "a-b", "0", long}, []string{"", "-a", "a-", "A", "a.b", "a_b", long + "a", "ä"}},
		{"Subdomain", Subdomain, []string{"a", "a.b-c.0", strings.Repeat("a.", 126) + "a", long + long, "x." + long + "a"}, []string{"", ".", "a..b", "a.", "A", strings.Repeat("a.", 127) + "a", long + "_", long + "-", long + ".a-"}},
		{"Name", Name, []string{"A", "v1"}, []string{"a.b", ""}},
		{"FQDN", FQDN, []string{"a", "a.b", "A.b.", "1a", "a.1b"}, []string{"", ".", "a..b", "1.2", "123", "a_b", "*.a", strings.Repeat(long+".", 4) + "a"}},
		{"Wildcard", Wildcard, []string{"*", "*.a", "*-a.b", "*a.b", "a.b", "42", "*1"}, []string{"", "*.", "a.*", "**", "*.*.a", "*.1", "*-", "1.2.3.4", "a.42"}},
		{"WholeWildcard", WholeWildcard, []string{"*", "*.a", "a.b"}, []string{"*a.b", "*-a.b", "**", "a.*"}},
		{"PathTemplate", PathTemplate, []string{"/a", "/a/{*}", "/{*}/b/{**}", "*/a b", "/a:b/{*}/"}, []string{"a/{*}", "/{**}/{*}", "/a{*}", "/{*}/a*", "/a//{*}", "/t ea/{*}", "/{a}"}},
		{"ModuleURL", ModuleURL, []string{"https://a.b/c", "oci://a/b:1", "file:///a", "a.b/c:1", "docker.io/a", "10.0.0.1:5000/a"}, []string{"git://a/b", "a b/c", "a.b/c d", "a:5000/b", "https://a:b/c", "10.0.0.1:70000/a", "\x01"}},
		{"Subnet", Subnet, []string{"1.2.3.4", "::/0", "10.1.2.3/8"}, []string{"", "/", "1.2.3", "1.2.3.4/", "1.2.3.4/33", "fe80::1%a"}},
		{"Unix", Unix, []string{"unix:///a", "unix://@a"}, []string{"unix://", "unix://a", "unix:///a/"}},
		{"LabelKey", LabelKey, []string{"a", "A_b.c-d", "x.y/a", long}, []string{"", "/a", "x/", "X/a", "a b", "_a", long + "a", "a/b/c"}},
		{"LabelValue", LabelValue, []string{"", "a", "A_b.c-d"}, []string{"a b", "-a", "a-", long + "a"}},
		{"Annotation", Annotation, []string{"a", "Example.com/A"}, []string{""}},
		{"Regex", Regex, []string{"a", ".*", `\d+\pL`, "(?i)^a$", "a{1000}", "(?P<n>x)", `[\p{Lu}\P{^Greek}]\p{Any}`, `\Q\p{Letter}\E\x{ff}\\p{Letter}`},
			[]string{"", "*", "(", "[", "a{1001}", "(a{40}){40}", `(?<=a)b`, `\1`, `\p{Letter}`, `\P{^greek}`, `[a\p{LC}]`, `\QA\E\p{ASCII}`, `\x{100}`, strings.Repeat("a", 1025), "((((a{10}){10}){10}){10})" + strings.Repeat("(a{1000})", 20)}},
		{"Substitution", func(s string) string { return Substitution(s, "/(a)(b)") },
			[]string{"", "/x", `\1/\2`, `\0`, `a\\`}, []string{`\3`, `a\`, `\n`}},
		{"HeaderName", HeaderName, []string{"x-a", "A_b!"}, []string{"", "a b", "a:", "ä"}},
		{"HeaderValue", HeaderValue,
			[]string{"", "a\tb", "100%%", "%PROTOCOL%", "%REQ(a?b):12%", "%START_TIME(%s.%3f)%", "%DYNAMIC_METADATA(a:b):5% and %PROTOCOL%", "ä", strings.Repeat("a", 16384)},
			[]string{"%", "50% b", "%a%", "%REQ(a", "%REQ(a)", "%REQ(a):1", "a\nb", "a\x00", "\x7f", "%%%", strings.Repeat("a", 16385)}},
		{"DefaultEndpoint", DefaultEndpoint, []string{"127.0.0.1:1", "[::]:1", ":1", "unix:///a"}, []string{"127.0.0.1", "a:1", "127.0.0.1:0", "unix://a"}},
		{"BackendService", BackendService, []string{"a.b", "192.0.2.1", "a/b.c", "*/a.b"}, []string{"", "*.a", "a/b", "a_b/c.d", "a/*b.c"}},
		{"HostPort", HostPort, []string{"a:1", "1.2.3.4:80", "[::1]:80", "a.b.c:65535"}, []string{"a", "a:", "a:0", "a:65536", "a:b", ":80", "a_b:80", "[::1:80"}},
	} {
		for _, s := range c.good {
			if reason := c.check(s); reason != "" {
				t.Errorf("%s(%q): %s", c.name, s, reason)
			}
		}
		for _, s := range c.bad {
			if c.check(s) == "" {
				t.Errorf("%s(%q) passes", c.name, s)
			}
		}
	}
}

func TestHostsOverlap(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"a.b", "a.b", true}, {"A.b", "a.B", true}, {"*.b", "a.b", true}, {"*.b", "b", false}, {"*", "a", true},
		{"*.b", "*.a.b", true}, {"*.a.b", "*.b", true}, {"*.a", "*.b", false}, {"*a.b", "ca.b", true}, {"*.b", "ab", false}, {"*-a.b", "x-a.b", true},
	} {
		if got := HostsOverlap(c.a, c.b); got != c.want || HostsOverlap(c.b, c.a) != got {
			t.Errorf("%s and %s overlap: %v", c.a, c.b, got)
		}
	}
	for h, want := range map[string]bool{
		"outbound_.80_.v1_.a.b": true, "outbound_.80_._.a.b": true, "outbound_.x_._.a.b": false, "outbound_.80_.a.b": false, "a": false, "outbound_.80_._.a_b": false,
	} {
		if got := IsGeneratedSNI(h); got != want {
			t.Errorf("%s is a generated server name: %v", h, got)
		}
	}
}
