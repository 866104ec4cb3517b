package authz

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	security "istio.io/api/security/v1beta1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/state/policies"
)

// matchesText reports whether Envoy's matcher matches a text. Its regular expressions see bytes.
func matchesText(t *testing.T, m *matcherv3.StringMatcher, s string) bool {
	t.Helper()
	bytes := func(s string) string {
		var b strings.Builder
		for i := range len(s) {
			b.WriteRune(rune(s[i]))
		}
		return b.String()
	}
	fold := func(s string) string {
		if m.GetIgnoreCase() {
			return strings.ToLower(s)
		}
		return s
	}
	switch p := m.GetMatchPattern().(type) {
	case nil:
		return s != "" // present
	case *matcherv3.StringMatcher_Exact:
		return fold(s) == fold(p.Exact)
	case *matcherv3.StringMatcher_Prefix:
		return strings.HasPrefix(fold(s), fold(p.Prefix))
	case *matcherv3.StringMatcher_Suffix:
		return strings.HasSuffix(fold(s), fold(p.Suffix))
	case *matcherv3.StringMatcher_Contains:
		return strings.Contains(fold(s), fold(p.Contains))
	case *matcherv3.StringMatcher_SafeRegex:
		return regexp.MustCompile("^(?:" + bytes(p.SafeRegex.Regex) + ")$").MatchString(bytes(s))
	}
	t.Fatalf("%v is not known here", m)
	return false
}

// TestReadings checks what the narrow and the wide matcher of a header match. Texts are separated by bars.
func TestReadings(t *testing.T) {
	for _, c := range []struct{ name, pattern, narrow, wide, neither string }{
		{"x-role", "admin", "admin", "admin | admin|\tadmin\t |admin\xa0|\x85admin", "administrator|xadmin|ADMIN|user,admin|admin,user|\xffadmin"},
		{"x-role", "adm*", "admin|adm|adm\xff", " adm|\tadmin", "xadm|user,adm"},
		{"x-role", "*min", "admin|min|\xffmin", "min |admin\t|\xffmin\xa0", "mini|min,user"},
		{"x-role", "a.b", "a.b", "a.b ", "axb"},
		{"x-role", " admin ", " admin ", "admin|admin ", "administrator"},
		{"user-agent", "evil", "evil", "good,evil|evil,good|a, evil ,b|evil ", "evilgood|good;evil|good,evilx"},
		{"User-Agent", "evil*", "evil|evil1|evil,good", "good,evil1|good, evil", "xevil|good,xevil"},
		{"user-agent", "*evil", "evil|xevil|good,evil", "xevil,good|xevil , good", "evilx|good,evilx,a"},
		{"x-envoy-original-path", "/a", "/a", "/b,/a", "/ab"},
		{"cookie", "a=evil", "a=evil", "b=1; a=evil|a=evil;b=1|b=1;a=evil ; c", "a=evil2|a=evil,b=1"},
		{":authority", "admin.shop", "admin.shop", "ADMIN.shop|admin.shop.|admin.shop:|admin.shop:80|admin.shop:00443|u@admin.shop|u:p@admin.shop.:80|x,admin.shop|admin.shop,x|x, admin.shop",
			"admin.shop:8080|xadmin.shop|admin.shopx|adminxshop|admin.shop..|admin.shop@x|x.admin.shop"},
		{"host", "admin.shop:8080", "admin.shop:8080", "admin.shop:08080|admin.shop.:8080|u@Admin.shop:8080|x,admin.shop:8080,y", "admin.shop|admin.shop:80|admin.shop:18080|admin.shop:80800"},
		{":authority", "admin.shop.", "admin.shop.", "admin.shop|Admin.shop.:80", "admin.shop..|admin"},
		{":authority", "admin.shop:80", "admin.shop:80", "admin.shop|admin.shop:", "admin.shop:443"},
		{":authority", "admin.shop:*", "admin.shop:|admin.shop:80|admin.shop:x", "ADMIN.shop.:80|u@admin.shop:1|x,admin.shop:1", "admin.shop|admin.shop."},
		{":authority", "*.shop", "a.shop|.shop", "A.shop.|a.shop:80|a.shop,x|u@a.shop.", "a.shop:8080|ashop|shop"},
		{":authority", "admin.*", "admin.|admin.shop|admin.shop:80", "ADMIN.x|u@admin.x|x,admin.y|admin.x,y|admin.x@y", "xadmin.y|admin"},
		{":authority", "*:8080", "a:8080|:8080", "a.:08080|a:8080,x", "a:80|a"},
		{":authority", "*", "a|b:80", "", ""},
	} {
		for _, side := range []struct {
			wide    bool
			yes, no string
		}{{false, c.narrow, c.wide + "|" + c.neither}, {true, c.narrow + "|" + c.wide, c.neither}} {
			m := requestHeader(c.name)(&translation{wide: side.wide}, c.pattern)[0].GetHeader().GetStringMatch()
			for _, s := range strings.Split(side.yes, "|") {
				if s != "" && !matchesText(t, m, s) {
					t.Errorf("%s %q, wide %t: %v does not match %q", c.name, c.pattern, side.wide, m, s)
				}
			}
			for _, s := range strings.Split(side.no, "|") {
				if s != "" && matchesText(t, m, s) {
					t.Errorf("%s %q, wide %t: %v matches %q", c.name, c.pattern, side.wide, m, s)
				}
			}
		}
	}
}

// TestNarrowHost checks that no wildcard of a host goes beyond that host: not into a second one, and not behind user information.
func TestNarrowHost(t *testing.T) {
	for pattern, others := range map[string]string{"public.*": "public.a@admin.shop|public.a,admin.shop", "*.public": "admin.shop,a.public|u@a.public"} {
		m := requestHost(&translation{}, pattern)[0].GetHeader().GetStringMatch()
		if one := strings.Replace(pattern, "*", "A", 1); !matchesText(t, m, one) || !matchesText(t, m, strings.ToUpper(one)) {
			t.Errorf("%s: %v does not match %s", pattern, m, one)
		}
		for _, s := range strings.Split(others, "|") {
			if matchesText(t, m, s) {
				t.Errorf("%s: %v matches %s", pattern, m, s)
			}
		}
	}
}

// TestLongReading checks that a pattern too long for a regular expression still matches its text.
func TestLongReading(t *testing.T) {
	long := strings.Repeat("a", longestReading+1)
	for _, name := range []string{"x-a", ":authority"} {
		for _, pattern := range []string{long, long + "*", "*" + long} {
			m := requestHeader(name)(&translation{wide: true}, pattern)[0].GetHeader().GetStringMatch()
			if m.GetSafeRegex() != nil || !matchesText(t, m, long+" ") || matchesText(t, m, long[1:]) {
				t.Errorf("%s: a pattern of %d characters", name, len(pattern))
			}
		}
	}
}

// TestWhereWide checks for each action whether its values or its notValues are wide: a policy must restrict another reading of a
// request, and must not allow it.
func TestWhereWide(t *testing.T) {
	const wide = "the wide matcher"
	for action, want := range map[security.AuthorizationPolicy_Action][2]bool{
		security.AuthorizationPolicy_ALLOW: {false, true}, security.AuthorizationPolicy_DENY: {true, false},
		security.AuthorizationPolicy_AUDIT: {true, false}, security.AuthorizationPolicy_CUSTOM: {true, false},
	} {
		for side, isWide := range want {
			when := &security.Condition{Key: "request.headers[x-a]"}
			operation := &security.Operation{}
			source := &security.Source{}
			if side == 0 {
				when.Values, operation.Hosts, source.RemoteIpBlocks, source.RequestPrincipals = []string{"v"}, []string{"h"}, []string{"10.0.0.0/8"}, []string{"*"}
			} else {
				when.NotValues, operation.NotHosts, source.NotRemoteIpBlocks, source.NotRequestPrincipals = []string{"v"}, []string{"h"}, []string{"10.0.0.0/8"}, []string{"*"}
			}
			http, _ := translate(&policies.Authorization{Object: api.Key{Namespace: "a", Name: "p"}, Spec: &security.AuthorizationPolicy{
				Action: action, Rules: []*security.Rule{{
					When: []*security.Condition{when}, To: []*security.Rule_To{{Operation: operation}}, From: []*security.Rule_From{{Source: source}},
				}},
			}}, nil)
			text := http[0].String()
			for what, sign := range map[string]string{"header": `v[\\s`, "host": `h\\.?`, "address": "::ffff:10.0.0.0"} {
				if strings.Contains(text, sign) != isWide {
					t.Errorf("%s, values %t: %s of the %s: %t\n%s", action, side == 0, wide, what, !isWide, text)
				}
			}
			if strings.Contains(text, `key:"sub"`) == isWide {
				t.Errorf("%s, values %t: %s of the request principal: %t\n%s", action, side == 0, wide, !isWide, text)
			}
		}
	}
}

// TestWideClaim checks that a wide matcher takes numbers, true and false for texts, alone and in lists.
func TestWideClaim(t *testing.T) {
	for pattern, want := range map[string][2]int{"a": {2, 2}, "5": {2, 4}, "true": {2, 4}, "*": {2, 1}, "-1.5e3": {2, 4}, "inf": {2, 2}, "5*": {2, 2}} {
		for i, wide := range []bool{false, true} {
			if got := len(tokenClaim("a")(&translation{wide: wide}, pattern)); got != want[i] {
				t.Errorf("%s, wide %t: %d matchers, want %d", pattern, wide, got, want[i])
			}
		}
	}
}

// TestWideName checks that a wide matcher of the SNI knows it in lower case, and with a dot at its end.
func TestWideName(t *testing.T) {
	for pattern, names := range map[string]string{"Admin.test": "admin.test|admin.test.", "*.Test": "a.test|a.test.", "Admin.*": "admin.x", "*": "a|\n"} {
		for _, name := range strings.Split(names, "|") {
			if !slices.ContainsFunc(serverName(&translation{wide: true}, pattern), func(p *rbacv3.Permission) bool {
				return matchesText(t, p.GetRequestedServerName(), name)
			}) {
				t.Errorf("%s does not match %q", pattern, name)
			}
		}
	}
	if got := serverName(&translation{}, "a.test"); len(got) != 1 || got[0].GetRequestedServerName().GetExact() != "a.test" {
		t.Errorf("the narrow matcher: %v", got)
	}
}

// TestWideBlock checks that a wide matcher knows both forms of an address of IPv4.
func TestWideBlock(t *testing.T) {
	for value, want := range map[string]string{
		"10.0.0.0/8": "10.0.0.0/8 ::ffff:10.0.0.0/104", "10.1.2.3": "10.1.2.3/32 ::ffff:10.1.2.3/128", "fd00::/8": "fd00::/8",
		"::ffff:10.0.0.0/104": "::ffff:10.0.0.0/104 10.0.0.0/8", "::ffff:0:0/90": "::ffff:0.0.0.0/90",
	} {
		for wide, want := range map[bool]string{true: want, false: strings.Fields(want)[0]} {
			var got []string
			for _, b := range blocksOf(value, wide, true) {
				got = append(got, b.AddressPrefix+"/"+strings.TrimPrefix(b.PrefixLen.String(), "value:"))
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s, wide %t: %q, want %q", value, wide, got, want)
			}
		}
	}
	if got := blocksOf("10.0.0.0/8", true, false); len(got) != 1 {
		t.Errorf("the address of a connection is never written as one of IPv6: %v", got)
	}
}
