package class

import (
	"cmp"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/view/gateway"
	"github.com/pilotmesh/pilot/internal/xds/cluster"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/patch"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Each layer whose resources can be patched has a twin before it in its stack, which has the patched resources only. A twin is keyed by the
// layer and by the set of patches, so that it is shared wherever both are. Removed resources are hidden by the twin.

// patchedKey names a patched layer.
type patchedKey struct {
	// layer is the key of the layer in its own type. It has no type here, because a twin of its own type for each of the layers makes
	// the compiler write all its queries 30 times.
	layer   any
	patches patchSet
	gateway bool
}

// patchedName names a resource in a patched layer.
type patchedName struct {
	patchedKey
	name omap.Name
}

// patchable is what a twin needs to know of its layer.
type patchable struct {
	typ resource.Type
	// contexts are the directions of its resources at sidecars.
	contexts contextSet
	// inline is true if its listeners may have route configurations in them.
	inline bool
}

// kinds are the objects that patches of the layer's resources are about.
func (p patchable) kinds() kindSet {
	routes := kindsOf(networking.EnvoyFilter_ROUTE_CONFIGURATION, networking.EnvoyFilter_VIRTUAL_HOST, networking.EnvoyFilter_HTTP_ROUTE)
	switch p.typ {
	case resource.Cluster:
		return kindsOf(networking.EnvoyFilter_CLUSTER)
	case resource.Route:
		return routes
	case resource.Bootstrap:
		return kindsOf(networking.EnvoyFilter_BOOTSTRAP)
	case resource.Listener:
		s := kindsOf(networking.EnvoyFilter_LISTENER, networking.EnvoyFilter_LISTENER_FILTER, networking.EnvoyFilter_FILTER_CHAIN,
			networking.EnvoyFilter_NETWORK_FILTER, networking.EnvoyFilter_HTTP_FILTER)
		if p.inline {
			s |= routes
		}
		return s
	}
	return 0
}

// subjectFor are the patches of the layer's resources for a class.
func (p patchable) subjectFor(c proxy.Class) subject {
	if c.Gateway {
		return subject{kinds: p.kinds(), contexts: contextsOf(networking.EnvoyFilter_GATEWAY)}
	}
	return subject{kinds: p.kinds(), contexts: p.contexts}
}

// contextOf is the direction of a resource of the layer.
func (p patchable) contextOf(name string, gateway bool) networking.EnvoyFilter_PatchContext {
	switch {
	case gateway:
		return networking.EnvoyFilter_GATEWAY
	case p.contexts == contextsOf(networking.EnvoyFilter_SIDECAR_INBOUND), name == envoy.InboundPassthroughCluster:
		return networking.EnvoyFilter_SIDECAR_INBOUND
	}
	return networking.EnvoyFilter_SIDECAR_OUTBOUND
}

// twin are the queries for the patched resources of one layer.
type twin struct {
	patchable
	patches *patches
	// all are the resources of the layer; one has them by name.
	all func(r *query.Reader, k any) Map
	one query.Layers[any, omap.Name, *resource.Resource]
	// byHandle lists the resources by what patches select them by; nil for a layer with few resources.
	byHandle query.Groups[any, omap.Name, omap.Name]
	// outcome is a patched resource, with what became of each patch.
	outcome query.Query[patchedName, []*outcome]
	// patched are the patched resources. effects are what became of patches, with the resources concerned.
	patched query.Collection[patchedKey, *resource.Resource]
	effects query.Groups[patchedKey, effect, omap.Name]
	// hosts are the patched virtual hosts of route configurations.
	hosts patchedHosts
}

// layerSource is the layer of a twin.
type layerSource struct {
	name string
	all  func(r *query.Reader, k any) Map
	// collection is the same as a collection; nil if the layer is made by one cell.
	collection query.Collection[any, *resource.Resource]
}

// sourceOf is a layer whose resources belong to a key.
func sourceOf[K comparable](name string, all func(r *query.Reader, k K) Map) layerSource {
	return layerSource{name: name, all: func(r *query.Reader, k any) Map { return all(r, k.(K)) }}
}

// untyped is a collection whose keys have no type.
type untyped[K comparable] struct {
	of query.Collection[K, *resource.Resource]
}

// Get implements query.Collection.
func (u untyped[K]) Get(r *query.Reader, k any) Map { return u.of.Get(r, k.(K)) }

// Observe implements query.Collection.
func (u untyped[K]) Observe(k any, fn func(Map)) (release func()) { return u.of.Observe(k.(K), fn) }

// Element implements query.Collection.
func (u untyped[K]) Element(k any, name omap.Name) (query.ID, bool) { return u.of.Element(k.(K), name) }

// defineTwin defines the queries for the patched resources of a layer.
func defineTwin(g *query.Graph, p *patches, of patchable, source layerSource) *twin {
	name := "patched " + of.typ.Kind() + ", " + source.name
	t := &twin{patchable: of, patches: p, all: source.all}
	t.one = query.DefineLayers(g, name+".source", func(r *query.Reader, k any) []Map { return []Map{source.all(r, k)} })
	if source.collection != nil {
		t.byHandle = query.GroupBy(g, name+".handles", source.collection, func(v *resource.Resource, add func(omap.Name, omap.Name)) {
			if h := handleOf(of.typ, v.Name()); h != "" {
				add(omap.Name(h), omap.Name(v.Name()))
			}
		})
	}
	if of.typ == resource.Route {
		t.hosts = definePatchedHosts(g, t, name)
	}
	t.outcome = query.Define(g, name+".outcome", layer.Equal[*outcome], t.apply)
	key := func(k patchedKey, n omap.Name) patchedName { return patchedName{k, n} }
	outcomes := query.Each(g, name+".outcomes", t.candidates, t.outcome, key)
	t.effects = query.GroupBy(g, name+".effects", outcomes, func(o *outcome, add func(effect, omap.Name)) { o.each(add) })
	t.patched = query.Each(g, name, t.candidates, query.Define(g, name+".resource", layer.Equal[*resource.Resource],
		func(r *query.Reader, k patchedName) ([]*resource.Resource, bool) {
			list, _ := t.outcome.Get(r, k)
			if len(list) == 0 || list[0].resource == nil {
				return nil, false
			}
			return []*resource.Resource{list[0].resource}, true
		}), key)
	return t
}

// handleOf is what patches select a resource by, other than by its name; empty if there is nothing.
func handleOf(t resource.Type, name string) string {
	switch t {
	case resource.Cluster:
		return patch.HostOfCluster(name)
	case resource.Listener:
		return name[strings.LastIndexByte(name, '_')+1:]
	case resource.Route:
		return patch.PortTextOfRoutes(name)
	}
	return ""
}

// candidates are the resources of a layer that patches may be about.
func (t *twin) candidates(r *query.Reader, k patchedKey) Map {
	all := t.all(r, k.layer)
	if t.byHandle == nil {
		return all
	}
	names := map[omap.Name]bool{}
	for _, p := range t.patches.list(r, k.patches) {
		by := p.Selects()
		switch {
		case by.Name != "":
			names[omap.Name(by.Name)] = true
		case by.Handle == "":
			return all
		default:
			for _, handle := range handlesFor(k, by.Handle) {
				for n := range t.byHandle.Group(r, k.layer, omap.Name(handle)).All() {
					names[n] = true
				}
			}
		}
	}
	changes := make([]omap.Change[omap.Name, *resource.Resource], 0, len(names))
	for n := range names {
		if v, ok := all.Get(n); ok {
			changes = append(changes, omap.Put(n, v))
		}
	}
	return omap.With(Map{}, changes...)
}

// handlesFor returns the handles of the resources that a patch with a handle may be about: the route configurations of gateways have the ports of
// gateways in their names, and patches have the ports of the Services in front of them.
func handlesFor(k patchedKey, handle string) []string {
	list := []string{handle}
	if of, ok := k.layer.(gateway.Proxies); ok {
		for t := range of.Targets.All() {
			if strconv.FormatUint(uint64(t.Port), 10) == handle {
				list = append(list, strconv.FormatUint(uint64(t.Target), 10))
			}
		}
	}
	return list
}

// apply applies patches to a resource.
func (t *twin) apply(r *query.Reader, k patchedName) ([]*outcome, bool) {
	was, ok := t.one.Get(r, k.layer, k.name)
	if !ok || was.Hidden() {
		return nil, false
	}
	o := &outcome{name: string(k.name)}
	list, at := t.patches.list(r, k.patches), t.placeOf(k)
	if t.typ == resource.Route {
		t.hosts.apply(r, k, was, o)
		return []*outcome{o}, o.any()
	}
	m, err := was.Proto()
	if err != nil {
		panic(err) // the control plane has encoded it
	}
	switch m := m.(type) {
	case *clusterv3.Cluster:
		take(o, t.typ, patch.Cluster(m, at, list))
	case *listenerv3.Listener:
		take(o, t.typ, patch.Listener(m, at, list))
	}
	return []*outcome{o}, o.any()
}

// take takes over the result of patches.
func take[M proto.Message](o *outcome, t resource.Type, result patch.Result[M]) {
	o.patches = result.Outcomes
	switch {
	case result.Removed:
		o.resource = resource.Hide(o.name)
	case result.Changed:
		o.resource = resource.New(t, o.name, result.Message)
	}
}

// placeOf says where a resource is sent.
func (t *twin) placeOf(k patchedName) patch.Place {
	at := patch.Place{Context: t.contextOf(string(k.name), k.gateway)}
	if in, ok := k.layer.(cluster.InboundKey); ok {
		at.Hosts = func(name string) (hosts []string) {
			for p := range in.Ports.All() {
				if envoy.InboundCluster(p.Number) == name && p.Host != "" {
					hosts = append(hosts, p.Host)
				}
			}
			return hosts
		}
	}
	if of, ok := k.layer.(gateway.Proxies); ok {
		at.ServicePorts = func(port uint32) (list []uint32) {
			for t := range of.Targets.All() {
				if t.Target == port {
					list = append(list, t.Port)
				}
			}
			return list
		}
	}
	return at
}

// outcome is a patched resource, with what became of patches in it.
type outcome struct {
	name string
	// resource is the patched resource; nil if no patch changed it.
	resource *resource.Resource
	patches  []patch.Outcome
}

// any reports whether there is something to report.
func (o *outcome) any() bool { return o.resource != nil || len(o.patches) > 0 }

// OutputName implements query.Output.
func (o *outcome) OutputName() string { return o.name }

// Size implements omap.Value.
func (o *outcome) Size() int { return 0 }

// ContentHash implements omap.Value.
func (o *outcome) ContentHash() omap.Hash {
	var b []byte
	if o.resource != nil {
		h := o.resource.ContentHash()
		b = append(b, h[:]...)
	}
	o.each(func(e effect, _ omap.Name) { b = append(e.AppendTo(b), 0) })
	return omap.Sum(b)
}

// each yields the effects of patches on the resource.
func (o *outcome) each(add func(effect, omap.Name)) {
	for _, p := range o.patches {
		add(effect{p.Patch, p.Failure, p.Denied}, omap.Name(o.name))
	}
}

// effect is what became of a patch: it was applied, or it was left out because of a failure.
type effect struct {
	patch   patch.Ref
	failure string
	denied  bool
}

// Compare orders by patch, then by failure.
func (e effect) Compare(o effect) int {
	denied := 0
	if e.denied != o.denied {
		denied = 1
		if o.denied {
			denied = -1
		}
	}
	return cmp.Or(e.patch.Compare(o.patch), strings.Compare(e.failure, o.failure), denied)
}

// AppendTo appends an unambiguous form.
func (e effect) AppendTo(b []byte) []byte {
	b = e.patch.AppendTo(b)
	if e.denied {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	return append(b, e.failure...)
}

// layerFor is the twin as a layer of a stack.
func (t *twin) layerFor(name string, shared Sharing, key func(r *query.Reader, c proxy.Class) (any, bool)) stackLayer {
	at := func(r *query.Reader, c proxy.Class) (k patchedKey, ok bool) {
		set := t.patches.of(r, c, t.subjectFor(c))
		if set.Empty() {
			return k, false
		}
		k.layer, ok = key(r, c)
		k.patches, k.gateway = set, c.Gateway
		return k, ok
	}
	l := stackLayer{
		name: "patched, " + name, sharedBy: shared, contexts: t.contexts,
		layer: func(r *query.Reader, c proxy.Class) (Map, bool) {
			k, ok := at(r, c)
			if !ok {
				return Map{}, false
			}
			return t.patched.Get(r, k), true
		},
		cell: func(r *query.Reader, c proxy.Class, name omap.Name) (query.ID, bool) {
			k, ok := at(r, c)
			if !ok {
				return 0, false
			}
			return t.patched.Element(k, name)
		},
		effects: func(r *query.Reader, c proxy.Class) (all omap.Map[effect, omap.Unit]) {
			if k, ok := at(r, c); ok {
				all = t.effects.Keys(r, k)
			}
			return all
		},
		difference: func(r *query.Reader, c proxy.Class, filter api.Key) (list []PatchEffect) {
			if k, ok := at(r, c); ok {
				list = t.difference(r, k, filter)
			}
			return list
		},
	}
	if t.typ == resource.Route {
		l.host = func(r *query.Reader, c proxy.Class, name, piece omap.Name) (query.ID, bool) {
			k, ok := at(r, c)
			if !ok {
				return 0, false
			}
			if id, ok := t.hosts.patched.Element(patchedName{k, name}, piece); ok {
				return id, true
			}
			// A virtual host that a patch adds belongs to the route configuration.
			if was, _ := t.one.Get(r, k.layer, name); was != nil && was.Pieces().Has(piece) {
				return 0, false
			}
			if now, ok := t.patched.Get(r, k).Get(name); !ok || !now.Pieces().Has(piece) {
				return 0, false
			}
			return t.patched.Element(k, name)
		}
	}
	return l
}
