package scope_test

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

type views struct {
	tables *state.Tables
	graph  *query.Graph
	s      *service.Queries
	tr     *traffic.Queries
	sc     *scope.Queries
}

func newViews() *views {
	v := &views{tables: state.New(state.Options{})}
	v.graph = query.New(v.tables.DB, query.Options{Strict: true})
	v.s = service.Define(v.graph, v.tables)
	v.tr = traffic.Define(v.graph, v.tables, v.s)
	v.sc = scope.Define(v.graph, v.tables, v.s, v.tr)
	return v
}

// Sharing is right: where a host is said to look the same to a namespace as in the base view, evaluating it for that
// namespace gives the same result; and where it is said to look different, the overlay of the namespace has it.
func TestLayersAreWhatNamespacesSee(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		v := newViews()
		random := meshtest.Random{T: rt}
		b := source.Batch{Source: "test"}
		hosts := map[string]bool{}
		for range rapid.IntRange(1, 12).Draw(rt, "objects") {
			o := random.Object()
			b.Events = append(b.Events, source.Event{Key: o.Key, Object: o})
		}
		v.graph.Commit(func(tx *store.Txn) { v.tables.Apply(tx, b) })
		for _, c := range v.tables.Claims.All() {
			for _, h := range c.Hosts {
				hosts[h] = true
			}
		}
		for host := range hosts {
			for _, ns := range append(meshtest.Namespaces(), "elsewhere") {
				v.check(rt, host, ns)
			}
		}
	})
}

func (v *views) check(rt *rapid.T, host, ns string) {
	r := v.graph.Naive()
	if v.sc.Viewer(r, host, ns) == ns {
		_, all := v.s.Footprint(r, service.HostView{Host: host})
		_, own := v.s.Footprint(r, service.HostView{Host: host, Viewer: ns})
		if (all || own) && !v.sc.Hosts(r, scope.Set{Namespace: ns}).Has(omap.Name(host)) {
			rt.Errorf("%q looks different from namespace %q, but is not in its overlay", host, ns)
		}
		return
	}
	type seen struct {
		service *service.Service
		policy  *traffic.Policy
		routes  []*state.VirtualService
	}
	look := func(layer string) (s seen) {
		s.service, _ = v.s.Service.Get(r, service.HostView{Host: host, Viewer: layer})
		s.policy, _ = v.tr.Policy.Get(r, service.HostView{Host: host, Viewer: layer})
		s.routes, _ = v.tr.Routes.Get(r, service.HostView{Host: host, Viewer: layer})
		return s
	}
	if all, own := look(""), look(ns); !reflect.DeepEqual(all, own) {
		rt.Errorf("%q is said to look the same from namespace %q:\nall %+v\nown %+v", host, ns, all, own)
	}
	labels := map[string]string{"v": "1", "app": "x"}
	named := v.sc.ByAudience.HTTPPorts.Keys(r, scope.AudienceOf(proxy.Class{Namespace: ns, Labels: intern.Of(mesh.SortedLabels(labels)...)}))
	for _, vs := range look("").routes {
		for _, rule := range vs.Spec.Http {
			for _, m := range rule.Match {
				if m.SourceNamespace == ns {
					rt.Errorf("%q has a rule for namespace %q in %v, and is said to look the same from there", host, ns, vs.Object)
				}
				if f, ok := v.s.Footprint(r, service.HostView{Host: host}); ok && len(f.HTTPPorts) > 0 &&
					len(m.SourceLabels) > 0 && mesh.HasAll(mesh.LabelsOf(labels), m.SourceLabels) && named.Len() == 0 {
					rt.Errorf("%q has a rule for labels %v in %v, and nothing is looked at for these", host, m.SourceLabels, vs.Object)
				}
			}
		}
	}
}
