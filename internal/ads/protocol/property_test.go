package protocol

import (
	"fmt"
	"strings"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/pilotmesh/pilot/internal/ads/request"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// run connects a model proxy with a core. Responses and requests between them may be delayed.
type run struct {
	rt      *rapid.T
	shared  *Shared
	core    *Core
	proxy   *proxy
	world   *world
	rev     store.Revision
	last    *resource.State
	inbox   []Action // responses that the proxy has not received
	writing bool
	linger  bool
	bad     bool
	split   bool // whether route configurations are sent in the split form
	late    bool // whether time passes, so that acknowledgements of clusters become overdue
	clock   time.Time
	alarm   time.Time // when the Wait ends; zero if none is running
	sent    int
	rejects map[string]int    // how often the core processed a NACK of a body
	bodies  map[string]string // bodies of responses, by nonce
}

func (r *run) step(e Event) {
	e.At = r.clock
	for _, a := range r.core.Step(e, nil) {
		switch a.Kind {
		case Pinned:
			for _, p := range a.Pins {
				r.rt.Logf("   pinned %s", describePin(p))
			}
		case Send:
			r.rt.Logf("   > %s", describe(r.proxy.variant, a))
			r.checkNotRejected(a)
			if r.writing {
				r.rt.Fatal("two messages at a time")
			}
			r.writing = true
			r.sent++
			r.inbox = append(r.inbox, a)
		case Close:
			r.rt.Fatalf("closed: %s", a.Text)
		case Linger:
			r.linger = true
		case Wait:
			if !r.alarm.IsZero() {
				r.rt.Fatal("two waits at a time")
			}
			r.alarm = r.clock.Add(max(a.For, 0))
		}
	}
}

// edit changes the world at random. Virtual hosts refer only to clusters that exist.
func (r *run) edit() {
	rt, w := r.rt, r.world
	mark := func() string {
		m := fmt.Sprint(rapid.IntRange(0, 3).Draw(rt, "mark"))
		if r.bad && rapid.IntRange(0, 4).Draw(rt, "bad") == 0 {
			return "bad" + m
		}
		return m
	}
	for range rapid.IntRange(1, 4).Draw(rt, "edits") {
		c := fmt.Sprintf("c%d", rapid.IntRange(0, 4).Draw(rt, "cluster"))
		l := fmt.Sprint(rapid.IntRange(0, 1).Draw(rt, "listener"))
		switch rapid.IntRange(0, r.kinds()).Draw(rt, "edit") {
		case 7:
			r.editSplit(l, mark())
		case 8:
			r.editSplit(l, "")
		case 0, 1:
			w.marks[resource.Cluster][c] = mark()
			if _, ok := w.marks[resource.Endpoint][c]; !ok {
				w.marks[resource.Endpoint][c] = "0"
			}
		case 2:
			delete(w.marks[resource.Cluster], c)
			delete(w.marks[resource.Endpoint], c)
		case 3:
			if _, ok := w.marks[resource.Cluster][c]; ok {
				w.marks[resource.Endpoint][c] = mark()
			}
		case 4:
			w.marks[resource.Listener]["l"+l] = fmt.Sprint(rapid.IntRange(0, 3).Draw(rt, "mark"))
			w.marks[resource.Route]["r"+l] = "h"
			if w.pieces["r"+l] == nil {
				w.pieces["r"+l] = map[string]string{"base": "0"}
			}
		default:
			if p := w.pieces["r"+l]; p != nil {
				v := fmt.Sprintf("v%d", rapid.IntRange(0, 3).Draw(rt, "vhost"))
				if rapid.IntRange(0, 3).Draw(rt, "drop") == 0 {
					delete(p, v)
				} else {
					p[v] = mark() + ">" + c
				}
			}
		}
	}
	// A virtual host that routes to nothing is not generated.
	for _, p := range w.pieces {
		for v, spec := range p {
			if _, to, ok := strings.Cut(spec, ">"); ok {
				if _, exists := w.marks[resource.Cluster][to]; !exists {
					delete(p, v)
				}
			}
		}
	}
	r.publish()
}

func (r *run) publish() {
	r.rev++
	r.last = r.world.state(r.rev)
	r.rt.Logf("state %d: %v %v", r.rev, r.world.marks, r.world.pieces)
	r.step(Event{State: r.last})
}

// removeBadContent replaces all content that the proxy rejects.
func (r *run) removeBadContent() {
	for t := range r.world.marks {
		for n, m := range r.world.marks[t] {
			r.world.marks[t][n] = strings.TrimPrefix(m, "bad")
		}
	}
	for _, p := range r.world.pieces {
		for n, m := range p {
			p[n] = strings.TrimPrefix(m, "bad")
		}
		p["healed"] = "1" // An ACK allows the core to release suspects again.
	}
	r.world.marks[resource.Cluster]["healed"] = "1"
	r.world.marks[resource.Endpoint]["healed"] = "1"
	r.publish()
}

func (r *run) connect() {
	r.rt.Log("connect")
	r.core = NewCore(r.shared, r.proxy.variant)
	if r.split {
		r.core.SplitRoutes()
	}
	r.inbox, r.writing, r.linger, r.alarm = nil, false, false, time.Time{}
	r.proxy.connect()
	if r.last != nil {
		r.step(Event{State: r.last})
	}
}

// happen performs one of the events that are under way; false if there is none.
func (r *run) happen(pick func(n int) int) bool {
	var can []func()
	if r.writing {
		can = append(can, func() { r.writing = false; r.step(Event{Sent: true}) })
	}
	if r.linger && len(r.proxy.out) == 0 {
		can = append(can, func() { r.linger = false; r.step(Event{Lingered: true}) })
	}
	if r.late && !r.alarm.IsZero() {
		can = append(can, r.wait)
	}
	if len(r.inbox) > 0 && (len(r.inbox) > 1 || !r.writing) {
		can = append(can, r.deliver)
	}
	if len(r.proxy.out) > 0 {
		can = append(can, r.request)
	}
	if r.split && len(can) == 0 && !r.alarm.IsZero() {
		can = append(can, r.wait) // A client that has dropped its first route configuration answers no virtual hosts.
	}
	if len(can) == 0 {
		return false
	}
	can[pick(len(can))]()
	return true
}

func (r *run) wait() {
	r.clock, r.alarm = r.alarm, time.Time{}
	r.rt.Logf("waited until %d ms", r.clock.UnixMilli())
	r.step(Event{Waited: true})
}

// checkWhileWarming checks a proxy that withholds acknowledgements of clusters and has nothing else to do. It must have everything,
// but the core must not count it as acknowledged.
func (r *run) checkWhileWarming() {
	cds := r.core.Status()[resource.Cluster]
	if len(r.proxy.keptRequests) > 0 && !cds.InFlight && !r.bad {
		r.rt.Fatalf("the proxy keeps %d requests to itself, and everything counts as acknowledged", len(r.proxy.keptRequests))
	}
	if !r.bad && r.last != nil && r.proxy.holds() != r.wants() {
		r.rt.Fatalf("a proxy whose clusters warm has\n%s\nand should have\n%s", r.proxy.holds(), r.wants())
	}
}

func (r *run) deliver() {
	a := r.inbox[0]
	r.rt.Logf("proxy gets %s %s", a.Type, a.Nonce)
	r.inbox = r.inbox[1:]
	r.proxy.receive(a)
	if len(r.proxy.faults) > 0 {
		r.rt.Fatal(r.proxy.faults[0])
	}
}

// checkNotRejected checks that a response does not repeat bytes whose NACK the core has processed.
func (r *run) checkNotRejected(a Action) {
	limit := 0
	if r.proxy.unspecific {
		limit = 1 // After a NACK that names nothing, the bytes may be sent once more with other content around them.
	}
	if r.late {
		limit += 3 // A NACK that arrives when its acknowledgement is overdue may be ignored.
	}
	key := a.Type.String() + describeBody(a, r.proxy.variant)
	if r.rejects[key] > limit && r.proxy.variant == Delta {
		r.rt.Fatalf("rejected bytes were sent again: %s", describe(r.proxy.variant, a))
	}
	r.bodies[a.Nonce] = key
}

// describeBody is the content of a response without its nonce and system version.
func describeBody(a Action, v Variant) string {
	if v == StateOfTheWorld {
		_, body, _ := strings.Cut(describe(v, a), ":")
		return body
	}
	var m discoveryv3.DeltaDiscoveryResponse
	if err := proto.Unmarshal(wire(a), &m); err != nil {
		return err.Error()
	}
	var text []string
	for _, r := range m.Resources {
		text = append(text, r.Name+"@"+r.Version)
	}
	return strings.Join(append(text, m.RemovedResources...), " ")
}

func (r *run) request() {
	raw := r.proxy.out[0]
	r.proxy.out = r.proxy.out[1:]
	q, err := request.Scan(r.proxy.variant, raw)
	if err != nil {
		r.rt.Fatal(err)
	}
	if q.Rejected {
		r.rejects[r.bodies[string(q.Nonce)]]++
	}
	t, _ := resource.ParseType(string(q.URL))
	r.rt.Logf("server gets %s nonce=%q sub=%v drop=%v init=%d %s", t, q.Nonce, namesOf(q.Subscribed()), namesOf(q.Dropped()), q.Initials, request.StatusText(q.Detail, 100))
	r.step(Event{Request: q})
}

func namesOf(list func(func([]byte) bool)) (all []string) {
	for n := range list {
		all = append(all, string(n))
	}
	return all
}

// wants is what the proxy must have in the end.
func (r *run) wants() string {
	want := newProxy(Delta, false)
	for n, m := range r.world.marks[resource.Cluster] {
		want.clusters[n] = m
	}
	for n, m := range r.world.marks[resource.Endpoint] {
		want.endpoints[n] = m
	}
	for n := range r.world.marks[resource.Listener] {
		name := "r" + strings.TrimPrefix(n, "l")
		want.listeners[n] = name
		m, err := r.world.resource(resource.Route, name).Proto()
		if err != nil {
			r.rt.Fatal(err)
		}
		want.routes[name] = m.(*routev3.RouteConfiguration)
	}
	return want.holds()
}

func (r *run) settle() {
	for n := 0; r.happen(func(int) int { return 0 }); n++ {
		if n > 200 {
			r.rt.Fatal("they never come to rest")
		}
	}
}

func TestProxyEndsWithTheLastState(t *testing.T) {
	for _, v := range []Variant{Delta, StateOfTheWorld} {
		for name, how := range map[string]run{"good": {}, "bad": {bad: true}, "late": {late: true}, "late and bad": {late: true, bad: true}} {
			t.Run(v.String()+"/"+name, func(t *testing.T) {
				rapid.Check(t, func(rt *rapid.T) { model(rt, v, how) })
			})
			if v == Delta {
				how.split = true
				t.Run("split/"+name, func(t *testing.T) { rapid.Check(t, func(rt *rapid.T) { model(rt, v, how) }) })
			}
		}
	}
}

func model(rt *rapid.T, v Variant, how run) {
	bad, late := how.bad, how.late
	r := &run{
		rt: rt, split: how.split, shared: NewShared("model"), world: newWorld(), bad: bad, late: late, clock: time.Unix(1, 0), rejects: map[string]int{}, bodies: map[string]string{},
		proxy: newProxy(v, bad && rapid.Bool().Draw(rt, "vague")),
	}
	r.proxy.late = late
	r.proxy.exists = func(name string) bool { _, ok := r.world.marks[resource.Endpoint][name]; return ok }
	r.connect()
	events := 0
	rt.Repeat(map[string]func(*rapid.T){
		"edit": func(*rapid.T) { r.edit(); events++ },
		"happen": func(rt *rapid.T) {
			for range 3 {
				r.happen(func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "which") })
			}
		},
		"settle": func(*rapid.T) { r.settle() },
		"warm": func(*rapid.T) {
			if r.proxy.warming {
				r.proxy.warm()
				return
			}
			r.proxy.warming = r.late && !r.proxy.cdsPaused
		},
		"quiet": func(*rapid.T) {
			if r.proxy.warming {
				r.settle()
				r.checkWhileWarming()
			}
		},
		"reconnect": func(rt *rapid.T) {
			if rapid.IntRange(0, 9).Draw(rt, "really") == 0 {
				r.connect()
				clear(r.rejects) // Rejected content is remembered per stream.
				events += 2
			}
		},
		"forget": func(*rapid.T) { r.shared.Forget() },
	})
	r.proxy.warm()
	r.settle()
	if bad {
		r.removeBadContent()
		r.settle()
	}
	if got, want := r.proxy.holds(), r.wants(); got != want {
		rt.Fatalf("the proxy ended with\n%s\nand should have\n%s", got, want)
	}
	r.hasHeads()
	now := r.core.Status()
	if rev, ok := now.Settled(); r.last != nil && (!ok || rev != r.rev) {
		rt.Fatalf("settled at %d %v, published %d", rev, ok, r.rev)
	}
	// Each of the four types is sent at most a few times per event, and the number of pieces bounds the number of NACKs.
	if limit := 30 * (events + 2); r.sent > limit {
		rt.Fatalf("%d responses for %d events", r.sent, events)
	}
}
