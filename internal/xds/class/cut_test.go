package class_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// TestCutBuildsAreCold compares the real queries with the naive evaluator under the conditions of production: first
// builds run in small portions and slices, and commits of all kinds come in between.
func TestCutBuildsAreCold(t *testing.T) {
	for _, workers := range []int{1, 4} {
		t.Run(fmt.Sprintf("workers=%d", workers), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) { newCutHistory(rt, workers).run() })
		})
	}
}

// cutHistory is a history of a mesh in which nothing is finished before the next change.
type cutHistory struct {
	*meshtest.World
	rt     *rapid.T
	random meshtest.Random
	// home is the namespace in which most changes happen.
	home    string
	there   map[api.Key]*api.Object
	proxies map[string]*cutProxy
}

// cutProxy is a connected proxy. Its class is observed as the loop does it, and may change.
type cutProxy struct {
	class   proxy.Class
	moved   bool
	release func()
}

func newCutHistory(rt *rapid.T, workers int) *cutHistory {
	o := query.Options{Workers: workers, ParallelFrom: rapid.IntRange(1, 2).Draw(rt, "parallel from"), Portion: rapid.IntRange(1, 5).Draw(rt, "portion")}
	return &cutHistory{
		World: meshtest.NewWith(rt, meshtest.Options{Query: o, Cut: true}), rt: rt, random: meshtest.Random{T: rt},
		home:  rapid.SampledFrom(meshtest.Namespaces()).Draw(rt, "home"),
		there: map[api.Key]*api.Object{}, proxies: map[string]*cutProxy{},
	}
}

func (h *cutHistory) run() {
	h.put(rapid.IntRange(1, 8).Draw(h.rt, "objects"), h.random.Crowd()...)
	if rapid.Bool().Draw(h.rt, "scoped") {
		h.scope()
	}
	h.join()
	for range rapid.IntRange(1, 15).Draw(h.rt, "steps") {
		h.step()
		h.build(rapid.SampledFrom([]int{0, 1, 2, 3, 10, 30, 100}).Draw(h.rt, "slices"))
		switch rapid.IntRange(0, 7).Draw(h.rt, "then") {
		case 0:
			h.settle()
			h.check()
		case 1, 2:
			h.check()
		}
	}
	h.settle()
	h.check()
	for id := range h.proxies {
		h.leave(id)
	}
	if left := h.Stop(); len(left) > 0 {
		h.rt.Fatalf("cells are left after all roots are gone: %v", left)
	}
}

func (h *cutHistory) step() {
	switch rapid.SampledFrom([]string{"join", "leave", "free", "put", "edit", "edit", "scope", "scope", "delete", "namespace", "mesh"}).Draw(h.rt, "step") {
	case "join":
		h.join()
	case "leave":
		if len(h.proxies) > 0 {
			h.leave(rapid.SampledFrom(slices.Sorted(maps.Keys(h.proxies))).Draw(h.rt, "leaves"))
		}
	case "free":
		h.free()
	case "put":
		h.put(rapid.IntRange(1, 3).Draw(h.rt, "objects"))
	case "edit":
		h.edit()
	case "scope":
		h.scope()
	case "delete":
		h.remove(func(api.Key) bool { return rapid.IntRange(0, 2).Draw(h.rt, "gone") == 0 })
	case "namespace":
		h.recreate()
	case "mesh":
		h.Configure(h.random.Mesh())
	}
}

// join connects a proxy and observes its class.
func (h *cutHistory) join() {
	ns := h.namespace()
	id := fmt.Sprintf("sidecar~10.1.0.%d~w-%d.%s~%s.svc.cluster.local", rapid.IntRange(1, 4).Draw(h.rt, "ip"), rapid.IntRange(0, 2).Draw(h.rt, "number"), ns, ns)
	p := meshtest.Node(h.rt, id, fmt.Sprintf(`{"LABELS":{"v":%q,"istio-locality":%q},"INTERCEPTION_MODE":%q,"DNS_CAPTURE":%q}`,
		rapid.SampledFrom([]string{"1", "2"}).Draw(h.rt, "label"), rapid.SampledFrom(meshtest.Localities()).Draw(h.rt, "at"),
		rapid.SampledFrom([]string{"REDIRECT", "REDIRECT", "NONE"}).Draw(h.rt, "mode"), rapid.SampledFrom([]string{"", "true"}).Draw(h.rt, "dns")))
	h.Commit(func(tx *store.Txn) { h.Tables.Proxies.Set(tx, id, p) })
	if h.proxies[id] != nil { // the proxy reports another node
		return
	}
	c := &cutProxy{}
	c.release = h.Queries.Class.Observe(id, func(to proxy.Class, ok bool) {
		if ok {
			c.class, c.moved = to, true
		}
	})
	h.proxies[id] = c
	for c.class == (proxy.Class{}) {
		h.build(1)
	}
}

func (h *cutHistory) leave(id string) {
	h.proxies[id].release()
	delete(h.proxies, id)
	h.Commit(func(tx *store.Txn) { h.Tables.Proxies.Delete(tx, id) })
}

// handOut watches the classes that proxies have moved to.
func (h *cutHistory) handOut() {
	for moved := true; moved; {
		moved = false
		for _, id := range slices.Sorted(maps.Keys(h.proxies)) {
			if p := h.proxies[id]; p.moved {
				p.moved, moved = false, true
				h.Watch(p.class)
			}
		}
	}
}

// free stops watching the classes that no proxy is in.
func (h *cutHistory) free() {
	for c := range h.States() {
		used := false
		for _, p := range h.proxies {
			used = used || p.class == c
		}
		if !used {
			h.Leave(c)
		}
	}
}

func (h *cutHistory) put(n int, with ...*api.Object) {
	for range n {
		with = append(with, h.random.Object())
	}
	for _, o := range with {
		h.there[o.Key] = o
	}
	h.Put(with...)
}

func (h *cutHistory) edit() {
	if len(h.there) == 0 {
		return
	}
	var batch []*api.Object
	for range rapid.IntRange(1, 3).Draw(h.rt, "edits") {
		o := h.random.Edited(h.there[rapid.SampledFrom(h.keys()).Draw(h.rt, "edited")])
		h.there[o.Key] = o
		batch = append(batch, o)
	}
	h.Put(batch...)
}

func (h *cutHistory) keys() []api.Key { return slices.SortedFunc(maps.Keys(h.there), api.Key.Compare) }

func (h *cutHistory) remove(gone func(api.Key) bool) (were []*api.Object) {
	var keys []api.Key
	for _, k := range h.keys() {
		if gone(k) {
			keys, were = append(keys, k), append(were, h.there[k])
			delete(h.there, k)
		}
	}
	h.Delete(keys...)
	return were
}

// scope creates a Sidecar in a namespace, or changes its imports.
func (h *cutHistory) scope() {
	o := h.random.Scope(h.namespace())
	h.there[o.Key] = o
	h.Put(o)
}

// build continues the first builds: some slices of a few cells, or of as many as in production.
func (h *cutHistory) build(slices int) {
	cells := rapid.SampledFrom([]int{1, 1, 1, 2, 3, 5, 25}).Draw(h.rt, "cells")
	for range slices {
		h.Graph.Slice(cells)
		h.handOut()
	}
}

// namespace draws a namespace, most often home.
func (h *cutHistory) namespace() string {
	return rapid.SampledFrom(append([]string{h.home, h.home, h.home, h.home}, meshtest.Namespaces()...)).Draw(h.rt, "namespace")
}

// recreate deletes everything in a namespace and creates it again, with some work in between.
func (h *cutHistory) recreate() {
	ns := h.namespace()
	were := h.remove(func(k api.Key) bool { return k.Namespace == ns })
	h.build(rapid.IntRange(0, 3).Draw(h.rt, "slices"))
	h.check()
	for _, o := range were {
		h.there[o.Key] = o
	}
	h.Put(were...)
}

func (h *cutHistory) settle() {
	for more := true; more; {
		h.Settle(rapid.IntRange(1, 25).Draw(h.rt, "settling"))
		h.handOut()
		more = h.Graph.Pending()
	}
	for id, p := range h.proxies {
		if c, _ := h.Queries.Class.Get(h.Graph.Naive(), id); c != p.class {
			h.rt.Errorf("proxy %s: class %+v, the naive evaluator has %+v", id, p.class, c)
		}
		if h.State(p.class) == nil {
			h.rt.Errorf("proxy %s has no state", id)
		}
	}
}

// check compares the published state, and the state that Glance returns, with the naive evaluator.
func (h *cutHistory) check() {
	h.Check()
	for _, p := range h.proxies {
		cold := h.Cold(p.class)
		got, _ := h.Queries.State.Get(h.Graph.Glance(), p.class)
		for typ := range resource.Type(resource.Types) {
			for d := range resource.Diff(cold.Layers(typ), got.Layers(typ)) {
				h.rt.Errorf("%v %q at a glance: incremental and naive evaluation differ", typ, d.Name)
			}
		}
	}
	if h.rt.Failed() {
		h.rt.FailNow()
	}
}
