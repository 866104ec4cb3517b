package conformance

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/test/conformance/client"
)

// nackRandom: a client that refuses some contents, whatever they are, among random edits. It never sees a gap, a refused resource is not sent again,
// and in the end it has everything that it does not refuse.
func nackRandom(s *scene) {
	seed := rand.Uint64()
	s.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, uint64(len(s.ns))))
	salt := fmt.Sprint(seed)
	p := s.connect(func(o *client.Options) { o.Refuses = func(r *client.Resource) bool { return refused(r, salt) } })
	for round := range 4 {
		for range 12 {
			s.put("random.yaml", s.random(rnd)...)
			switch rnd.IntN(4) {
			case 0:
				s.fence(p)
			case 1:
				s.must(p.Poll())
			}
		}
		s.fence(p)
		s.fence(p)
		s.hasTheRest(fmt.Sprintf("round %d", round), p, s.connect(), salt)
		if s.Failed() {
			return
		}
	}
	sent := map[string]int{}
	for _, r := range p.Log {
		for _, res := range r.Resources {
			if r.Type != client.RDS && refused(res, salt) {
				sent[res.Name+"\n"+string(res.Body)]++
			}
		}
	}
	s.Logf("%d contents were refused", len(sent))
	for content, n := range sent {
		if n > 1 {
			name, _, _ := strings.Cut(content, "\n")
			s.Errorf("a content of %q that was refused was sent %d times", name, n)
		}
	}
	s.put("random.yaml", "# nothing\n")
	s.fence(p)
	p.await("all it refers to", func() bool { return len(p.Loose()) == 0 })
}

// refused is every seventh content of the random services. Of routes it is the virtual host that counts: it is held back
// by itself.
func refused(r *client.Resource, salt string) bool {
	bad := func(name string, body []byte) bool {
		sum := sha256.Sum256(append([]byte(salt+name), body...))
		return sum[0]%7 == 0
	}
	if m, ok := r.Message.(*routev3.RouteConfiguration); ok {
		return slices.ContainsFunc(m.VirtualHosts, func(vh *routev3.VirtualHost) bool {
			body, err := proto.MarshalOptions{Deterministic: true}.Marshal(vh)
			return err != nil || ofRandom(vh.Name) && bad(vh.Name, body)
		})
	}
	return ofRandom(r.Name) && bad(r.Name, r.Body)
}

// ofRandom reports whether a name belongs to a resource of a random service.
func ofRandom(name string) bool {
	return strings.HasPrefix(name, "240.240.1.") || strings.HasPrefix(name, "r") || strings.Contains(name, "|r")
}

// hasTheRest checks that a peer that refuses some contents has what a new one has, except the resources that it refuses and those referring to them.
func (s *scene) hasTheRest(what string, p, fresh *peer, salt string) {
	s.Helper()
	missing := map[string]bool{} // clusters the peer cannot have
	for n, r := range fresh.Held(client.CDS) {
		if refused(r, salt) {
			missing[n] = true
		} else if !r.Same(p.Get(client.CDS, n)) {
			s.Errorf("%s: CDS %q is not what a new client gets", what, n)
		}
	}
	for _, t := range []client.Type{client.EDS, client.LDS, client.RDS} {
		for n, r := range fresh.Held(t) {
			lost := slices.ContainsFunc(client.ClusterRefs(r.Message), func(c string) bool { return missing[c] })
			if t == client.EDS {
				lost = missing[n]
			}
			if !lost && !refused(r, salt) && !r.Same(p.Get(t, n)) {
				s.Errorf("%s: %s %q is not what a new client gets", what, t, n)
			}
		}
	}
}
