package access

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/pilotmesh/pilot/internal/explain/access"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/authz"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/test/exam/casefile"
	"github.com/pilotmesh/pilot/test/exam/pki"
)

// workloads are workloads for HTTP in namespaces of their own, each with the objects of a configuration, whose namespace is NS. One
// real Envoy is in front of them.
func workloads(t *testing.T, keys *pki.Material, configs ...string) ([]*subject, *client) {
	t.Helper()
	var subjects []*subject
	var listeners []*listenerv3.Listener
	w := meshtest.New(t)
	w.Configure(settings()[0])
	text := ""
	for n, config := range configs {
		s := &subject{namespace: fmt.Sprint("n", n), address: netip.AddrFrom4([4]byte{127, 79, 0, byte(1 + n)}), listeners: map[uint32]*listenerv3.Listener{}}
		s.config = document("ServiceEntry", s.namespace, "w", nil, object{
			"hosts": []string{"w." + s.namespace + ".test"}, "resolution": "STATIC", "location": "MESH_INTERNAL", "endpoints": []object{{"address": s.address.String()}},
			"ports": []object{{"number": httpPort, "name": "http", "protocol": "HTTP"}},
		}) + strings.ReplaceAll(config, `"namespace":"NS"`, fmt.Sprintf(`"namespace":%q`, s.namespace))
		text += s.config
		subjects = append(subjects, s)
	}
	w.Load(strings.TrimSuffix(text, "---\n"))
	for _, s := range subjects {
		id := fmt.Sprintf("sidecar~%s~w-0.%s~%[2]s.svc.cluster.local", s.address, s.namespace)
		w.Connect(meshtest.Node(t, id, `{"INTERCEPTION_MODE": "NONE"}`))
		s.listeners[httpPort] = inbound(t, w, id, httpPort)
		listeners = append(listeners, s.listeners[httpPort])
	}
	startEnvoy(t, keys, listeners, map[string]net.Addr{envoy.InboundCluster(httpPort): startApplication(t, keys)})
	return subjects, &client{keys: keys, certificates: map[string]tls.Certificate{}}
}

// meets sends a request, and wants it to be let through or refused, by Envoy and by the evaluation.
func (c *client) meets(t *testing.T, s *subject, r access.Request, allowed bool) {
	t.Helper()
	r.Port, r.Address, r.Source = httpPort, s.address, netip.MustParseAddr("127.1.1.1")
	if r.Method == "" {
		r.Method = "GET"
	}
	if r.Path == "" {
		r.Path = "/"
	}
	if r.Host == "" {
		r.Host = "w.test"
	}
	d, o := access.Evaluate(s.listeners[httpPort], r, access.Options{Keyless: authz.Keyless}), c.send(r)
	if o.reached != allowed || (d.Verdict == access.Allowed) != allowed && d.Verdict != access.Unknown {
		t.Errorf("%s %q HTTP/2 %t %q: want it let through: %t, but Envoy: %+v, evaluation: %+v", s.namespace, r.Host, r.HTTP2, r.Headers, allowed, o, d)
	}
	if d.Verdict == access.Unknown && !strings.Contains(d.Reason, "which Envoy writes itself") {
		t.Errorf("%s %q: the answer is unknown: %s", s.namespace, r.Headers, d.Reason)
	}
}

func rule(action string, rules ...object) string {
	return document("AuthorizationPolicy", "NS", strings.ToLower(action), nil, object{"action": action, "rules": rules})
}

func when(key string, field string, values ...string) object {
	return object{"when": []object{{"key": key, field: values}}}
}

// newKeys are new keys and certificates.
func newKeys(t *testing.T) *pki.Material {
	t.Helper()
	keys, err := pki.New()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// TestBlanks: a blank around a value of a header, which HTTP/2 keeps and the application does not see, passes no policy.
func TestBlanks(t *testing.T) {
	deny := rule("DENY", when("request.headers[x-role]", "values", "admin", "guest*", "*bot"))
	except := rule("ALLOW", when("request.headers[x-role]", "notValues", "admin", "guest*", "*bot"))
	only := rule("ALLOW", when("request.headers[x-role]", "values", "admin", "guest*", "*bot"))
	subjects, c := workloads(t, newKeys(t), deny, except, only)
	for _, value := range []string{"admin", "guest7", "robot"} {
		for _, text := range []string{value, value + " ", " " + value, value + "\t", "\t" + value + " \t", value + "\xa0", value + "\x85"} {
			for _, http2 := range []bool{false, true} {
				r := access.Request{HTTP2: http2, Headers: []access.Header{{Name: "x-role", Value: text}}}
				c.meets(t, subjects[0], r, false)
				c.meets(t, subjects[1], r, false)
				if text == value {
					c.meets(t, subjects[2], r, true)
				}
			}
		}
	}
	for _, text := range []string{"user", "administrator", "aguest", "bots", "user,admin"} {
		r := access.Request{Headers: []access.Header{{Name: "x-role", Value: text}}}
		c.meets(t, subjects[0], r, true)
		c.meets(t, subjects[1], r, true)
		c.meets(t, subjects[2], r, false)
	}
}

// TestEveryHeader: a second line of a header passes no policy about it, whether Envoy joins the lines or not.
func TestEveryHeader(t *testing.T) {
	names := strings.Fields(`a-im accept accept-charset accept-encoding accept-language access-control-request-headers access-control-request-method
		access-control-request-private-network authorization baggage cache-control cdn-loop content-disposition content-encoding content-language content-location
		content-type cookie date dnt early-data etag forwarded from grpc-accept-encoding grpc-encoding grpc-timeout if-match if-modified-since if-none-match
		if-range if-unmodified-since link max-forwards origin pragma prefer priority proxy-authorization range referer save-data sec-fetch-mode sec-fetch-site
		sec-websocket-protocol traceparent tracestate upgrade-insecure-requests user-agent via warning x-amz-date x-api-key x-b3-traceid x-client-trace-id
		x-correlation-id x-envoy-original-path x-forwarded-for x-forwarded-host x-forwarded-port x-forwarded-prefix x-forwarded-proto x-forwarded-user
		x-http-method-override x-original-url x-ot-span-context x-real-ip x-remote-user x-request-id x-requested-with x-rewrite-url x-role x-token x-user`)
	var deny, except []object
	for _, name := range names {
		deny = append(deny, when("request.headers["+name+"]", "values", "evil"))
		except = append(except, object{"key": "request.headers[" + name + "]", "notValues": []string{"evil"}})
	}
	subjects, c := workloads(t, newKeys(t), rule("DENY", deny...), rule("ALLOW", object{"when": except}))
	for _, name := range names {
		for _, values := range []string{"evil", "good evil", "evil good", "good evil good"} {
			r := access.Request{}
			for _, v := range strings.Fields(values) {
				r.Headers = append(r.Headers, access.Header{Name: name, Value: v})
			}
			for _, s := range subjects {
				c.meets(t, s, r, false)
			}
			if name != "user-agent" { // Go's client sends one only
				r.HTTP2 = true
				c.meets(t, subjects[0], r, false)
			}
		}
		good := access.Request{Headers: []access.Header{{Name: name, Value: "good"}, {Name: name, Value: "evilest"}}}
		c.meets(t, subjects[0], good, true)
	}
}

// TestHosts: no spelling of a host passes a policy that denies it, and none is one that a policy allows. Which characters a host may have is
// tried with each.
func TestHosts(t *testing.T) {
	hosts := func(field string, values ...string) object {
		return object{"to": []object{{"operation": object{field: values}}}}
	}
	subjects, c := workloads(t, newKeys(t), rule("DENY", hosts("hosts", "admin.shop", "admin.shop:*", "*.vault.shop")), rule("ALLOW", hosts("notHosts", "admin.shop", "*.vault.shop")),
		rule("ALLOW", hosts("hosts", "public.shop", "public.*", "*.public.shop")), rule("DENY", hosts("notHosts", "public.shop", "public.*", "*.public.shop")))
	for _, host := range strings.Fields("admin.shop ADMIN.shop admin.shop. admin.shop:80 admin.shop:0080 admin.shop.:80 admin.shop: u@admin.shop u:p@ADMIN.shop.:443 x,admin.shop admin.shop,x " +
		"x,u@admin.shop.,y a.vault.shop A.vault.shop. a.vault.shop:80 u@a.vault.shop x,a.vault.shop a.vault.shop,x") {
		c.meets(t, subjects[0], access.Request{Host: host}, false)
		c.meets(t, subjects[1], access.Request{Host: host}, false)
		c.meets(t, subjects[0], access.Request{Host: host, HTTP2: true}, false)
	}
	c.meets(t, subjects[0], access.Request{Host: "admin.shop.:8080"}, false)
	for _, host := range []string{"shop", "xadmin.shop", "admin.shopx", "vault.shop", "admin.shop@x"} {
		c.meets(t, subjects[0], access.Request{Host: host}, true)
		c.meets(t, subjects[1], access.Request{Host: host}, true)
	}
	for _, host := range []string{"public.a@admin.shop", "public.a,admin.shop", "admin.shop,a.public.shop", "u@public.shop", "public.shop@x", "x,public.shop", "a.public.shop."} {
		c.meets(t, subjects[2], access.Request{Host: host}, false)
		c.meets(t, subjects[3], access.Request{Host: host}, false)
	}
	for _, host := range []string{"public.shop", "PUBLIC.shop", "public.x", "public.x:80", "a.public.shop"} {
		c.meets(t, subjects[2], access.Request{Host: host}, true)
		c.meets(t, subjects[3], access.Request{Host: host}, true)
	}
	for char := byte('!'); char < 0x7f; char++ {
		host := "a" + string(rune(char)) + "b"
		c.meets(t, subjects[0], access.Request{Host: host}, !strings.ContainsRune("\"#/<>?\\^`{|}", rune(char)))
		if strings.ContainsRune("!$%&'()*+,-.:;=@[]_~0aZ", rune(char)) { // Go's client sends no others
			c.meets(t, subjects[0], access.Request{Host: host, HTTP2: true}, char != '@')
		}
	}
}

// where are places in which an issuer may look for its tokens, as fields of a rule.
func where() []object {
	header := func(name, prefix string) object { return object{"name": name, "prefix": prefix} }
	return []object{
		{}, {"fromHeaders": []object{header("x-a", "")}}, {"fromHeaders": []object{header("x-a", ""), header("x-c", "")}}, {"fromParams": []string{"p"}},
		{"fromHeaders": []object{header("x-b", "T ")}, "fromParams": []string{"p"}}, {"fromHeaders": []object{header("x-b", "S ")}}, {"fromCookies": []string{"c"}},
	}
}

// put puts a token into a request, where an issuer looks first, or in the last of its places.
func put(r *access.Request, at object, last bool, token string) {
	add := func(name, value string) {
		r.Headers = append(r.Headers[:len(r.Headers):len(r.Headers)], access.Header{Name: name, Value: value})
	}
	headers, _ := at["fromHeaders"].([]object)
	switch {
	case at["fromParams"] != nil && (last || headers == nil):
		r.Path = "/?p=" + token
	case at["fromCookies"] != nil:
		add("cookie", "c="+token)
	case headers == nil:
		add("authorization", "Bearer "+token)
	default:
		h := headers[0]
		if last {
			h = headers[len(headers)-1]
		}
		add(h["name"].(string), h["prefix"].(string)+token)
	}
}

// twoIssuers are two issuers, "one" and "two", that look in some places.
func twoIssuers(keys *pki.Material, one, two object, presence string) string {
	var rules []object
	for issuer, at := range map[string]object{"one": one, "two": two} {
		r := object{"issuer": issuer, "jwks": keys.JWKS(), "forwardOriginalToken": true}
		for field, value := range at {
			r[field] = value
		}
		if issuer == "one" && presence != "" {
			r["presence"] = presence
		}
		rules = append(rules, r)
	}
	return document("RequestAuthentication", "NS", "tokens", nil, object{"jwtRules": rules})
}

// TestTwoTokens: a token that is not good never comes through beside a good one of another issuer, wherever the two issuers look.
func TestTwoTokens(t *testing.T) {
	keys := newKeys(t)
	type pair struct{ one, two object }
	var pairs []pair
	var configs []string
	for _, one := range where() {
		for _, two := range where() {
			pairs = append(pairs, pair{one, two}, pair{one, two})
			configs = append(configs, twoIssuers(keys, one, two, ""), twoIssuers(keys, one, two, "REQUIRED"))
		}
	}
	subjects, c := workloads(t, keys, configs...)
	tokens := map[string]access.Token{}
	token := func(issuer, key string) string {
		text, err := keys.Token(&casefile.JWT{Iss: issuer, Sub: "me", Key: key})
		if err != nil {
			t.Fatal(err)
		}
		tokens[text] = access.Token{Claims: claimsOf(t, text), Forged: key != ""}
		return text
	}
	good, forged := token("one", ""), token("two", "other")
	for n, at := range pairs {
		alone := access.Request{Tokens: tokens}
		put(&alone, at.one, false, good)
		c.meets(t, subjects[n], alone, true)
		for _, last := range []bool{false, true} {
			both := alone
			put(&both, at.two, last, forged)
			twice := at.one["fromCookies"] != nil && at.two["fromCookies"] != nil // of a cookie that comes twice, Envoy takes the first
			if replaced := strings.Contains(alone.Path, good) && !strings.Contains(both.Path, good); !twice && !replaced {
				c.meets(t, subjects[n], both, false)
			}
		}
	}
}

// TestNoResumption: a client of the mesh cannot resume a TLS session, in which it would show no certificate.
func TestNoResumption(t *testing.T) {
	subjects, c := workloads(t, newKeys(t), document("PeerAuthentication", "NS", "peer", nil, object{"mtls": object{"mode": "STRICT"}}))
	certificate, err := c.certificate("spiffe://cluster.local/ns/shop/sa/web")
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		config := &tls.Config{
			InsecureSkipVerify: true, MinVersion: version, MaxVersion: version, Certificates: []tls.Certificate{certificate}, //nolint:gosec // who answers does not matter
			ClientSessionCache: tls.NewLRUClientSessionCache(4), ServerName: "w.test", NextProtos: []string{"istio-http/1.1"},
		}
		for range 2 {
			conn, err := tls.Dial("tcp", netip.AddrPortFrom(subjects[0].address, httpPort).String(), config)
			if err != nil {
				t.Fatal(err)
			}
			if o := sendHTTP(conn, access.Request{Method: "GET", Path: "/", Host: "w.test"}); !o.reached { // tickets come with the answer
				t.Errorf("%s: %+v", tls.VersionName(version), o)
			}
			if conn.ConnectionState().DidResume {
				t.Errorf("%s: the session was resumed", tls.VersionName(version))
			}
			_ = conn.Close()
		}
		if _, kept := config.ClientSessionCache.Get("w.test"); kept {
			t.Errorf("%s: the client has a session to resume", tls.VersionName(version))
		}
	}
}
