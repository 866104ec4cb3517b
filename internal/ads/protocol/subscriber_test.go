package protocol

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"

	"github.com/pilotmesh/pilot/internal/ads/protocol/subscribe"
	"github.com/pilotmesh/pilot/internal/ads/request"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// subscriber is a client that accepts everything and often changes its subscriptions.
type subscriber struct {
	rt      *rapid.T
	variant Variant
	core    *Core
	world   *world
	rev     store.Revision
	inbox   []Action // written by the core, not read yet
	writing bool
	clock   time.Duration // since the beginning
	waiting time.Duration // the length of the core's Wait; 0 if none runs
	types   [resource.Types]interest
}

// interest is what the client wants and has of one type.
type interest struct {
	asked, wild bool
	legacy      bool // whether it has the wildcard because of an empty first request
	names       map[string]bool
	has         map[string]string // name → content
	nonce       string            // of the last response read
}

// TestWhoeverSubscribesHas checks that a client in the end has the last version of everything it subscribes to, whatever it
// subscribes to and drops, and in whatever order requests, changes and responses arrive.
func TestWhoeverSubscribesHas(t *testing.T) {
	for _, v := range []Variant{Delta, StateOfTheWorld} {
		t.Run(v.String(), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				s := &subscriber{rt: rt, variant: v, core: NewCore(NewShared(""), v), world: newWorld()}
				for i := range s.types {
					s.types[i].names, s.types[i].has = map[string]bool{}, map[string]string{}
				}
				s.publish()
				for range rapid.IntRange(1, 40).Draw(rt, "steps") {
					s.happen()
				}
				for s.read() || s.written() || s.waited() {
				}
				s.check()
			})
		})
	}
}

func (s *subscriber) happen() {
	switch rapid.IntRange(0, 5).Draw(s.rt, "what") {
	case 0:
		s.publish()
	case 1, 2:
		s.read()
	case 3:
		s.written()
	default:
		s.ask(rapid.SampledFrom([]resource.Type{resource.Cluster, resource.Cluster, resource.Endpoint, resource.Route}).Draw(s.rt, "type"), true)
	}
}

func subscriberNames() []string { return []string{"a", "b", "c"} }

func (s *subscriber) publish() {
	for range rapid.IntRange(0, 3).Draw(s.rt, "edits") {
		n := rapid.SampledFrom(subscriberNames()).Draw(s.rt, "name")
		t := rapid.SampledFrom([]resource.Type{resource.Cluster, resource.Endpoint, resource.Route}).Draw(s.rt, "type")
		if rapid.Bool().Draw(s.rt, "gone") {
			delete(s.world.marks[t], n)
		} else {
			s.world.marks[t][n] = fmt.Sprint(rapid.IntRange(0, 2).Draw(s.rt, "mark"))
		}
	}
	s.rev++
	s.rt.Logf("state %d: %v", s.rev, s.world.marks)
	s.step(Event{State: s.world.state(s.rev)})
}

func (s *subscriber) step(e Event) {
	for _, a := range s.core.Step(e, nil) {
		if a.Kind == Send {
			s.rt.Logf("  < %s", describe(s.variant, a))
			s.inbox, s.writing = append(s.inbox, a), true
		}
		if a.Kind == Wait {
			s.waiting = max(a.For, 1)
		}
	}
}

func (s *subscriber) written() bool {
	was := s.writing
	if s.writing = false; was {
		s.step(Event{Sent: true})
	}
	return was
}

// waited ends the core's Wait.
func (s *subscriber) waited() bool {
	was := s.waiting > 0
	if was {
		s.clock, s.waiting = s.clock+max(s.waiting, 1), 0
		s.step(Event{At: time.Unix(0, int64(s.clock)), Waited: true})
	}
	return was
}

// read applies the next response and acknowledges it, sometimes together with a change of subscription.
func (s *subscriber) read() bool {
	if len(s.inbox) == 0 {
		return false
	}
	a := s.inbox[0]
	s.inbox = s.inbox[1:]
	of := &s.types[a.Type]
	of.nonce = a.Nonce
	got := map[string]string{}
	note := func(packed *anypb.Any) {
		m, err := packed.UnmarshalNew()
		if err != nil {
			s.rt.Fatal(err)
		}
		got[nameOf(m)] = show(m)
	}
	if s.variant == Delta {
		var m discoveryv3.DeltaDiscoveryResponse
		s.open(a, &m)
		for _, r := range m.Resources {
			note(r.Resource)
		}
		for _, n := range m.RemovedResources {
			delete(of.has, n)
		}
	} else {
		var m discoveryv3.DiscoveryResponse
		s.open(a, &m)
		for _, r := range m.Resources {
			note(r)
		}
		if a.Type.Wildcard() {
			clear(of.has)
		}
	}
	for n, content := range got {
		if s.variant == StateOfTheWorld || of.wants(n) {
			of.has[n] = content
		}
	}
	s.ask(a.Type, rapid.IntRange(0, 3).Draw(s.rt, "wish with it") == 0)
	return true
}

func (s *subscriber) open(a Action, m proto.Message) {
	if err := proto.Unmarshal(wire(a), m); err != nil {
		s.rt.Fatal(err)
	}
}

func nameOf(m proto.Message) string {
	switch m := m.(type) {
	case *clusterv3.Cluster:
		return m.Name
	case interface{ GetClusterName() string }:
		return m.GetClusterName()
	case interface{ GetName() string }:
		return m.GetName()
	}
	return ""
}

func (i *interest) wants(n string) bool { return i.wild || i.names[n] }

// ask sends a request with the nonce that was read last. change says whether it changes the subscription.
func (s *subscriber) ask(t resource.Type, change bool) {
	of := &s.types[t]
	var sub, drop []string
	if change {
		sub, drop = s.wish(t, of)
	}
	url, id := t.URL(), &corev3.Node{Id: "n"}
	var m proto.Message = &discoveryv3.DeltaDiscoveryRequest{
		Node: id, TypeUrl: url, ResponseNonce: of.nonce, ResourceNamesSubscribe: sub, ResourceNamesUnsubscribe: drop,
	}
	if s.variant == StateOfTheWorld {
		list := slices.Sorted(maps.Keys(of.names))
		if of.wild && !of.legacy {
			list = append(list, subscribe.Star)
		}
		m = &discoveryv3.DiscoveryRequest{Node: id, TypeUrl: url, ResponseNonce: of.nonce, ResourceNames: list}
	}
	of.asked = true
	raw, err := proto.Marshal(m)
	if err != nil {
		s.rt.Fatal(err)
	}
	q, err := request.Scan(s.variant, raw)
	if err != nil {
		s.rt.Fatal(err)
	}
	s.rt.Logf("%s nonce=%s sub=%v drop=%v wants %v, all: %v", t, of.nonce, sub, drop, of.names, of.wild)
	s.step(Event{Request: q})
}

// wish changes the interest. The client drops resources at once when it unsubscribes from them, even if it subscribes again in the
// same request.
func (s *subscriber) wish(t resource.Type, of *interest) (sub, drop []string) {
	if !of.asked && t.Wildcard() && rapid.Bool().Draw(s.rt, "legacy") {
		of.wild, of.legacy = true, true
		return nil, nil
	}
	choice := subscriberNames()
	if t.Wildcard() {
		choice = append(choice, subscribe.Star)
	}
	for _, n := range choice {
		switch rapid.IntRange(0, 5).Draw(s.rt, n) {
		case 0, 1:
			sub = append(sub, n)
			of.set(n, true)
		case 2:
			drop = append(drop, n)
			of.set(n, false)
		}
	}
	if s.variant == StateOfTheWorld {
		return sub, drop // The server ignores requests with a stale nonce, so it would not learn that the client dropped a resource.
	}
	for n := range of.has {
		if !of.wants(n) || slices.Contains(sub, n) || slices.Contains(sub, subscribe.Star) {
			delete(of.has, n)
		}
	}
	return sub, drop
}

func (i *interest) set(n string, wanted bool) {
	i.legacy = false
	switch {
	case n == subscribe.Star:
		i.wild = wanted
	case wanted:
		i.names[n] = true
	default:
		delete(i.names, n)
	}
}

func (s *subscriber) check() {
	for i := range s.types {
		t, of := resource.Type(i), &s.types[i]
		if !of.asked {
			continue
		}
		for _, n := range subscriberNames() {
			want := ""
			if _, there := s.world.marks[t][n]; there && of.wants(n) {
				want = show(message(t, n, s.world.marks[t][n]))
			} else if s.variant == StateOfTheWorld && (!t.Wildcard() || !of.wants(n)) {
				continue // State-of-the-World cannot say that a resource was removed.
			}
			if of.has[n] != want {
				s.rt.Fatalf("%s %s: it has %q, want %q", t, n, of.has[n], want)
			}
		}
	}
}
