package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/pilotmesh/pilot/test/conformance/client"
)

// scene is what one test has: a namespace, a control plane, peers. Its methods fail the test.
//
// Unless the rule is bare, the namespace begins with four services: a and b are HTTP on port 80, w is too and selects
// workloads, t is TCP on port 9000 with an address; and with the service that fences are made of.
type scene struct {
	*testing.T
	variant client.Variant
	server  *server
	ns      string

	peers  []*peer
	fences int
}

// What a scene begins with, by file.
const (
	fileServices  = "services.yaml"
	fileTCP       = "tcp.yaml"
	fileWorkloads = "workloads.yaml"
	fileFence     = "fence.yaml"

	vipT      = "240.240.0.1"
	listenerT = vipT + "_9000"
	routeHTTP = "80"
)

func newScene(t *testing.T, family string, r rule, v client.Variant, shared *server) *scene {
	t.Helper()
	s := &scene{T: t, variant: v, server: shared, ns: family + "-" + r.name + "-" + v.String()}
	if r.own {
		s.server = newServer(t)
	}
	t.Cleanup(s.finish)
	if !r.bare {
		s.base()
	}
	switch {
	case r.own && !r.bare:
		s.server.start()
	case r.own:
	case !r.bare:
		s.ready()
	}
	return s
}

// base writes what the scene begins with.
func (s *scene) base() {
	s.Helper()
	s.put(fileServices, s.a("10.1.0.1"), s.b("10.1.0.2"))
	s.put(fileTCP, s.service(service{name: "t", ports: tcpPort, vip: vipT, endpoints: []string{"10.1.0.3"}}))
	s.put(fileWorkloads, s.service(service{name: "w", selects: "w"}), s.workload("w-1", "w", "10.1.0.4"))
	s.writeFence()
}

// a and b are the documents of the services with another endpoint.
func (s *scene) a(address string) string {
	return s.service(service{name: "a", endpoints: []string{address}})
}

func (s *scene) b(address string) string {
	return s.service(service{name: "b", endpoints: []string{address}})
}

// ready waits until the control plane has read the files written so far.
func (s *scene) ready() {
	s.Helper()
	// A node may say no more than its id.
	probe := s.open(as(&corev3.Node{Id: node("client", s.ns).Id}))
	probe.subscribe(client.EDS, s.fenceCluster())
	probe.await("the namespace to be read", func() bool { return s.fenced(probe, client.EDS) })
	probe.leave()
}

// probe waits, with a peer of its own that asks for everything of a type, until newcomers are served what cond wants.
func (s *scene) probe(t client.Type, what string, cond func(*peer) bool) {
	s.Helper()
	p := s.open()
	p.subscribe(t)
	p.await(what, func() bool { return len(p.Held(t)) > 0 && cond(p) })
	p.leave()
}

// settled waits until newcomers are served a limit of connections.
func (s *scene) settled(name string, limit int) {
	s.Helper()
	s.probe(client.CDS, "the policy to be served", func(p *peer) bool { return p.connections(s.cluster(name)) == limit })
}

// gone waits until newcomers are not served a resource.
func (s *scene) gone(t client.Type, name string) {
	s.Helper()
	s.probe(t, name+" to be gone", func(p *peer) bool { return p.Get(t, name) == nil })
}

// finish judges what the peers saw, and removes the namespace.
func (s *scene) finish() {
	shown := map[client.Fault]bool{}
	for i, p := range s.peers {
		for _, f := range p.Faults {
			if !shown[f] && len(shown) < 20 {
				shown[f] = true
				s.Errorf("peer %d: %s: %s", i, f.Rule, f.Text)
			}
		}
	}
	if s.Failed() {
		for i, p := range s.peers {
			s.Logf("peer %d was sent:\n%s", i, p.story())
		}
		if s.server.Discovery != nil {
			if err := s.server.Alive(); err != nil {
				s.Log(err)
			}
		}
	}
	for _, p := range s.peers {
		p.leave()
	}
	if err := os.RemoveAll(filepath.Join(s.server.ConfigDir, s.ns)); err != nil {
		s.Error(err)
	}
}

// put writes a file of the scene's directory, whole at once.
func (s *scene) put(name string, documents ...string) {
	s.Helper()
	s.server.put(filepath.Join(s.ns, name), documents...)
}

// remove deletes a file of the scene's directory.
func (s *scene) remove(name string) {
	s.Helper()
	s.server.remove(filepath.Join(s.ns, name))
}

// path is where a file of the scene lies.
func (s *scene) path(name string) string { return filepath.Join(s.server.ConfigDir, s.ns, name) }

// within returns a context for one wait.
func within(limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.Background(), limit, fmt.Errorf("not within %s", limit))
}

// Fences. A fence is a change of one service that shows in all four types.

func (s *scene) fenceCluster() string { return s.port("fence", fencePort, "") }

const (
	fencePort  = 7000
	fenceRoute = "7000"
)

func (s *scene) fenceVIP(n int) string     { return fmt.Sprintf("240.9.%d.%d", n/200, n%200+1) }
func (s *scene) fenceAddress(n int) string { return fmt.Sprintf("10.9.%d.%d", n/200, n%200+1) }

func (s *scene) writeFence() {
	s.Helper()
	n := s.fences
	s.put(fileFence,
		s.service(service{
			name: "fence", vip: s.fenceVIP(n), endpoints: []string{s.fenceAddress(n)},
			ports: fmt.Sprintf("{number: %d, name: http, protocol: HTTP}, {number: 7001, name: tcp, protocol: TCP}", fencePort),
		}),
		s.policy("fence", 1000+n),
		s.routes("fence", fmt.Sprintf("fence-%d", n), "fence"),
	)
}

// fenced reports whether the peer has the present fence in a type.
func (s *scene) fenced(p *peer, t client.Type) bool {
	n := s.fences
	switch t {
	case client.CDS:
		return p.connections(s.fenceCluster()) == 1000+n
	case client.EDS:
		return slices.Equal(p.addresses(s.fenceCluster()), []string{s.fenceAddress(n)})
	case client.LDS:
		return p.Get(client.LDS, s.fenceVIP(n)+"_7001") != nil
	case client.RDS:
		return p.mentions(client.RDS, fenceRoute, fmt.Sprintf("/fence-%d/", n))
	}
	return false
}

// ofFence reports whether a resource belongs to the fence.
func (s *scene) ofFence(t client.Type, name string) bool {
	switch t {
	case client.CDS, client.EDS:
		return strings.HasSuffix(name, "|"+s.host("fence"))
	case client.LDS:
		return strings.HasPrefix(name, "240.9.") || strings.HasSuffix(name, "_"+fenceRoute) || strings.HasSuffix(name, "_7001")
	case client.RDS:
		return name == fenceRoute || strings.HasPrefix(name, s.host("fence"))
	}
	return false
}

// visible lists the types in which the peer would see a fence.
func (s *scene) visible(p *peer) []client.Type {
	var types []client.Type
	for _, t := range client.All() {
		name := map[client.Type]string{client.CDS: s.fenceCluster(), client.EDS: s.fenceCluster(), client.LDS: "", client.RDS: fenceRoute}[t]
		if p.Covers(t, name) {
			types = append(types, t)
		}
	}
	return types
}

// fence makes a change that the peers see in every type they can, and waits until they do. It does so twice: requests
// sent before are through when the peer's answer to the first one is.
func (s *scene) fence(peers ...*peer) {
	s.Helper()
	for range 2 {
		s.fences++
		s.writeFence()
		for _, p := range peers {
			types := s.visible(p)
			if len(types) == 0 {
				s.Fatal("the peer would not see a fence")
			}
			p.await(fmt.Sprintf("fence %d", s.fences), func() bool {
				return !slices.ContainsFunc(types, func(t client.Type) bool { return !s.fenced(p, t) })
			})
		}
	}
}

// effect is what a peer was sent of one type.
type effect struct {
	Responses        int // without responses that only show a fence
	Put, Again, Gone []string
}

// effects runs act and says what the peer was sent because of it: between a fence before it and one behind it.
func (s *scene) effects(p *peer, act func()) map[client.Type]effect {
	s.Helper()
	s.fence(p)
	mark := len(p.Log)
	act()
	s.fence(p)
	return s.since(p, mark)
}

// since sums up what the peer was sent from a place in its log on, fences excepted.
func (s *scene) since(p *peer, mark int) map[client.Type]effect {
	sum := map[client.Type]effect{}
	for _, r := range p.Log[mark:] {
		if !r.Known {
			continue
		}
		foreign := func(names []string) []string {
			return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return s.ofFence(r.Type, n) })
		}
		put, again, gone := foreign(r.Put), foreign(r.Again), foreign(r.Gone)
		fence := len(put) < len(r.Put) || len(gone) < len(r.Gone) || len(again) < len(r.Again)
		if s.variant == client.SotW && r.Type.Wildcard() && (len(r.Put) > 0 || len(r.Gone) > 0) {
			again = nil // a change brings the whole list: that is how it is
		}
		if fence && len(put)+len(again)+len(gone) == 0 {
			continue
		}
		e := sum[r.Type]
		e.Responses++
		e.Put, e.Again, e.Gone = union(e.Put, put), union(e.Again, again), union(e.Gone, gone)
		sum[r.Type] = e
	}
	return sum
}

func union(a, b []string) []string {
	all := append(slices.Clone(a), b...)
	slices.Sort(all)
	return slices.Compact(all)
}

// quiet checks that act brings the peer nothing.
func (s *scene) quiet(p *peer, what string, act func()) {
	s.Helper()
	for t, e := range s.effects(p, act) {
		s.Errorf("%s brought %d %s responses: put %q, again %q, gone %q; want nothing", what, e.Responses, t, e.Put, e.Again, e.Gone)
	}
}

// must fails the test on an error.
func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// ended reports whether an error says that the server has ended the stream.
func ended(err error) bool { return errors.Is(err, client.ErrEnded) }

// sameNames fails the test unless two lists of names are equal.
func (s *scene) sameNames(what string, got, want []string) {
	s.Helper()
	got, want = union(got, nil), union(want, nil)
	if !slices.Equal(got, want) {
		s.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// content is what a peer holds of a type, by name.
func content(p *peer, t client.Type) map[string]string {
	m := map[string]string{}
	for n, r := range p.Held(t) {
		m[n] = string(r.Body)
	}
	return m
}

// sameContent fails the test unless two peers hold the same, byte by byte.
func (s *scene) sameContent(what string, a, b *peer) {
	s.Helper()
	for _, t := range client.All() {
		s.sameMaps(fmt.Sprintf("%s: %s", what, t), content(a, t), content(b, t))
	}
}

func (s *scene) sameMaps(what string, x, y map[string]string) {
	s.Helper()
	for _, n := range union(slices.Collect(maps.Keys(x)), slices.Collect(maps.Keys(y))) {
		v, has := x[n]
		w, hasToo := y[n]
		switch {
		case !has:
			s.Errorf("%s: only the second has %q", what, n)
		case !hasToo:
			s.Errorf("%s: only the first has %q", what, n)
		case v != w:
			s.Errorf("%s: %q differs: %d and %d bytes", what, n, len(v), len(w))
		}
	}
}
