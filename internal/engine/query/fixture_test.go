package query

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

// fixture is a small mesh that uses every feature of the kernel: services with endpoints, rules indexed by host, namespaces
// with an overlay over a base layer, an index of VIPs over the outputs of a collection, and classes that are added and removed.
type fixture struct {
	db        *store.DB
	services  store.Table[string, service]
	endpoints store.Table[string, string]
	rules     store.Table[string, rule]
	settings  store.Table[string, string]
	byLayer   store.Index[string, omap.Name]
	byHost    store.Index[string, omap.Name]
	touching  store.Index[string, omap.Name]

	g        *Graph
	merged   Query[view, string]
	claims   Collection[string, text]
	byVIP    *groups[string, omap.Name, omap.Name]
	winner   Query[view, string]
	clusters Collection[string, text]
	classes  Query[string, state]
	problems *collection[string, text]
}

type service struct {
	Layer, VIP string // Layer "" is the base layer, which all namespaces see
	Port       int
}

type rule struct {
	Host, Layer, Policy string
}

type view struct{ Host, Layer string }

// text is an output. Its body represents the encoding of a resource.
type text struct{ name, body string }

func (t text) ContentHash() omap.Hash { return omap.Sum([]byte(t.name), []byte{0}, []byte(t.body)) }
func (t text) Size() int              { return len(t.body) }
func (t text) OutputName() string     { return t.name }

// state is a class state: two layers, problems, and two results of an index.
type state struct {
	base, overlay omap.Map[omap.Name, text]
	problems      omap.Map[omap.Name, text]
	claimed, vips omap.Map[omap.Name, omap.Unit]
}

func (s state) equal(o state) bool { return s.hash() == o.hash() }

func (s state) hash() omap.Hash {
	b, o, p, c, v := s.base.Hash(), s.overlay.Hash(), s.problems.Hash(), s.claimed.Hash(), s.vips.Hash()
	return omap.Sum(b[:], o[:], p[:], c[:], v[:])
}

func (s state) String() string {
	var b strings.Builder
	for _, m := range []omap.Map[omap.Name, text]{s.base, s.overlay, s.problems} {
		for k, v := range m.All() {
			fmt.Fprintf(&b, "%s=%s ", k, v.body)
		}
		b.WriteString("| ")
	}
	for _, m := range []omap.Map[omap.Name, omap.Unit]{s.claimed, s.vips} {
		for k := range m.All() {
			fmt.Fprintf(&b, "%s ", k)
		}
		b.WriteString("| ")
	}
	return b.String()
}

func same[T comparable](a, b T) bool { return a == b }

func sameTexts(a, b []text) bool { return slices.Equal(a, b) }

func newFixture(o Options) *fixture {
	w := &fixture{db: store.New()}
	w.services = store.NewTable[string](w.db, "services", same[service])
	w.endpoints = store.NewTable[string](w.db, "endpoints", same[string])
	w.rules = store.NewTable[string](w.db, "rules", same[rule])
	w.settings = store.NewTable[string](w.db, "settings", same[string])
	w.byLayer = store.NewIndex(w.services, "services by layer", func(h string, s service, add func(string, omap.Name)) { add(s.Layer, omap.Name(h)) })
	w.byHost = store.NewIndex(w.rules, "rules by host", func(n string, r rule, add func(string, omap.Name)) { add(r.Host, omap.Name(r.Layer+"/"+n)) })
	w.touching = store.NewIndex(w.rules, "hosts touched", func(_ string, r rule, add func(string, omap.Name)) {
		if r.Layer != "" {
			add(r.Layer, omap.Name(r.Host))
		}
	})
	w.g = New(w.db, o)
	w.define()
	return w
}

func (w *fixture) define() {
	policy := w.definePolicy()
	w.defineServices(policy)
	w.defineClusters()
	w.defineClasses(policy)
}

// definePolicy defines the policy that rules set for a host.
func (w *fixture) definePolicy() Query[view, string] {
	return Define(w.g, "policy", same[string], func(r *Reader, v view) (string, bool) {
		found := ""
		for m := range w.byHost.Group(r, v.Host).All() {
			layer, name, _ := strings.Cut(string(m), "/")
			if layer != "" && layer != v.Layer {
				continue
			}
			row, _ := w.rules.Get(r, name)
			if row.Policy == "panic" {
				panic("a rule that breaks its query")
			}
			found += row.Policy
		}
		return found, found != ""
	})
}

// defineServices defines the queries about services, and which service wins an address.
func (w *fixture) defineServices(policy Query[view, string]) {
	g := w.g
	w.merged = Define(g, "merged", same[string], func(r *Reader, v view) (string, bool) {
		s, ok := w.services.Get(r, v.Host)
		if !ok || s.Layer != "" && s.Layer != v.Layer {
			return "", false
		}
		p, _ := policy.Get(r, v)
		return fmt.Sprintf("%s:%d[%s]", s.VIP, s.Port, p), true
	})
	claim := Define(g, "claim", sameTexts, func(r *Reader, v view) ([]text, bool) {
		s, ok := w.services.Get(r, v.Host)
		return []text{{v.Host, fmt.Sprintf("%s:%d", s.VIP, s.Port)}}, ok && s.VIP != ""
	})
	w.claims = Each(g, "claims", func(r *Reader, layer string) omap.Map[omap.Name, omap.Unit] { return w.byLayer.Group(r, layer) },
		claim, func(layer string, h omap.Name) view { return view{string(h), layer} })
	w.byVIP = GroupBy(g, "by VIP", w.claims, func(t text, add func(omap.Name, omap.Name)) {
		vip, _, _ := strings.Cut(t.body, ":")
		add(omap.Name(vip), omap.Name(t.name))
	}).(*groups[string, omap.Name, omap.Name])
	w.winner = Define(g, "winner", same[string], func(r *Reader, v view) (string, bool) {
		for h := range w.byVIP.Group(r, v.Layer, omap.Name(v.Host)).All() {
			return string(h), true
		}
		return "", false
	})
}

// defineClusters defines the clusters of services, by layer.
func (w *fixture) defineClusters() {
	g := w.g
	cluster := Define(g, "cluster", sameTexts, func(r *Reader, v view) ([]text, bool) {
		m, ok := w.merged.Get(r, v)
		if !ok {
			return nil, false
		}
		s, _ := w.services.Get(r, v.Host)
		e, _ := w.endpoints.Get(r, v.Host)
		win, _ := w.winner.Get(r, view{s.VIP, v.Layer})
		setting, _ := w.settings.Get(r, "every cluster")
		out := []text{{v.Host, m + e + setting}}
		for i := range s.Port % 3 {
			out = append(out, text{fmt.Sprintf("%s|%d", v.Host, i), win})
		}
		return out, true
	})
	w.clusters = Each(g, "clusters", func(r *Reader, layer string) omap.Map[omap.Name, omap.Unit] {
		if layer == "" {
			return w.byLayer.Group(r, "")
		}
		both := w.byLayer.Group(r, layer)
		for h := range w.touching.Group(r, layer).All() {
			both = omap.With(both, omap.Put(h, omap.Unit{}))
		}
		return both
	}, cluster, func(layer string, h omap.Name) view { return view{string(h), layer} })
}

// defineClasses defines the problems of services, and the states of classes, which read everything else.
func (w *fixture) defineClasses(policy Query[view, string]) {
	g := w.g
	check := Define(g, "check", sameTexts, func(r *Reader, v view) ([]text, bool) {
		if _, ok := policy.Get(r, v); ok {
			return nil, false
		}
		return []text{{v.Host, "has no rule"}}, true
	})
	w.problems = Each(g, "problems", func(r *Reader, layer string) omap.Map[omap.Name, omap.Unit] { return w.byLayer.Group(r, layer) },
		check, func(layer string, h omap.Name) view { return view{string(h), layer} }).(*collection[string, text])
	w.classes = Define(g, "class", state.equal, func(r *Reader, ns string) (state, bool) {
		s := state{base: w.clusters.Get(r, ""), overlay: w.clusters.Get(r, ns), vips: w.byVIP.Keys(r, "")}
		if !s.overlay.Has("quiet") {
			s.claimed = w.byVIP.Group(r, "", "10.0.0.1")
			s.problems = w.problems.Get(r, "")
		}
		return s, true
	})
}

// fill writes n services in the base layer with one endpoint each, a rule for every tenth, and one rule per namespace.
func (w *fixture) fill(tx *store.Txn, n, namespaces int) {
	for i := range n {
		h := fmt.Sprintf("s%d", i)
		w.services.Set(tx, h, service{VIP: fmt.Sprintf("10.0.%d.%d", i/250, i%250), Port: i % 4})
		w.endpoints.Set(tx, h, "e")
		if i%10 == 0 {
			w.rules.Set(tx, "r"+h, rule{Host: h, Policy: "p"})
		}
	}
	for i := range namespaces {
		w.rules.Set(tx, fmt.Sprintf("own%d", i), rule{Host: fmt.Sprintf("s%d", i), Layer: fmt.Sprintf("n%d", i), Policy: "own"})
	}
}
