package access

import (
	"bufio"
	"crypto/tls"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"golang.org/x/net/http2"

	"github.com/pilotmesh/pilot/internal/explain/access"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/authz"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/test/exam/pki"
	"github.com/pilotmesh/pilot/test/kit/certs"
)

var (
	seed = flag.Uint64("seed", 2, "what generated policies and requests begin with")
	sets = flag.Int("sets", 80, "how many workloads with policies are generated")
	each = flag.Int("requests", 12, "how many requests are sent to each of them")
)

// settings are mesh settings with different normalisation of paths. Each applies to a part of the workloads.
func settings() []string {
	const common = `
trustDomain: cluster.local
trustDomainAliases: [old.td]
extensionProviders:
- {name: asker, envoyExtAuthzHttp: {service: asker.test, port: 80, headersToUpstreamOnAllow: [x-asked]}}
`
	return []string{
		common, common + "pathNormalization: {normalization: NONE}", common + "pathNormalization: {normalization: MERGE_SLASHES}",
		common + "pathNormalization: {normalization: DECODE_AND_MERGE_SLASHES}",
	}
}

const providerService = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: asker, namespace: istio-system}
spec:
  hosts: [asker.test]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 127.0.0.1}]
---
`

// subject is a workload with its policies.
type subject struct {
	namespace, config string
	address           netip.Addr
	listeners         map[uint32]*listenerv3.Listener
}

// generate makes workloads with policies, and the listeners of their proxies.
func (g generator) generate(t *testing.T, number int) (list []*subject) {
	t.Helper()
	meshes := settings()
	for n, text := range meshes {
		w := meshtest.New(t)
		w.Configure(text)
		all := providerService
		var own []*subject
		for i := n; i < number; i += len(meshes) {
			s := &subject{
				namespace: fmt.Sprint("n", i), address: netip.AddrFrom4([4]byte{127, 77, byte(i / 200), byte(1 + i%200)}), listeners: map[uint32]*listenerv3.Listener{},
			}
			s.config = g.workload(s.namespace, s.address.String())
			all += s.config
			own = append(own, s)
		}
		w.Load(strings.TrimSuffix(all, "---\n"))
		for _, s := range own {
			id := fmt.Sprintf("sidecar~%s~w-0.%s~%[2]s.svc.cluster.local", s.address, s.namespace)
			w.Connect(meshtest.Node(t, id, `{"INTERCEPTION_MODE": "NONE", "LABELS": {"app": "w"}}`))
			for _, port := range []uint32{httpPort, tcpPort, anyPort} {
				if s.listeners[port] = inbound(t, w, id, port); s.listeners[port] == nil {
					t.Fatalf("%s has no listener at port %d:\n%s", s.address, port, s.config)
				}
			}
		}
		list = append(list, own...)
	}
	return list
}

// client sends requests with identities of the mesh.
type client struct {
	keys *pki.Material
	mu   sync.Mutex
	// certificates are the clients' certificates by identity.
	certificates map[string]tls.Certificate
}

func (c *client) certificate(id string) (tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if made, ok := c.certificates[id]; ok {
		return made, nil
	}
	pair, err := c.keys.Mesh.Issue(certs.Identity{URIs: []string{id}})
	if err != nil {
		return tls.Certificate{}, err
	}
	c.certificates[id], err = pair.TLS()
	return c.certificates[id], err
}

// outcome is what a request met.
type outcome struct {
	// reached is true if the application got it, with the path that it saw. asked is true if the authorizer was asked before.
	reached, asked bool
	path           string
	// status is the status of the answer; 0 if the connection was closed.
	status int
	detail string
}

// send sends a request.
func (c *client) send(r access.Request) (o outcome) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: r.Source.AsSlice()}, Timeout: patience}
	conn, err := d.Dial("tcp", netip.AddrPortFrom(r.Address, uint16(r.Port)).String())
	if err != nil {
		return outcome{detail: err.Error()}
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if r.TLS != nil {
		config := &tls.Config{InsecureSkipVerify: true, ServerName: r.TLS.ServerName, NextProtos: r.TLS.ALPN} //nolint:gosec // who answers does not matter
		if r.TLS.Identity != "" {
			certificate, err := c.certificate(r.TLS.Identity)
			if err != nil {
				return outcome{detail: err.Error()}
			}
			config.Certificates = []tls.Certificate{certificate}
		}
		conn = tls.Client(conn, config)
	}
	switch {
	case r.TCP:
		return sendLine(conn)
	case r.HTTP2:
		return sendHTTP2(conn, r)
	}
	return sendHTTP(conn, r)
}

// sendHTTP2 sends a request over HTTP/2.
func sendHTTP2(conn net.Conn, r access.Request) outcome {
	if secure, ok := conn.(*tls.Conn); ok {
		if err := secure.Handshake(); err != nil {
			return outcome{detail: err.Error()}
		}
	}
	c, err := (&http2.Transport{AllowHTTP: true, DisableCompression: true}).NewClientConn(conn) //nolint:staticcheck // the new one takes no connection that is open
	if err != nil {
		return outcome{detail: err.Error()}
	}
	q := &http.Request{Method: r.Method, Host: r.Host, URL: &url.URL{Scheme: "http", Host: r.Host, Opaque: r.Path}, Header: http.Header{}}
	for _, h := range r.Headers {
		q.Header.Add(h.Name, h.Value)
	}
	if q.Header["User-Agent"] == nil {
		q.Header["User-Agent"] = []string{""} // otherwise there would be one that is not described
	}
	answer, err := c.RoundTrip(q)
	if err != nil {
		return outcome{detail: err.Error()}
	}
	return outcomeOf(answer)
}

func sendLine(conn net.Conn) outcome {
	if _, err := fmt.Fprint(conn, "ping the line\n"); err != nil {
		return outcome{detail: err.Error()}
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return outcome{detail: err.Error()}
	}
	return outcome{reached: line == "echo ping the line\n", detail: line}
}

func sendHTTP(conn net.Conn, r access.Request) outcome {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.Method, r.Path, r.Host)
	for _, h := range r.Headers {
		fmt.Fprintf(&b, "%s: %s\r\n", h.Name, h.Value)
	}
	if _, err := fmt.Fprint(conn, b.String()+"Content-Length: 0\r\n\r\n"); err != nil {
		return outcome{detail: err.Error()}
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return outcome{detail: err.Error()}
	}
	return outcomeOf(answer)
}

func outcomeOf(answer *http.Response) outcome {
	defer answer.Body.Close()
	body := make([]byte, 200)
	n, _ := answer.Body.Read(body)
	o := outcome{status: answer.StatusCode, detail: string(body[:n]), path: answer.Header.Get("X-Path"), asked: answer.Header.Get(askedHeader) != ""}
	o.reached = o.path != ""
	return o
}

// wrong says how a decision differs from what a request met; empty if it does not.
func wrong(d access.Decision, r access.Request, o outcome) string {
	want := outcome{reached: d.Verdict == access.Allowed || d.Verdict == access.Asked, asked: d.Verdict == access.Asked && d.HTTP, status: d.Status}
	switch {
	case d.Verdict == access.Unknown:
		return "the answer is unknown"
	case o.reached != want.reached:
		return "Envoy decides otherwise"
	case o.asked != want.asked && o.reached:
		return fmt.Sprintf("the authorizer was asked: %t", o.asked)
	case !o.reached && !r.TCP && o.status != want.status && want.status != 0:
		return fmt.Sprintf("Envoy answers with status %d", o.status)
	case !o.reached && !r.TCP && want.status == 0 && o.status == http.StatusForbidden:
		return "Envoy answers as if it had looked at the request"
	case d.HTTP && o.reached && d.Path != pathOf(o.path):
		return fmt.Sprintf("policies see the path %q, and Envoy forwards %q", d.Path, o.path)
	}
	return ""
}

func pathOf(path string) string {
	before, _, _ := strings.Cut(path, "?")
	return before
}

// TestGenerated sends generated requests to workloads with generated policies through a real Envoy, and wants each to be let through or
// refused as the evaluation says. What the evaluation reads is what Envoy is given.
func TestGenerated(t *testing.T) {
	t.Logf("-seed %d -sets %d -requests %d", *seed, *sets, *each)
	keys, err := pki.New()
	if err != nil {
		t.Fatal(err)
	}
	g := generator{Rand: rand.New(rand.NewPCG(*seed, 0)), keys: keys} //nolint:gosec // it must be repeatable
	subjects := g.generate(t, *sets)
	var listeners []*listenerv3.Listener
	clusters := map[string]net.Addr{envoy.OutboundCluster(80, "", "asker.test"): startAuthorizer(t)}
	app := startApplication(t, keys)
	for _, port := range []uint32{httpPort, tcpPort, anyPort} {
		clusters[envoy.InboundCluster(port)] = app
	}
	for _, s := range subjects {
		for _, l := range s.listeners {
			listeners = append(listeners, l)
		}
	}
	startEnvoy(t, keys, listeners, clusters)
	c := &client{keys: keys, certificates: map[string]tls.Certificate{}}
	met := map[string]int{}
	for _, s := range subjects {
		for range *each {
			r := g.request(t, s.address)
			d := access.Evaluate(s.listeners[r.Port], r, access.Options{Keyless: authz.Keyless})
			o := c.send(r)
			met[strings.TrimSpace(string(d.Verdict)+" "+string(d.Stage)+" "+strconv.Itoa(d.Status))]++
			if message := wrong(d, r, o); message != "" {
				t.Errorf("%s: %s\n%+v\nrequest %+v %+v\nEnvoy %+v\n%s", s.namespace, message, d, r, r.TLS, o, s.config)
			}
		}
	}
	t.Logf("%v", met)
	for _, kind := range []string{"allow  0", "deny policies 403", "deny policies 0", "deny tokens 401", "deny tokens 403", "deny connection 0", "ask  0"} {
		if met[kind] == 0 {
			t.Errorf("no request met %q", kind)
		}
	}
}

// plain are workloads without policies, one for each of the settings, and the Envoy in front of them.
func plain(t *testing.T) (subjects []*subject, c *client) {
	t.Helper()
	keys, err := pki.New()
	if err != nil {
		t.Fatal(err)
	}
	var listeners []*listenerv3.Listener
	for n, text := range settings() {
		w := meshtest.New(t)
		w.Configure(text)
		s := &subject{address: netip.AddrFrom4([4]byte{127, 78, 0, byte(1 + n)}), listeners: map[uint32]*listenerv3.Listener{}}
		w.Load(document("ServiceEntry", "n", "w", nil, object{
			"hosts": []string{"w.test"}, "resolution": "STATIC", "location": "MESH_INTERNAL", "endpoints": []object{{"address": s.address.String()}},
			"ports": []object{{"number": httpPort, "name": "http", "protocol": "HTTP"}},
		}))
		id := fmt.Sprintf("sidecar~%s~w-0.n~n.svc.cluster.local", s.address)
		w.Connect(meshtest.Node(t, id, `{"INTERCEPTION_MODE": "NONE"}`))
		s.listeners[httpPort] = inbound(t, w, id, httpPort)
		subjects, listeners = append(subjects, s), append(listeners, s.listeners[httpPort])
	}
	startEnvoy(t, keys, listeners, map[string]net.Addr{envoy.InboundCluster(httpPort): startApplication(t, keys)})
	return subjects, &client{keys: keys}
}

// compare sends a request to a workload without policies, and holds the evaluation against what becomes of it.
func (c *client) compare(t *testing.T, s *subject, method, path string) {
	t.Helper()
	r := access.Request{Port: httpPort, Address: s.address, Source: netip.MustParseAddr("127.1.1.1"), Method: method, Host: "w.test", Path: path}
	d := access.Evaluate(s.listeners[httpPort], r, access.Options{})
	o := c.send(r)
	if message := wrong(d, r, o); message != "" {
		t.Errorf("%s: %s %q: %s: %+v %+v", s.address, method, path, message, d, o)
	}
}

// TestPaths sends paths through a real Envoy with every normalisation of paths, and wants each to be forwarded, or refused, as the
// evaluation says: every character, escaped and not, and tricks with dots and slashes. It does the same with methods.
func TestPaths(t *testing.T) {
	t.Logf("-seed %d", *seed)
	var paths []string
	for c := byte('!'); c < 0x7f; c++ {
		if c != '#' { // a fragment, which clients do not send
			paths = append(paths, "/a"+string(rune(c))+"b")
		}
	}
	for c := range 256 {
		paths = append(paths, fmt.Sprintf("/a%%%02xb", c), fmt.Sprintf("/a%%%02Xb", c))
	}
	g := generator{Rand: rand.New(rand.NewPCG(*seed, 1))} //nolint:gosec // it must be repeatable
	for range 600 {
		path := "/"
		for range 1 + g.IntN(6) {
			path += one(g, "/", "//", ".", "..", "%2e", "%2E", "%2f", "%5C", `\`, "a", "%61", "%7e", ";", "%25", "%", "%4", "/..", "/../", "/./", "?", "?/..",
				"/..;", "/.;x", "%3", "1", "%31")
		}
		paths = append(paths, path)
	}
	subjects, c := plain(t)
	for _, s := range subjects {
		for _, path := range paths {
			c.compare(t, s, "GET", path)
		}
	}
	for method := range strings.FieldsSeq("PUT DELETE PATCH TRACE OPTIONS COPY LOCK MKCOL MOVE PROPFIND PROPPATCH SEARCH UNLOCK BIND REBIND UNBIND ACL REPORT " +
		"MKACTIVITY CHECKOUT MERGE M-SEARCH NOTIFY SUBSCRIBE UNSUBSCRIBE PURGE MKCALENDAR LINK UNLINK SOURCE delete GETS QUERY PRI") {
		c.compare(t, subjects[0], method, "/")
	}
}
