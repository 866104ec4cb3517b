package access

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/explain/access"
	"github.com/pilotmesh/pilot/test/exam/casefile"
	"github.com/pilotmesh/pilot/test/exam/pki"
)

// The ports of every generated workload: for HTTP, for TCP, and with a detected protocol.
const (
	httpPort, tcpPort, anyPort = 18080, 18081, 18082
	provider                   = "asker"
)

// generator makes policies and requests at random. It chooses from few values, so that rules and requests often match.
type generator struct {
	*rand.Rand
	keys *pki.Material
}

// maybe is true n times out of 100.
func (g generator) maybe(n int) bool { return g.IntN(100) < n }

func one[E any](g generator, list ...E) E { return list[g.IntN(len(list))] }

// some chooses between one and most elements, each once.
func some(g generator, most int, list ...string) []string {
	var chosen []string
	for range 1 + g.IntN(most) {
		if e := one(g, list...); !slices.Contains(chosen, e) {
			chosen = append(chosen, e)
		}
	}
	return chosen
}

type object = map[string]any

// document is an object of the mesh as JSON, which is YAML.
func document(kind, namespace, name string, annotations, spec object) string {
	group := "security.istio.io/v1"
	if kind == "ServiceEntry" {
		group = "networking.istio.io/v1"
	}
	raw, err := json.Marshal(object{
		"apiVersion": group, "kind": kind, "metadata": object{"name": name, "namespace": namespace, "annotations": annotations}, "spec": spec,
	})
	if err != nil {
		panic(err)
	}
	return string(raw) + "\n---\n"
}

// workload is the configuration of a namespace with one workload at an address.
func (g generator) workload(namespace, address string) string {
	text := document("ServiceEntry", namespace, "w", nil, object{
		"hosts": []string{"w." + namespace + ".test"}, "location": "MESH_INTERNAL", "resolution": "STATIC",
		"endpoints": []object{{"address": address}},
		"ports": []object{
			{"number": httpPort, "name": "http", "protocol": "HTTP"}, {"number": tcpPort, "name": "tcp", "protocol": "TCP"}, {"number": anyPort, "name": "any"},
		},
	})
	if g.maybe(60) {
		spec := object{"mtls": object{"mode": one(g, "STRICT", "PERMISSIVE", "DISABLE")}}
		if g.maybe(30) {
			spec["selector"] = object{"matchLabels": object{"app": "w"}}
			spec["portLevelMtls"] = object{fmt.Sprint(one(g, httpPort, tcpPort, anyPort)): object{"mode": one(g, "STRICT", "PERMISSIVE", "DISABLE")}}
		}
		text += document("PeerAuthentication", namespace, "peer", nil, spec)
	}
	if g.maybe(50) {
		for i := range 1 + g.IntN(2) {
			text += g.valid(func() string {
				return document("RequestAuthentication", namespace, fmt.Sprint("tokens", i), nil, g.tokens())
			})
		}
	}
	for i := range g.IntN(4) {
		text += g.valid(func() string { return g.authorization(namespace, fmt.Sprint("p", i)) })
	}
	return text
}

// valid makes documents until validation accepts one.
func (g generator) valid(make func() string) string {
	for {
		text := make()
		accepted := true
		for _, d := range api.Decode("generated.yaml", []byte(strings.TrimSuffix(text, "---\n"))) {
			d.Check()
			accepted = accepted && d.Object != nil && !slices.ContainsFunc(d.Problems, func(p api.Problem) bool { return p.Severity == api.Error })
		}
		if accepted {
			return text
		}
	}
}

// authorization is an AuthorizationPolicy, which may be invalid.
func (g generator) authorization(namespace, name string) string {
	action := one(g, "ALLOW", "ALLOW", "DENY", "DENY", "AUDIT", "CUSTOM")
	spec := object{"action": action, "rules": g.rules()}
	var annotations object
	switch {
	case action == "CUSTOM":
		spec["provider"] = object{"name": one(g, provider, provider, provider, "nobody")}
	case g.maybe(15):
		annotations = object{"istio.io/dry-run": "true"}
	}
	return document("AuthorizationPolicy", namespace, name, annotations, spec)
}

func (g generator) rules() (list []object) {
	for range 1 + g.IntN(3) {
		rule := object{}
		if g.maybe(60) {
			rule["from"] = g.entries("source", g.source)
		}
		if g.maybe(60) {
			rule["to"] = g.entries("operation", g.operation)
		}
		if g.maybe(40) {
			var when []object
			for range 1 + g.IntN(2) {
				when = append(when, g.condition())
			}
			rule["when"] = when
		}
		list = append(list, rule)
	}
	return list
}

func (g generator) entries(name string, make func() object) (list []object) {
	for range 1 + g.IntN(2) {
		list = append(list, object{name: make()})
	}
	return list
}

// fields chooses one or two fields. A field that begins with "not" excludes.
func (g generator) fields(values map[string][]string) object {
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	spec := object{}
	for _, name := range some(g, 2, names...) {
		field := name
		if g.maybe(25) {
			field = "not" + strings.ToUpper(name[:1]) + name[1:]
		}
		spec[field] = some(g, 3, values[name]...)
	}
	if spec["serviceAccounts"] != nil || spec["notServiceAccounts"] != nil { // they exclude these
		for _, other := range []string{"principals", "notPrincipals", "namespaces", "notNamespaces"} {
			delete(spec, other)
		}
	}
	return spec
}

func principals() []string {
	return []string{"cluster.local/ns/shop/sa/web", "old.td/ns/shop/*", "*/sa/teller", "*", "cluster.local/ns/bank/sa/teller", "*.td/ns/shop/sa/api"}
}

func subjects() []string {
	return []string{"iss-a/me", "iss-a/*", "*/you", "*", "https://b/you", "https://b/*", "iss-a/team/me", "*/team/me", "https://*", "*u"}
}

func (g generator) source() object {
	return g.fields(map[string][]string{
		"principals": principals(), "requestPrincipals": subjects(), "namespaces": {"shop", "ba*", "*op", "*"}, "serviceAccounts": {"shop/web", "web", "bank/teller"},
		"ipBlocks": {"127.1.1.0/24", "127.1.2.7"}, "remoteIpBlocks": {"203.0.113.0/24", "127.1.1.0/24", "198.51.100.9", "::ffff:203.0.113.0/120", "fd00::/8"},
	})
}

func (g generator) operation() object {
	return g.fields(map[string][]string{
		"hosts": {"a.test", "*.test", "A.TEST:8080", "a*", "*", "a.test:*", "b.test.", "*:8080", "a.*"}, "methods": {"GET", "POST", "P*", "*"}, "ports": {fmt.Sprint(httpPort), fmt.Sprint(tcpPort)},
		"paths": {"/a", "/a/*", "*/z", "/x/{*}/y", "/x/{**}", "/{*}", "/a//b", "/A", "*", "/a%2Fb", "/caf%C3%A9", "/x/{**}/y"},
	})
}

func (g generator) condition() object {
	all := map[string][]string{
		"source.ip": {"127.1.1.0/24", "127.1.2.7"}, "remote.ip": {"203.0.113.0/24", "127.1.2.0/24"}, "source.namespace": {"shop", "bank", "s*"},
		"source.principal": principals(), "request.headers[x-a]": {"1", "2*", "*", "1,2", "*3"}, "request.headers[X-B]": {"yes"},
		"request.auth.principal": subjects(), "request.auth.audiences": {"one", "t*"}, "request.auth.presenter": {"app", "a*", "*"},
		"request.auth.claims[groups]": {"staff", "ad*", "*"}, "request.auth.claims[scope]": {"read", "wr*"}, "request.auth.claims[a][b]": {"c", "*"},
		"request.auth.claims[iss]": {"iss-a"}, "request.headers[authorization]": {"*"}, "request.headers[x-sub]": {"me", "*"}, "destination.ip": {"127.77.0.0/16", "10.0.0.0/8"},
		"destination.port": {fmt.Sprint(httpPort), fmt.Sprint(anyPort)}, "connection.sni": {"a.test", "*.test", "*", "B.Test", "b*"}, "source.serviceAccount": {"shop/web"},
		"source.trustDomain": {"cluster.local", "old*"}, "request.headers[:authority]": {"a.test"}, "request.headers[:method]": {"GET"},
		"request.headers[x-forwarded-for]": {"203.0.113.9", "*9"}, "request.headers[user-agent]": {"evil", "ev*", "*il"}, "request.headers[accept]": {"evil", "e*", "*l"},
		"request.headers[cookie]": {"a=1", "a*", "*1"}, "request.headers[referer]": {"https://evil/", "*evil/", "evil", "*"}, "request.headers[host]": {"a.test", "*.test", "a*"},
		"request.auth.claims[n]": {"7", "true", "*"}, "request.headers[x-b]": {"yes", "y*", "*s"},
		"experimental.envoy.filters.http.rbac[istio_dry_run_deny_shadow_engine_result]": {"denied", "allowed"},
	}
	keys := make([]string, 0, len(all))
	for key := range all {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	key := one(g, keys...)
	c := object{"key": key}
	if g.maybe(80) {
		c["values"] = some(g, 2, all[key]...)
	}
	if c["values"] == nil || g.maybe(15) {
		c["notValues"] = some(g, 2, all[key]...)
	}
	return c
}

// tokens is a RequestAuthentication.
func (g generator) tokens() object {
	var rules []object
	for _, issuer := range some(g, 2, "iss-a", "https://b", "lost") {
		rule := object{"issuer": issuer, "jwks": g.keys.JWKS()}
		if issuer == "lost" {
			delete(rule, "jwks")
			rule["jwksUri"] = "https://nowhere.test/keys"
		}
		if g.maybe(25) {
			rule["audiences"] = some(g, 2, "one", "https://two/", "three")
		}
		if g.maybe(25) {
			rule["fromHeaders"] = []object{one(g, object{"name": "x-token"}, object{"name": "x-token", "prefix": "T "}, object{"name": "authorization", "prefix": "Bearer "})}
		}
		if g.maybe(15) {
			rule["fromParams"] = []string{"token"}
		}
		if g.maybe(10) {
			rule["fromCookies"] = []string{"session"}
		}
		if g.maybe(25) {
			rule["forwardOriginalToken"] = true
		}
		if g.maybe(25) {
			rule["outputClaimToHeaders"] = []object{{"header": "x-sub", "claim": "sub"}}
		}
		if g.maybe(15) {
			rule["presence"] = "REQUIRED"
		}
		rules = append(rules, rule)
	}
	return object{"jwtRules": rules}
}

// request makes a request to a workload.
func (g generator) request(t *testing.T, address netip.Addr) access.Request {
	t.Helper()
	r := access.Request{
		Port: uint32(one(g, httpPort, httpPort, httpPort, tcpPort, anyPort, anyPort)), Address: address, Tokens: map[string]access.Token{},
		Source: netip.MustParseAddr(one(g, "127.1.1.5", "127.1.2.7", "127.1.3.9")), TCP: g.maybe(10),
	}
	if g.maybe(65) {
		r.TLS = &access.TLS{HasServerName: true, ServerName: one(g, "", "a.test", "B.test", "outbound_.80_._.x")}
		switch {
		case g.maybe(85):
			r.TLS.Identity = "spiffe://" + one(g, "cluster.local/ns/shop/sa/web", "cluster.local/ns/bank/sa/teller", "old.td/ns/shop/sa/api", "else.where/ns/shop/sa/web")
			r.TLS.ALPN = one(g, []string{"istio-http/1.1", "istio"}, []string{"istio-http/1.1", "istio"}, []string{"istio"}, []string{"istio-peer-exchange", "istio"}, nil, []string{"http/1.1"})
		default:
			r.TLS.ALPN = one(g, nil, []string{"http/1.1"})
		}
	}
	if r.TCP {
		return r
	}
	r.Method, r.Host = one(g, "GET", "GET", "POST", "PUT", http.MethodOptions), one(g, "a.test", "a.test", "a.test:8080", "A.Test", "b.test", "other", "a.test.", "A.test:080", "a.test:", "a.test.:8080", "x,a.test", "a.test,x", "b.test:08080")
	r.Path = one(g, "/a", "/a/b", "/a//b", "//a", "/a/./b", "/a/../z", "/a/%2e%2E/z", "/a%2fb", "/a%2Fb", "/A", "/x/1/y", "/x//y", "/x/1/2/y", "/a;p=1", "/a?x=/z",
		"/a%2", `/a\b`, "/caf%C3%A9", "/%61", "/a/.", "/..", "/x/", "/x", "/b%5cz", "/a|b", "/z/../../a", "/a^b", "/a/%00")
	if r.HTTP2 = r.Port == httpPort && g.maybe(20); r.HTTP2 {
		r.Path = one(g, "/a", "/a/b", "/a//b", "/a/./b", "/a/../z", "/a/%2e%2E/z", "/a%2fb", "/A", "/x/1/y", "/x/1/2/y", "/a;p=1", "/a?x=/z", "/%61", "/a/..;/z")
		if r.TLS != nil && r.TLS.Identity != "" {
			r.TLS.ALPN = []string{"istio-h2", "istio", "h2"}
		} else if r.TLS != nil {
			r.TLS.ALPN = []string{"h2"}
		}
	}
	if !r.HTTP2 && g.maybe(10) {
		r.Host = one(g, "u@a.test", "a.test@u", "a.test/x", `a.test\x`, "a.test?x", "a|test", "a%2etest", "[::1]", "u@a.test:8080", "x,u@a.test")
	}
	g.addHeaders(&r)
	if r.Method == http.MethodOptions && g.maybe(70) {
		r.Headers = append(r.Headers, access.Header{Name: "origin", Value: "https://o"}, access.Header{Name: "access-control-request-method", Value: "GET"})
	}
	for range one(g, 0, 0, 1, 1, 1, 2) {
		g.addToken(t, &r)
	}
	return r
}

// addHeaders adds headers. Some come twice, some have blanks around their values, and the proxy removes some.
func (g generator) addHeaders(r *access.Request) {
	around := func(value string) string {
		return one(g, "", "", "", "", " ", "\t") + value + one(g, "", "", "", "", " ", "\t ")
	}
	for _, h := range []access.Header{
		{Name: "x-a", Value: one(g, "1", "22", "2", "")}, {Name: "X-A", Value: one(g, "3", "1")}, {Name: "x-b", Value: "yes"}, {Name: "x-sub", Value: "me"},
		{Name: "accept", Value: one(g, "evil", "good", "good, evil")}, {Name: "Accept", Value: one(g, "evil", "evilest", "mail")}, {Name: "cookie", Value: one(g, "a=1", "b=2; a=1", "c=1")},
		{Name: "cookie", Value: one(g, "a=1", "d=4")}, {Name: "x-b", Value: one(g, "yes", "no\xa0", "yes\xa0")},
	} {
		if g.maybe(20) {
			r.Headers = append(r.Headers, access.Header{Name: h.Name, Value: around(h.Value)})
		}
	}
	if g.maybe(20) {
		r.Headers = append(r.Headers, access.Header{Name: "referer", Value: one(g, referers()...)})
	}
	if r.HTTP2 {
		return
	}
	for range g.IntN(3) { // a client of HTTP/2 of Go's sends one
		r.Headers = append(r.Headers, access.Header{Name: "user-agent", Value: around(one(g, "evil", "good", "evil, good"))})
	}
	for range g.IntN(3) {
		r.Headers = append(r.Headers, access.Header{Name: "x-forwarded-for", Value: one(g, "203.0.113.9", "203.0.113.9, 8.8.8.8", "1.1.1.1,198.51.100.9", "unknown", "8.8.8.8, ",
			"203.0.113.9:80", "::ffff:203.0.113.9", "::FFFF:cb00:7109", "fd00::1", "[fd00::1]", "0203.0.113.9", " 203.0.113.9\t")})
	}
	if g.maybe(15) {
		r.Headers = append(r.Headers, access.Header{Name: "Connection", Value: one(g, "x-a", "X-B , accept", "close, x-a", "x-forwarded-for", "user-agent,cookie", "x-c", "Referer")})
	}
}

// referers are texts. Envoy takes some for URLs.
func referers() []string {
	return []string{
		"https://evil/", "https://good/", "evil", "x evil", "https://evil/#x", "/evil/", "//a/evil/", "http://a:/evil/", "http://a:70000/", "http://u@a/evil/", "about:evil",
		"http://[::1]/evil/", "http://[::1/evil/", "app://a.b/evil/", "http://a_b/evil/", "a,b", "a;b:c", "http:///evil/", "*", "a?b", "http://a?x#", `http://a/\evil/`, `a\b`,
	}
}

// addToken adds a token, good or bad, to a request.
func (g generator) addToken(t *testing.T, r *access.Request) {
	t.Helper()
	spec := casefile.JWT{Iss: one(g, "iss-a", "iss-a", "https://b", "lost", "foreign"), Sub: one(g, "me", "you", "", "team/me"), Claims: map[string]any{}}
	if g.maybe(60) {
		spec.Aud = some(g, 2, "one", "two", "http://two", "three")
	}
	for _, claim := range []struct {
		name  string
		value any
	}{
		{"groups", one[any](g, "staff", []string{"users", "admin"}, 7, true)}, {"scope", one[any](g, "read write", "", []string{"write"})},
		{"azp", "app"}, {"a", object{"b": "c"}}, {"n", one[any](g, 7, "7", true, []any{false, 7}, 8)},
	} {
		if g.maybe(50) {
			spec.Claims[claim.name] = claim.value
		}
	}
	spec.Expired = g.maybe(5)
	if g.maybe(5) {
		spec.Key = "other"
	}
	text, err := g.keys.Token(&spec)
	if err != nil {
		t.Fatal(err)
	}
	r.Tokens[text] = access.Token{Claims: claimsOf(t, text), Expired: spec.Expired, Forged: spec.Key == "other"}
	if g.maybe(4) {
		text = "no.token"
	}
	switch g.IntN(10) {
	case 0, 1:
		r.Headers = append(r.Headers, access.Header{Name: "x-token", Value: one(g, "", "T ") + text})
	case 2:
		separator := "?"
		if strings.Contains(r.Path, "token=") {
			separator = "&"
		} else {
			r.Path, _, _ = strings.Cut(r.Path, "?")
		}
		r.Path += separator + one(g, "token", "access_token") + "=" + text
	case 3:
		r.Headers = append(r.Headers, access.Header{Name: "cookie", Value: "other=1; session=" + text})
	default:
		r.Headers = append(r.Headers, access.Header{Name: "Authorization", Value: "Bearer " + text})
	}
}
