package patching

import (
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	networking "istio.io/api/networking/v1alpha3"

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

// Key names a patched layer.
type Key struct {
	// layer is the key of the layer in its own type. It has no type here, because a twin of its own type for each of the layers makes
	// the compiler write all its queries 30 times.
	layer   any
	patches patchSet
	gateway bool
}

// patchedName names a resource in a patched layer.
type patchedName struct {
	Key
	name omap.Name
}

// Layer is what a twin needs to know of its layer.
type Layer struct {
	Type resource.Type
	// Contexts are the directions of its resources at sidecars.
	Contexts Contexts
	// Inline is true if its listeners may have route configurations in them.
	Inline bool
}

// kinds are the objects that patches of the layer's resources are about.
func (p Layer) kinds() kindSet {
	routes := kindsOf(networking.EnvoyFilter_ROUTE_CONFIGURATION, networking.EnvoyFilter_VIRTUAL_HOST, networking.EnvoyFilter_HTTP_ROUTE)
	switch p.Type {
	case resource.Cluster:
		return kindsOf(networking.EnvoyFilter_CLUSTER)
	case resource.Route:
		return routes
	case resource.Bootstrap:
		return kindsOf(networking.EnvoyFilter_BOOTSTRAP)
	case resource.Listener:
		s := kindsOf(networking.EnvoyFilter_LISTENER, networking.EnvoyFilter_LISTENER_FILTER, networking.EnvoyFilter_FILTER_CHAIN,
			networking.EnvoyFilter_NETWORK_FILTER, networking.EnvoyFilter_HTTP_FILTER)
		if p.Inline {
			s |= routes
		}
		return s
	}
	return 0
}

// subjectFor are the patches of the layer's resources for a class.
func (p Layer) subjectFor(c proxy.Class) subject {
	if c.Gateway {
		return subject{kinds: p.kinds(), contexts: ContextsOf(networking.EnvoyFilter_GATEWAY)}
	}
	return subject{kinds: p.kinds(), contexts: p.Contexts}
}

// contextOf is the direction of a resource of the layer.
func (p Layer) contextOf(name string, gateway bool) networking.EnvoyFilter_PatchContext {
	switch {
	case gateway:
		return networking.EnvoyFilter_GATEWAY
	case p.Contexts == ContextsOf(networking.EnvoyFilter_SIDECAR_INBOUND), name == envoy.InboundPassthroughCluster:
		return networking.EnvoyFilter_SIDECAR_INBOUND
	}
	return networking.EnvoyFilter_SIDECAR_OUTBOUND
}

// Twin are the queries for the patched resources of one layer.
type Twin struct {
	Layer
	patches *Queries
	// all are the resources of the layer; one has them by name.
	all func(r *query.Reader, k any) resources
	one query.Layers[any, omap.Name, *resource.Resource]
	// byHandle lists the resources by what patches select them by; nil for a layer with few resources.
	byHandle query.Groups[any, omap.Name, omap.Name]
	// outcome is a patched resource, with what became of each patch.
	outcome query.Query[patchedName, []*outcome]
	// patched are the patched resources. effects are what became of patches, with the resources concerned.
	patched query.Collection[Key, *resource.Resource]
	effects query.Groups[Key, Effect, omap.Name]
	// hosts are the patched virtual hosts of route configurations.
	hosts patchedHosts
}

// Source is the layer of a twin.
type Source struct {
	name string
	all  func(r *query.Reader, k any) resources
	// collection is the same as a collection; nil if the layer is made by one cell.
	collection query.Collection[any, *resource.Resource]
}

// CollectionOf is a layer that is a collection, whose resources belong to a key.
func CollectionOf[K comparable](name string, of query.Collection[K, *resource.Resource]) Source {
	s := SourceOf(name, of.Get)
	s.collection = untyped[K]{of}
	return s
}

// SourceOf is a layer whose resources belong to a key.
func SourceOf[K comparable](name string, all func(r *query.Reader, k K) resources) Source {
	return Source{name: name, all: func(r *query.Reader, k any) resources { return all(r, k.(K)) }}
}

// untyped is a collection whose keys have no type.
type untyped[K comparable] struct {
	of query.Collection[K, *resource.Resource]
}

// Get implements query.Collection.
func (u untyped[K]) Get(r *query.Reader, k any) resources { return u.of.Get(r, k.(K)) }

// Observe implements query.Collection.
func (u untyped[K]) Observe(k any, fn func(resources)) (release func()) {
	return u.of.Observe(k.(K), fn)
}

// Element implements query.Collection.
func (u untyped[K]) Element(k any, name omap.Name) (query.ID, bool) { return u.of.Element(k.(K), name) }

// DefineTwin defines the queries for the patched resources of a layer.
func DefineTwin(g *query.Graph, p *Queries, of Layer, source Source) *Twin {
	name := "patched " + of.Type.Kind() + ", " + source.name
	t := &Twin{Layer: of, patches: p, all: source.all}
	t.one = query.DefineLayers(g, name+".source", func(r *query.Reader, k any) []resources { return []resources{source.all(r, k)} })
	if source.collection != nil {
		t.byHandle = query.GroupBy(g, name+".handles", source.collection, func(v *resource.Resource, add func(omap.Name, omap.Name)) {
			if h := handleOf(of.Type, v.Name()); h != "" {
				add(omap.Name(h), omap.Name(v.Name()))
			}
		})
	}
	if of.Type == resource.Route {
		t.hosts = definePatchedHosts(g, t, name)
	}
	t.outcome = query.Define(g, name+".outcome", layer.Equal[*outcome], t.apply)
	key := func(k Key, n omap.Name) patchedName { return patchedName{k, n} }
	outcomes := query.Each(g, name+".outcomes", t.candidates, t.outcome, key)
	t.effects = query.GroupBy(g, name+".effects", outcomes, func(o *outcome, add func(Effect, omap.Name)) { o.each(add) })
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
func (t *Twin) candidates(r *query.Reader, k Key) resources {
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
	return omap.With(resources{}, changes...)
}

// handlesFor returns the handles of the resources that a patch with a handle may be about: the route configurations of gateways have the ports of
// gateways in their names, and patches have the ports of the Services in front of them.
func handlesFor(k Key, handle string) []string {
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
func (t *Twin) apply(r *query.Reader, k patchedName) ([]*outcome, bool) {
	was, ok := t.one.Get(r, k.layer, k.name)
	if !ok || was.Hidden() {
		return nil, false
	}
	o := &outcome{name: string(k.name)}
	list, at := t.patches.list(r, k.patches), t.placeOf(k)
	if t.Type == resource.Route {
		t.hosts.apply(r, k, was, o)
		return []*outcome{o}, o.any()
	}
	m, err := was.Proto()
	if err != nil {
		panic(err) // the control plane has encoded it
	}
	switch m := m.(type) {
	case *clusterv3.Cluster:
		take(o, t.Type, patch.Cluster(m, at, list))
	case *listenerv3.Listener:
		take(o, t.Type, patch.Listener(m, at, list))
	}
	return []*outcome{o}, o.any()
}

// placeOf says where a resource is sent.
func (t *Twin) placeOf(k patchedName) patch.Place {
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

// Key returns the key of the patched layer of a class; layer returns the key of the layer itself. ok is false if no patches are about the layer, or
// the class does not have it.
func (t *Twin) Key(r *query.Reader, c proxy.Class, layer func(r *query.Reader, c proxy.Class) (any, bool)) (k Key, ok bool) {
	set := t.patches.of(r, c, t.subjectFor(c))
	if set.Empty() {
		return k, false
	}
	k.layer, ok = layer(r, c)
	k.patches, k.gateway = set, c.Gateway
	return k, ok
}

// Resources are the patched resources.
func (t *Twin) Resources(r *query.Reader, k Key) resources { return t.patched.Get(r, k) }

// Cell returns the cell that yields a patched resource.
func (t *Twin) Cell(k Key, name omap.Name) (query.ID, bool) { return t.patched.Element(k, name) }

// Effects are the effects of patches.
func (t *Twin) Effects(r *query.Reader, k Key) omap.Map[Effect, omap.Unit] {
	return t.effects.Keys(r, k)
}

// HostCell returns the cell that yields a patched virtual host of a route configuration.
func (t *Twin) HostCell(r *query.Reader, k Key, name, piece omap.Name) (query.ID, bool) {
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
