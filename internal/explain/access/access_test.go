package access

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	bufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/buffer/v3"
	exthttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	rbachttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// How the evaluation agrees with a real Envoy is tested in test/e2e/access. The tests here are about unknown attributes, and about which
// rule decides if several could.

func packed(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// listenerWith is a listener for HTTP with some filters before the router.
func listenerWith(t *testing.T, filters ...proto.Message) *listenerv3.Listener {
	t.Helper()
	m := &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{}}}
	for _, f := range append(filters, &routerv3.Router{}) {
		m.HttpFilters = append(m.HttpFilters, &hcmv3.HttpFilter{
			Name: "envoy.filters.http.rbac", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed(t, f)},
		})
	}
	return &listenerv3.Listener{FilterChains: []*listenerv3.FilterChain{{
		Filters: []*listenerv3.Filter{{ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(t, m)}}},
	}}}
}

func rules(action rbacv3.RBAC_Action, policies map[string]*rbacv3.Policy) *rbachttpv3.RBAC {
	return &rbachttpv3.RBAC{Rules: &rbacv3.RBAC{Action: action, Policies: policies}}
}

func anybody() *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Any{Any: true}}
}

// from is a policy for all requests of some clients, and path is a policy for the requests of all clients for a path.
func from(who ...*rbacv3.Principal) *rbacv3.Policy {
	return &rbacv3.Policy{Principals: who, Permissions: []*rbacv3.Permission{{Rule: &rbacv3.Permission_Any{Any: true}}}}
}

func path(exact string) *rbacv3.Policy {
	return &rbacv3.Policy{Principals: []*rbacv3.Principal{anybody()}, Permissions: []*rbacv3.Permission{{Rule: &rbacv3.Permission_UrlPath{
		UrlPath: &matcherv3.PathMatcher{Rule: &matcherv3.PathMatcher_Path{Path: exactly(exact)}},
	}}}}
}

func exactly(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: s}}
}

func block(ip string, bits uint32) *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_DirectRemoteIp{
		DirectRemoteIp: &corev3.CidrRange{AddressPrefix: ip, PrefixLen: wrapperspb.UInt32(bits)},
	}}
}

func both(list ...*rbacv3.Principal) *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_AndIds{AndIds: &rbacv3.Principal_Set{Ids: list}}}
}

func without(p *rbacv3.Principal) *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_NotId{NotId: p}}
}

// header matches a header in some way.
func header(name, value string) *rbacv3.Principal {
	return &rbacv3.Principal{Identifier: &rbacv3.Principal_Header{Header: &routev3.HeaderMatcher{
		Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: exactly(value)},
	}}}
}

// TestUnknown checks that unknown attributes make the answer unknown exactly where they matter.
func TestUnknown(t *testing.T) {
	strange := &rbacv3.Principal{Identifier: &rbacv3.Principal_FilterState{}}
	template := &rbacv3.Policy{Principals: []*rbacv3.Principal{anybody()}, Permissions: []*rbacv3.Permission{{Rule: &rbacv3.Permission_UriTemplate{}}}}
	inverted := header("x", "1")
	inverted.GetHeader().InvertMatch = true
	deny, allow := rbacv3.RBAC_DENY, rbacv3.RBAC_ALLOW
	for name, c := range map[string]struct {
		filters []proto.Message
		want    Verdict
		reason  string
	}{
		"no filter":                         {nil, Allowed, ""},
		"a strange principal":               {[]proto.Message{rules(deny, map[string]*rbacv3.Policy{"a": from(strange)})}, Unknown, "a principal that is not known"},
		"a strange permission":              {[]proto.Message{rules(deny, map[string]*rbacv3.Policy{"a": template})}, Unknown, "a permission that is not known"},
		"a strange header matcher":          {[]proto.Message{rules(deny, map[string]*rbacv3.Policy{"a": from(inverted)})}, Unknown, "in a way that is not known"},
		"a strange filter":                  {[]proto.Message{&bufferv3.Buffer{}}, Unknown, "a filter that is not known"},
		"an action that Envoy may get":      {[]proto.Message{rules(9, map[string]*rbacv3.Policy{"a": from(anybody())})}, Unknown, "an action that is not known"},
		"not strange is strange":            {[]proto.Message{rules(deny, map[string]*rbacv3.Policy{"a": from(without(strange))})}, Unknown, "not known"},
		"strange and false is false":        {[]proto.Message{rules(deny, map[string]*rbacv3.Policy{"a": from(both(strange, without(anybody())))})}, Allowed, ""},
		"strange or true is true":           {[]proto.Message{rules(deny, map[string]*rbacv3.Policy{"a": from(strange, anybody())})}, Denied, ""},
		"another policy allows":             {[]proto.Message{rules(allow, map[string]*rbacv3.Policy{"a": from(strange), "b": path("/p")})}, Allowed, ""},
		"another filter denies":             {[]proto.Message{rules(allow, map[string]*rbacv3.Policy{"a": from(strange)}), rules(deny, map[string]*rbacv3.Policy{"b": path("/p")})}, Denied, ""},
		"another filter allows":             {[]proto.Message{rules(deny, map[string]*rbacv3.Policy{"a": from(strange)}), rules(allow, map[string]*rbacv3.Policy{"b": path("/p")})}, Unknown, "not known"},
		"the address of the client":         {[]proto.Message{rules(deny, map[string]*rbacv3.Policy{"a": from(block("10.0.0.0", 8))})}, Unknown, "the address of the client"},
		"a header that Envoy writes":        {[]proto.Message{rules(deny, map[string]*rbacv3.Policy{"a": from(header("x-request-id", "1"))})}, Unknown, "which Envoy writes itself"},
		"an audit with a strange principal": {[]proto.Message{rules(rbacv3.RBAC_LOG, map[string]*rbacv3.Policy{"a": from(anybody())})}, Allowed, ""},
	} {
		d := Evaluate(listenerWith(t, c.filters...), Request{Port: 80, Method: "GET", Host: "h", Path: "/p"}, Options{})
		if d.Verdict != c.want || !strings.Contains(d.Reason, c.reason) {
			t.Errorf("%s: %+v, want %s because %q", name, d, c.want, c.reason)
		}
	}
}

// TestFirstPolicyDecides checks that the first policy by name that matches is named, as Envoy names it.
func TestFirstPolicyDecides(t *testing.T) {
	l := listenerWith(t, rules(rbacv3.RBAC_DENY, map[string]*rbacv3.Policy{"c": path("/p"), "b": path("/p"), "a": path("/q")}))
	if d := Evaluate(l, Request{Port: 80, Method: "GET", Host: "h", Path: "/p?q"}, Options{}); d.Policy != "b" || d.Status != 403 || d.Stage != AtPolicies {
		t.Errorf("got %+v", d)
	}
}

// TestHeaderTwice checks that the lines of a header are compared one by one, as Envoy does, and not joined.
func TestHeaderTwice(t *testing.T) {
	l := listenerWith(t, rules(rbacv3.RBAC_DENY, map[string]*rbacv3.Policy{"a": from(header("x", "1"))}))
	for text, want := range map[string]Verdict{"1": Denied, "2": Allowed, "2 1": Denied, "1 2": Denied, "2 3": Allowed, "1,2": Allowed} {
		request := Request{Port: 80, Method: "GET", Host: "h", Path: "/p"}
		for _, value := range strings.Fields(text) {
			request.Headers = append(request.Headers, Header{"X", value})
		}
		if d := Evaluate(l, request, Options{}); d.Verdict != want {
			t.Errorf("x: %s: %+v, want %s", text, d, want)
		}
	}
}

// TestReadHeaders checks what filters see of the headers of a request, by the protocol. Lines are separated by bars.
func TestReadHeaders(t *testing.T) {
	for _, c := range []struct{ sent, http1, http2 string }{
		{"x: a | X:  b", "x=a,x=b", "x=a ,x= b"},
		{"accept: a|accept: b", "accept=a,b", "accept=a,b"},
		{"cookie: a|cookie: b", "cookie=a,cookie=b", "cookie=a; b"},
		{"connection: X , close|x: a|y: b", "connection=X , close,y=b", "unknown"},
		{"connection: x|connection: y|x: a|y: b", "connection=x,y", "unknown"},
		{"connection: x-forwarded-for|x: a", "400", "unknown"},
		{"connection: host", "400", "unknown"},
		{"connection: a,b,c,d,e,f,g,h,i,j", "400", "unknown"},
		{"referer: https://a/b", "referer=https://a/b", "referer=https://a/b"},
		{"referer: https://a/b#c", "", ""},
		{"referer: a b", "", ""},
		{"referer: a|referer: b", "referer=a,b", "referer=a,b"},
	} {
		for http2, want := range map[bool]string{false: c.http1, true: c.http2} {
			e := &evaluation{Request: Request{HTTP2: http2}}
			for _, line := range strings.Split(c.sent, "|") {
				name, value, _ := strings.Cut(line, ":")
				e.Headers = append(e.Headers, Header{strings.TrimSpace(name), strings.TrimPrefix(value, " ")})
			}
			h, ok := e.readHeaders()
			got := ""
			switch {
			case !ok && e.doubt != "":
				got = "unknown"
			case !ok:
				got = strconv.Itoa(e.decision.Status)
			default:
				var all []string
				for _, name := range slices.Sorted(maps.Keys(h.others)) {
					for _, value := range h.others[name] {
						all = append(all, name+"="+value)
					}
				}
				got = strings.Join(all, ",")
			}
			if got != want {
				t.Errorf("%s, HTTP/2 %t: %q, want %q", c.sent, http2, got, want)
			}
		}
	}
}

// TestAsk checks that an external authorizer is asked about what the rules before it match, unless a rule after it denies; and that
// headers that it may set are not known afterwards.
func TestAsk(t *testing.T) {
	about := &matcherv3.MetadataMatcher{
		Filter: "envoy.filters.http.rbac", Path: []*matcherv3.MetadataMatcher_PathSegment{{Segment: &matcherv3.MetadataMatcher_PathSegment_Key{Key: "p_" + triedPolicy}}},
		Value: &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_StringMatch{StringMatch: exactly("ask")}},
	}
	tried := &rbachttpv3.RBAC{ShadowRules: &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{"ask": path("/asked")}}, ShadowRulesStatPrefix: "p_"}
	authorizer := &exthttpv3.ExtAuthz{FilterEnabledMetadata: about, Services: &exthttpv3.ExtAuthz_HttpService{HttpService: &exthttpv3.HttpService{
		ServerUri: &corev3.HttpUri{HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: "authorizer"}},
		AuthorizationResponse: &exthttpv3.AuthorizationResponse{
			AllowedUpstreamHeaders: &matcherv3.ListStringMatcher{Patterns: []*matcherv3.StringMatcher{exactly("x-role")}},
		},
	}}}
	for name, c := range map[string]struct {
		path   string
		denied *rbacv3.Principal
		want   Verdict
	}{
		"asked":                         {"/asked", without(anybody()), Asked},
		"not asked":                     {"/other", without(anybody()), Allowed},
		"denied afterwards":             {"/asked", anybody(), Denied},
		"denied by what it may set":     {"/asked", header("x-role", "none"), Unknown},
		"denied by what it may not set": {"/asked", header("x-other", "none"), Asked},
		"not asked, so it sets nothing": {"/other", header("x-role", "none"), Allowed},
	} {
		l := listenerWith(t, tried, authorizer, rules(rbacv3.RBAC_DENY, map[string]*rbacv3.Policy{"deny": from(c.denied)}))
		d := Evaluate(l, Request{Port: 80, Method: "GET", Host: "h", Path: c.path}, Options{})
		if d.Verdict != c.want || (d.Verdict == Asked) != (d.Provider == "authorizer") && d.Verdict != Unknown {
			t.Errorf("%s: %+v, want %s", name, d, c.want)
		}
	}
}

// TestWithToken checks that a described token is where its issuer looks for it, so that it is accepted.
func TestWithToken(t *testing.T) {
	for name, p := range map[string]*jwtv3.JwtProvider{
		"default": {}, "header": {FromHeaders: []*jwtv3.JwtHeader{{Name: "X-Token", ValuePrefix: "T "}}}, "parameter": {FromParams: []string{"a b"}},
		"cookie": {FromCookies: []string{"session"}},
	} {
		p.Issuer = "me"
		l := listenerWith(t, &jwtv3.JwtAuthentication{Providers: map[string]*jwtv3.JwtProvider{"p": p}, Rules: []*jwtv3.RequirementRule{{
			Match:           &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
			RequirementType: &jwtv3.RequirementRule_Requires{Requires: &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_ProviderName{ProviderName: "p"}}},
		}}})
		bare := Request{Port: 80, Method: "GET", Host: "h", Path: "/p?q=1"}
		if d := Evaluate(l, bare, Options{}); d.Verdict != Denied || d.Status != 401 || d.Stage != AtTokens {
			t.Errorf("%s: without a token: %+v", name, d)
		}
		r := bare.WithToken(l, map[string]any{"iss": "me"})
		if d := Evaluate(l, r, Options{}); d.Verdict != Allowed {
			t.Errorf("%s: %+v, %+v", name, d, r)
		}
		if d := Evaluate(l, r, Options{Keyless: func(*jwtv3.JwtProvider) bool { return true }}); d.Status != 401 || !strings.Contains(d.Reason, "keys") {
			t.Errorf("%s: without keys: %+v", name, d)
		}
		undescribed := r
		undescribed.Tokens = nil
		if d := Evaluate(l, undescribed, Options{}); d.Verdict != Unknown || !strings.Contains(d.Reason, "claims are not described") {
			t.Errorf("%s: with a token of which nothing is known: %+v", name, d)
		}
	}
}

// TestClientAddress checks which address counts as the client's.
func TestClientAddress(t *testing.T) {
	direct := netip.MustParseAddr("10.0.0.1")
	for list, want := range map[string]string{"": "10.0.0.1", "1.1.1.1, 2.2.2.2": "2.2.2.2", "x": "10.0.0.1", "fd00::1": "fd00::1", "1.1.1.1,": "10.0.0.1", "::ffff:1.1.1.1": "::ffff:1.1.1.1"} {
		h := headers{others: map[string][]string{"x-forwarded-for": {list}}}
		if got := h.clientAddress(direct).String(); got != want {
			t.Errorf("%q: %s, want %s", list, got, want)
		}
	}
}

// FuzzNormalize checks that no path slips through normalisation with a segment of dots, or with an escaped letter.
func FuzzNormalize(f *testing.F) {
	for _, s := range []string{"/a/../b", "/a/%2e%2E/b", `/a\..\b`, "/..;x/a", "/%4%61", "//", "/a%2fb?/../c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		m := &hcmv3.HttpConnectionManager{NormalizePath: wrapperspb.Bool(true), MergeSlashes: true}
		got, ok := normalize("/"+path, m)
		if !ok {
			return
		}
		before, _ := cutQuery(got)
		segments := strings.Split(before, "/")
		if slices.Contains(segments, ".") || slices.Contains(segments, "..") || strings.Contains(before, `\`) {
			t.Errorf("%q became %q", path, before)
		}
		for i := range before {
			if c, ok := escaped(before[i:]); ok && before[i] == '%' && unreserved(c) {
				t.Errorf("%q became %q, which has an escaped %c", path, before, c)
			}
		}
	})
}
