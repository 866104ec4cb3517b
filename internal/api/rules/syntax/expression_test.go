package syntax

import "testing"

func TestExpression(t *testing.T) {
	for _, s := range []string{
		"a", "a.b.c", "a == b && c != 'd' || !e", "-1 + 2.5e3 * 0xFFu % 3", "a in [1, 2,]", "{'a': 1, 'b': [2]}['a']", "f(a, b).g()", "a ? b : c ? d : e",
		"has(a.b)", "l.all(x, x > 1)", "Type{a: 1, b: 2}", ".a.b.Type{}", `r"\d" + b'x' + """a "quoted" text"""`, "'\\u00e9'", "a // comment", "true && null == a", "a[0][1].b",
		"a < b < c", "(a)", "1u", ".5 + a", "!!a", "--1",
		"9223372036854775807 + -9223372036854775808", "18446744073709551615u", "0xFFFFFFFFFFFFFFFFu", "0x7FFFFFFFFFFFFFFF", "1e308",
	} {
		if reason := Expression(s); reason != "" {
			t.Errorf("%s: %s", s, reason)
		}
	}
	for _, s := range []string{
		"", " ", "a = b", "(a", "a)", "a b", "a and b", "'a", "a.", "a..b", "a &", "a &&", "f(a,)", "f(,)", "[a b]", "{a}", "a ? b", "1a", "'\\q'", "a # b", "if", "a.in", "x.for.y(", "has(a)",
		"l.all(x.y, true)", "Type{1: a}", "a[", "!-a", "\"a\nb\"", "for",
		"9223372036854775808", "18446744073709551616u", "0x8000000000000000", "-9223372036854775809", "1e309",
	} {
		if Expression(s) == "" {
			t.Errorf("%q passes", s)
		}
	}
}

// FuzzExpression checks that any text is checked without a panic, and within bounds.
func FuzzExpression(f *testing.F) {
	for _, s := range []string{"a.b(c)[0] == 'd'", "has(a.b) ? {1: 2} : [3]", "((((", "\"\"\"", "0x", "a // \n"} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, s string) { Expression(s) })
}

// FuzzTexts checks that every check of a single text ends without a panic.
func FuzzTexts(f *testing.F) {
	for _, s := range []string{"/a/{*}/{**}", "oci://a:1/b", "*.a.b", "ns/host", "%REQ(a)%", "[::1]:1"} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, s string) {
		for _, check := range []func(string) string{
			PathTemplate, ModuleURL, Wildcard, WholeWildcard, Subdomain, HeaderValue, HostPort, Account, TrustDomains, PortText, Regex,
		} {
			check(s)
		}
		KeySet([]byte(s))
		_ = HostsOverlap(s, "*.a")
	})
}
