package patching

import (
	"bytes"
	"fmt"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/rules/envoy"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/xds/patch"
)

// Bounds of the search for the problems of one EnvoyFilter.
const (
	maxFilterClasses = 30
	maxLeftOut       = 3
)

// connectedClass is the class of a connected proxy, for collections.
type connectedClass struct {
	id    string
	class proxy.Class
	hash  omap.Hash
}

// OutputName implements query.Output.
func (c connectedClass) OutputName() string { return c.id }

// ContentHash implements omap.Value.
func (c connectedClass) ContentHash() omap.Hash { return c.hash }

// Size implements omap.Value.
func (connectedClass) Size() int { return 0 }

// classMember is a class as a member of a group.
type classMember struct {
	class proxy.Class
	hash  omap.Hash
}

// Compare orders by hash.
func (m classMember) Compare(o classMember) int { return bytes.Compare(m.hash[:], o.hash[:]) }

// AppendTo appends an unambiguous form.
func (m classMember) AppendTo(b []byte) []byte { return append(b, m.hash[:]...) }

// everywhere is the group of the classes of all namespaces.
const everywhere = omap.Name("")

// Problems are the problems of EnvoyFilters: patches that were left out, that match nothing, or that take protection away. Nothing of them exists
// as long as there is no EnvoyFilter.
type Problems struct {
	// All are the problems.
	All     query.Collection[service.All, api.Problem]
	patches *Queries
	// classes are the classes of connected proxies, by namespace and everywhere.
	classes query.Groups[service.All, omap.Name, classMember]
	// effects are the effects of the patches that apply to a class.
	effects query.Query[proxy.Class, omap.Map[Effect, omap.Unit]]
}

// DefineProblems defines the problems. class yields the classes of connected proxies by node id, and effects the effects of patches in all layers of a
// class.
func DefineProblems(g *query.Graph, p *Queries, class query.Query[string, proxy.Class], effects func(r *query.Reader, c proxy.Class) omap.Map[Effect, omap.Unit]) *Problems {
	f := &Problems{patches: p}
	same := func(a, b []connectedClass) bool {
		return slices.EqualFunc(a, b, func(a, b connectedClass) bool { return a.hash == b.hash })
	}
	of := query.Define(g, "connectedClass", same, func(r *query.Reader, id omap.Name) ([]connectedClass, bool) {
		c, ok := class.Get(r, string(id))
		return []connectedClass{{string(id), c, c.Hash()}}, ok
	})
	all := query.Each(g, "connectedClasses", func(r *query.Reader, _ service.All) omap.Map[omap.Name, omap.Unit] {
		return p.tables.AllProxies.Group(r, struct{}{})
	}, of, func(_ service.All, id omap.Name) omap.Name { return id })
	f.classes = query.GroupBy(g, "classesIn", all, func(c connectedClass, add func(omap.Name, classMember)) {
		add(everywhere, classMember{c.class, c.hash})
		add(omap.Name(c.class.Namespace), classMember{c.class, c.hash})
	})
	f.effects = query.Define(g, "patchEffects", omap.Map[Effect, omap.Unit].Equal, func(r *query.Reader, c proxy.Class) (omap.Map[Effect, omap.Unit], bool) {
		return effects(r, c), true
	})
	f.All = query.Each(g, "filterProblems", func(r *query.Reader, _ service.All) omap.Map[api.Key, omap.Unit] {
		return p.tables.Kinds.Group(r, api.KindEnvoyFilter)
	}, query.Define(g, "filterProblem", slices.Equal[[]api.Problem], f.check), func(_ service.All, k api.Key) api.Key { return k })
	return f
}

// filterFindings are the problems of one EnvoyFilter.
type filterFindings struct {
	key  api.Key
	list []api.Problem
}

func (f *filterFindings) add(p api.Problem) {
	p.Object = f.key
	f.list = append(f.list, p)
}

// check finds the problems of an EnvoyFilter.
func (f *Problems) check(r *query.Reader, k api.Key) ([]api.Problem, bool) {
	row, ok := f.patches.tables.Filters.Rows.Get(r, k)
	if !ok {
		return nil, false
	}
	found := &filterFindings{key: k}
	classes := f.ClassesOf(r, k)
	effects := make([]omap.Map[Effect, omap.Unit], len(classes))
	for i, c := range classes {
		effects[i], _ = f.effects.Get(r, c)
	}
	patches, _ := f.patches.decoded.Get(r, k)
	outlines := outlinesOf(row)
	for i, p := range patches {
		if i >= len(outlines) {
			break // the patches are the last good ones, because decoding has failed
		}
		if p.RemovesAccess() {
			found.add(api.Problem{Severity: api.Warning, Code: "patch-removes-access", Field: p.Field(),
				Reason: fmt.Sprintf("takes away %s, which decides about access: where it is applied, what policies deny may be allowed", p.Anchor())})
		}
		if p.Flaw != "" {
			found.add(api.Problem{Severity: api.Error, Code: "patch-left-out", Field: p.Field(), Reason: p.Flaw + ": the patch is left out everywhere"})
			continue
		}
		found.applied(p, outlines[i], classes, effects)
	}
	return found.list, len(found.list) > 0
}

// ClassesOf are classes of connected proxies to which an EnvoyFilter applies, some if there are many.
func (f *Problems) ClassesOf(r *query.Reader, k api.Key) (list []proxy.Class) {
	t := f.patches.tables
	group := omap.Name(k.Namespace)
	if k.Namespace == t.RootNamespace(r) {
		group = everywhere
	}
	forAll := t.Filters.ForAll.Group(r, k.Namespace).Has(k)
	for m := range f.classes.Group(r, service.All{}, group).All() {
		if forAll || m.class.Filters.Has(k) {
			if list = append(list, m.class); len(list) == maxFilterClasses {
				break
			}
		}
	}
	return list
}

// applied adds the problems of a patch in the classes to which it applies.
func (f *filterFindings) applied(p *patch.Patch, o outline, classes []proxy.Class, effects []omap.Map[Effect, omap.Unit]) {
	concerned, matched := 0, false
	var left []Effect
	for i, c := range classes {
		if p.ApplyTo == networking.EnvoyFilter_EXTENSION_CONFIG || !o.concerns(c) {
			continue
		}
		concerned++
		for e := range omap.From(effects[i], Effect{patch: p.Ref}) {
			if e.patch != p.Ref {
				break
			}
			matched = true
			if e.failure != "" && !slices.Contains(left, e) && len(left) < maxLeftOut {
				left = append(left, e)
			}
		}
	}
	for _, e := range left {
		became := "the patch is left out there, and everything else is served"
		if e.denied {
			became = "the patch is about access, so connections and requests there are denied until it is corrected"
		}
		f.add(api.Problem{Severity: api.Error, Code: "patch-left-out", Field: p.Field(), Reason: e.failure + ": " + became})
	}
	if concerned == 0 || matched {
		return
	}
	why := "correct the match, or remove the patch"
	if envoy.ForeignFilter(p.Anchor()) {
		why = fmt.Sprintf("only Istio's own proxy has the filter %s; place the patch by another one, such as envoy.filters.http.router", p.Anchor())
	}
	f.add(api.Problem{Severity: api.Warning, Code: "patch-no-match", Field: p.Field() + ".match",
		Reason: fmt.Sprintf("matches nothing in the %s of the connected proxies to which the object applies: %s", p.ApplyTo, why)})
}

// concerns reports whether a patch can be about proxies of a class, which its object applies to.
func (o outline) concerns(c proxy.Class) bool {
	for condition := range o.conditions.All() {
		if !c.Conditions.Has(condition) {
			return false
		}
	}
	gateway := ContextsOf(networking.EnvoyFilter_GATEWAY)
	if c.Gateway {
		return o.contexts&gateway != 0
	}
	return o.contexts&^gateway != 0
}
