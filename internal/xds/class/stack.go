package class

import (
	"net/netip"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/view/gateway"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	view "github.com/pilotmesh/pilot/internal/view/telemetry"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/xds/class/patching"
	"github.com/pilotmesh/pilot/internal/xds/cluster"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/listener"
	"github.com/pilotmesh/pilot/internal/xds/nametable"
	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/internal/xds/route"
	"github.com/pilotmesh/pilot/internal/xds/telemetry"
)

// Sharing says which proxies share a resource.
type Sharing uint8

// The values of Sharing, from the fewest proxies to all.
const (
	// SharedByWorkload: proxies of workloads that serve the same ports.
	SharedByWorkload Sharing = iota
	// SharedByClients: proxies in one locality, cluster or network, or that the same DestinationRules select, or gateways, or proxies with certificates of another authority.
	SharedByClients
	// SharedByScope: the proxies of a namespace, or of a Sidecar.
	SharedByScope
	// SharedByAll: all proxies without a Sidecar.
	SharedByAll
	// SharedByEvery: every proxy, whatever the objects say.
	SharedByEvery
)

// Among describes the proxies that share a resource with the proxies of a class.
func (s Sharing) Among(c proxy.Class) string {
	switch s {
	case SharedByWorkload:
		return "workloads that serve the same"
	case SharedByClients:
		return "proxies that run where it does, or that the same rules select"
	case SharedByScope:
		if scope.SetOf(c).Overlay() {
			return "namespace " + c.Namespace
		}
		return "proxies of " + c.Sidecar.String()
	case SharedByAll:
		return "all proxies"
	case SharedByEvery:
		return "every proxy, whatever the configuration"
	}
	return ""
}

// stack is what a class state holds of one type: its layers; the first layer that has a name wins. Assembly, traces
// and the origin of rejected resources all use it.
type stack []stackLayer

// stackLayer is one layer of a stack.
type stackLayer struct {
	name     string
	sharedBy Sharing
	// layer returns the resources of the layer for a class. ok is false if the class does not have the layer.
	layer func(r *query.Reader, c proxy.Class) (Map, bool)
	// cell returns the cell that yields a resource of the layer for a class. ok is false if the layer does not have it.
	cell func(r *query.Reader, c proxy.Class, name omap.Name) (query.ID, bool)
	// contexts are the directions of its resources at sidecars, and inline says that its listeners may have route configurations in them.
	contexts patching.Contexts
	inline   bool
	// first says that proxies have its clusters, or the clusters that its route configurations name, before they ask for a host. named returns the clusters
	// that its listeners or route configurations name; nil if these must be looked at one by one.
	first bool
	named func(r *query.Reader, c proxy.Class) omap.Map[omap.Name, omap.Unit]
	// twin defines the layer with the patched resources of this one.
	twin func(g *query.Graph, p *patching.Queries, of patching.Layer) stackLayer
	// host returns the cell that yields a patched virtual host; nil for a layer that is no twin. effects are the effects of patches in a twin.
	host    func(r *query.Reader, c proxy.Class, name, piece omap.Name) (query.ID, bool)
	effects func(r *query.Reader, c proxy.Class) omap.Map[patching.Effect, omap.Unit]
	// difference returns what an EnvoyFilter does to the resources of the layer; nil for a layer that is no twin.
	difference func(r *query.Reader, c proxy.Class, filter api.Key) []patching.Difference
}

// keyOf returns the key of a class's layer among the results of a query. ok is false if the class does not have the
// layer.
type keyOf[K comparable] func(r *query.Reader, c proxy.Class) (K, bool)

// untyped returns the same key without its type.
func (k keyOf[K]) untyped() func(r *query.Reader, c proxy.Class) (any, bool) {
	return func(r *query.Reader, c proxy.Class) (any, bool) { return k(r, c) }
}

// ofEveryClass makes a key that every class has.
func ofEveryClass[K comparable](key func(c proxy.Class) K) keyOf[K] {
	return func(_ *query.Reader, c proxy.Class) (K, bool) { return key(c), true }
}

// fromCell makes a layer that one cell yields as a whole.
func fromCell[K comparable](name string, shared Sharing, q query.Query[K, Map], key keyOf[K]) stackLayer {
	get := func(r *query.Reader, c proxy.Class) (k K, m Map, ok bool) {
		if k, ok = key(r, c); ok {
			m, _ = q.Get(r, k)
		}
		return k, m, ok
	}
	return stackLayer{
		name: name, sharedBy: shared, contexts: outboundContexts(),
		twin: func(g *query.Graph, p *patching.Queries, of patching.Layer) stackLayer {
			all := func(r *query.Reader, k K) Map {
				m, _ := q.Get(r, k)
				return m
			}
			return patchedLayer(patching.DefineTwin(g, p, of, patching.SourceOf(name, all)), name, shared, key.untyped())
		},
		layer: func(r *query.Reader, c proxy.Class) (Map, bool) {
			_, m, ok := get(r, c)
			return m, ok
		},
		cell: func(r *query.Reader, c proxy.Class, name omap.Name) (query.ID, bool) {
			k, m, ok := get(r, c)
			if !ok || !m.Has(name) {
				return 0, false
			}
			return q.Cell(k)
		},
	}
}

// fromElements makes a layer with one cell per element.
func fromElements[K comparable](name string, shared Sharing, q query.Collection[K, *resource.Resource], key keyOf[K]) stackLayer {
	return stackLayer{
		name: name, sharedBy: shared, contexts: outboundContexts(),
		twin: func(g *query.Graph, p *patching.Queries, of patching.Layer) stackLayer {
			return patchedLayer(patching.DefineTwin(g, p, of, patching.CollectionOf(name, q)), name, shared, key.untyped())
		},
		layer: func(r *query.Reader, c proxy.Class) (Map, bool) {
			k, ok := key(r, c)
			if !ok {
				return Map{}, false
			}
			return q.Get(r, k), true
		},
		cell: func(r *query.Reader, c proxy.Class, name omap.Name) (query.ID, bool) {
			k, ok := key(r, c)
			if !ok {
				return 0, false
			}
			return q.Element(k, name)
		},
	}
}

// defineStacks declares the layers of every type. It is the only place that does.
func (q *Queries) defineStacks(g *query.Graph) {
	q.stacks[resource.Cluster] = append(stack{
		first(inbound(fromCell("inbound", SharedByWorkload, q.clusters.Inbound, ofEveryClass(func(c proxy.Class) cluster.InboundKey {
			return cluster.InboundKey{Ports: c.Inbound, NotIntercepted: c.Mode == proxy.None, Families: c.Families}
		})))),
		first(bothWays(fromCell("fixed", SharedByEvery, q.clusters.Fixed, sidecarsOnly(ofEveryClass(familiesOf))))),
		first(fromCell("hosts on demand", SharedByEvery, q.clusters.Demand, func(_ *query.Reader, c proxy.Class) (service.All, bool) {
			return service.All{}, c.HostsOnDemand
		})),
		fromCell("gateway", SharedByEvery, q.clusters.GatewayFixed, gatewaysOnly(func(_ *query.Reader, c proxy.Class) cluster.GatewayFixedKey {
			return cluster.GatewayFixedKey{OnDemand: c.OnDemand}
		})),
		q.routedLayer(),
	}, restricted(hostStack(q.Scope, q.clusters.Hosts, clientOfClusters), "", func(r *query.Reader, c proxy.Class) bool { return !q.onlyRouted(r, c) })...)
	q.stacks[resource.Endpoint] = hostStack(q.Scope, q.endpoints.Hosts, withoutHeader)
	q.stacks[resource.Cluster] = append(q.stacks[resource.Cluster], q.passing(hostStack(q.Scope, q.clusters.Passing, func(c traffic.Client) traffic.Client {
		return withoutHeader(clientOfClusters(c))
	}))...)
	q.stacks[resource.Endpoint] = append(q.stacks[resource.Endpoint], q.passing(hostStack(q.Scope, q.endpoints.Passing, withoutHeader))...)
	q.stacks[resource.Listener] = q.listenerStack(g)
	q.stacks[resource.Route] = q.routeStack(g)
	q.stacks[resource.NameTable] = q.nameStack()
	q.stacks[resource.Bootstrap] = q.bootstrapStack(g)
	for _, t := range []resource.Type{resource.Cluster, resource.Listener, resource.Route} {
		q.stacks[t] = q.withPatches(g, t, q.stacks[t])
	}
}

// withoutHeader leaves out whether requests of a client name its workload, which matters to clusters with mutual TLS only.
func withoutHeader(c traffic.Client) traffic.Client {
	c.OtherAuthority = false
	return c
}

func allKey(proxy.Class) service.All { return service.All{} }

func familiesOf(c proxy.Class) mesh.Families { return c.Families }

// withoutSidecar makes a key that only classes without a Sidecar have.
func withoutSidecar[K comparable](key func(c proxy.Class) K) keyOf[K] {
	return func(_ *query.Reader, c proxy.Class) (K, bool) { return key(c), scope.SetOf(c).Overlay() }
}

// width is one width of audiences that are narrower than everyone: the name of its layers, who shares them, and the audience of a class. ok is false if the class
// has none of its own.
type width struct {
	name   string
	shared Sharing
	of     func(c proxy.Class) (a scope.Audience, ok bool)
}

// widths are the widths of audiences, from the narrowest; see scope.Audience. Route configurations and listeners have a layer for each.
func widths() []width {
	return []width{
		{"labels in scope", SharedByScope, func(c proxy.Class) (scope.Audience, bool) {
			a := scope.AudienceOf(c)
			return a, a.Labelled()
		}},
		{"scope", SharedByScope, func(c proxy.Class) (scope.Audience, bool) { return scope.InSet(scope.SetOf(c)), true }},
		{"cluster", SharedByClients, func(c proxy.Class) (scope.Audience, bool) {
			return scope.InCluster(c.Families, c.Cluster), scope.SetOf(c).Overlay() && c.Cluster != ""
		}},
	}
}

// byAudience makes a layer of a collection for each width of audiences. suffix ends their names.
func byAudience[K comparable](suffix string, all query.Collection[K, *resource.Resource], key func(r *query.Reader, c proxy.Class, a scope.Audience) K, mark func(stackLayer, keyOf[K]) stackLayer) (s stack) {
	for _, w := range widths() {
		of := sidecarsOnly(func(r *query.Reader, c proxy.Class) (k K, ok bool) {
			a, ok := w.of(c)
			if ok {
				k = key(r, c, a)
			}
			return k, ok
		})
		s = append(s, mark(fromElements(w.name+suffix, w.shared, all, of), of))
	}
	return s
}

// sidecarsOnly makes a key that gateways do not have.
func sidecarsOnly[K comparable](key keyOf[K]) keyOf[K] {
	return func(r *query.Reader, c proxy.Class) (k K, ok bool) {
		if c.Gateway {
			return k, false
		}
		return key(r, c)
	}
}

// hostStack is the stack of resources made host by host. A client's own layers come before the layers of its set. matters leaves
// the attributes of a client that matter to the type.
func hostStack(sc *scope.Queries, h *layer.Hosts[*resource.Resource], matters func(traffic.Client) traffic.Client) stack {
	plain := func(c proxy.Class) scope.Set { return scope.SetOf(c).WithoutNames() }
	return stack{
		fromElements("client in scope", SharedByClients, h.Client.Scoped, func(_ *query.Reader, c proxy.Class) (scope.ClientInSet, bool) {
			client := matters(sc.ClientOf(c))
			return scope.ClientInSet{Set: plain(c), Client: client}, client != traffic.Client{}
		}),
		fromElements("scope", SharedByScope, h.Scoped, ofEveryClass(plain)),
		fromElements("client", SharedByClients, h.Client.Base, func(_ *query.Reader, c proxy.Class) (traffic.Client, bool) {
			client := matters(sc.BaseClientOf(c))
			return client, plain(c).Overlay() && client != traffic.Client{}
		}),
		fromElements("base", SharedByAll, h.Base, withoutSidecar(allKey)),
	}
}

// outboundContexts are the directions of a layer with resources for connections from the workload.
func outboundContexts() patching.Contexts {
	return patching.ContextsOf(networking.EnvoyFilter_SIDECAR_OUTBOUND)
}

// inbound marks a layer with resources for connections to the workload.
func inbound(l stackLayer) stackLayer {
	l.contexts = patching.ContextsOf(networking.EnvoyFilter_SIDECAR_INBOUND)
	return withRoutes(l)
}

// bothWays marks a layer with resources for both directions.
func bothWays(l stackLayer) stackLayer {
	l.contexts = patching.ContextsOf(networking.EnvoyFilter_SIDECAR_INBOUND, networking.EnvoyFilter_SIDECAR_OUTBOUND)
	return l
}

// withRoutes marks a layer whose listeners may have route configurations in them.
func withRoutes(l stackLayer) stackLayer {
	l.inline = true
	return l
}

// withPatches puts the patched resources of each layer before it, and the resources that patches add before all.
func (q *Queries) withPatches(g *query.Graph, t resource.Type, s stack) stack {
	var out stack
	for _, l := range s {
		if l.name != "own addresses" { // it only hides
			twin := l.twin(g, q.patches, patching.Layer{Type: t, Contexts: l.contexts, Inline: l.inline})
			twin.first = l.first
			out = append(out, twin)
		}
		out = append(out, l)
	}
	return append(stack{first(q.addedLayer(g, t, out))}, out...)
}

// gatewaysOnly makes a key that only gateways have.
func gatewaysOnly[K comparable](key func(r *query.Reader, c proxy.Class) K) keyOf[K] {
	return func(r *query.Reader, c proxy.Class) (k K, ok bool) {
		if !c.Gateway {
			return k, false
		}
		return key(r, c), true
	}
}

// proxiesOf are the gateways of a class.
func proxiesOf(c proxy.Class) gateway.Proxies {
	return gateway.Proxies{Served: gateway.ServedOf(c), Namespace: c.Namespace, Labels: c.Labels, Rules: scope.RulesOf(c)}
}

// passing restricts the layers of a stack to gateways that forward TLS of the mesh.
func (q *Queries) passing(s stack) stack {
	return restricted(s, "passing, ", func(r *query.Reader, c proxy.Class) bool {
		return c.Gateway && q.Gateways.PassesMesh(r, gateway.ServedOf(c))
	})
}

// listenerStack is the stack of listeners. Gateways and sidecars share none.
func (q *Queries) listenerStack(g *query.Graph) stack {
	base := sidecarsOnly(func(r *query.Reader, c proxy.Class) (listener.Variant, bool) {
		return q.variantOf(r, c), scope.SetOf(c).Overlay()
	})
	s := stack{
		fromElements("gateway", SharedByWorkload, q.listeners.Gateways, gatewaysOnly(func(r *query.Reader, c proxy.Class) listener.GatewaysKey {
			return listener.GatewaysKeyOf(c, proxiesOf(c), q.policies.KeyOf(r, c), q.telemetryOf(r, c), q.added.KeyOf(r, c, false))
		})),
		fromCell("own addresses", SharedByWorkload, q.listeners.OwnAddresses, func(_ *query.Reader, c proxy.Class) (intern.List[netip.AddrPort], bool) {
			return c.Own, !c.Own.Empty() && c.Mode != proxy.None
		}),
		inbound(fromCell("inbound", SharedByWorkload, q.listeners.Inbound, sidecarsOnly(func(r *query.Reader, c proxy.Class) (listener.InboundKey, bool) {
			return q.inboundKeyOf(r, c), true
		}))),
		withRoutes(fromCell("virtual outbound", SharedByEvery, q.listeners.Virtual, sidecarsOnly(func(r *query.Reader, c proxy.Class) (listener.VirtualKey, bool) {
			return listener.VirtualKeyOf(c, q.Scope.Outbound(r, scope.SetOf(c)), q.telemetryOf(r, c), q.added.KeyOf(r, c, false)), true
		}))),
		fromCell("HTTP proxies", SharedByScope, q.listeners.HTTPProxies, func(r *query.Reader, c proxy.Class) (listener.HTTPProxiesKey, bool) {
			return listener.HTTPProxiesKey{Sidecar: c.Sidecar, Variant: q.variantOf(r, c)}, q.hasHTTPProxies(r, c)
		}),
	}
	s = append(s, byAudience("", q.listeners.Own, func(r *query.Reader, c proxy.Class, a scope.Audience) listener.Key {
		return listener.Key{Audience: a, Variant: q.variantOf(r, c)}
	}, naming(g, "listeners in scope", q.listeners.Own))...)
	return append(s, naming(g, "listeners", q.listeners.Base)(fromElements("base", SharedByAll, q.listeners.Base, base), base))
}

// telemetryOf names how the outbound listeners of a class, or the listeners of its gateways, log and trace.
func (q *Queries) telemetryOf(r *query.Reader, c proxy.Class) telemetry.Key {
	return q.telemetry.KeyOf(r, c, view.Client)
}

func (q *Queries) inboundKeyOf(r *query.Reader, c proxy.Class) listener.InboundKey {
	return listener.InboundKeyOf(c, q.Scope.InboundMTLS(r, c), q.policies.KeyOf(r, c), q.telemetry.KeyOf(r, c, view.Server), q.added.KeyOf(r, c, true))
}

func (q *Queries) variantOf(r *query.Reader, c proxy.Class) listener.Variant {
	return listener.VariantOf(c, q.telemetryOf(r, c), q.added.KeyOf(r, c, false))
}

// routeStack is the stack of route configurations.
func (q *Queries) routeStack(g *query.Graph) stack {
	all := sidecarsOnly(withoutSidecar(allKey))
	s := stack{
		fromElements("gateway", SharedByWorkload, q.routes.Gateways, gatewaysOnly(func(_ *query.Reader, c proxy.Class) gateway.Proxies {
			return proxiesOf(c)
		})),
		first(fromCell("HTTP proxies", SharedByScope, q.routes.HTTPProxies, func(r *query.Reader, c proxy.Class) (scope.Audience, bool) {
			return scope.AudienceOf(c), q.hasHTTPProxies(r, c)
		})),
	}
	s = append(s, byAudience("", q.routes.Configurations, func(_ *query.Reader, _ proxy.Class, a scope.Audience) scope.Audience { return a },
		func(l stackLayer, _ keyOf[scope.Audience]) stackLayer { return l })...)
	s = append(s, fromElements("base", SharedByAll, q.routes.Configurations, sidecarsOnly(withoutSidecar(func(c proxy.Class) scope.Audience {
		return scope.Everyone(c.Families)
	}))))
	sniffed := byAudience(", sniffed", q.routes.OwnSniffed, func(_ *query.Reader, _ proxy.Class, a scope.Audience) route.Dedicated {
		return route.Dedicated{Audience: a}
	}, naming(g, "sniffed routes in scope", q.routes.OwnSniffed))
	sniffed = append(sniffed, naming(g, "sniffed routes", q.routes.Sniffed)(fromElements("base, sniffed", SharedByAll, q.routes.Sniffed, all), all))
	for _, l := range sniffed {
		s = append(s, first(l))
	}
	return s
}

// nameStack is the stack of the names that agents answer. Classes without such agents have no layers, so they cost nothing.
func (q *Queries) nameStack() stack {
	return stack{
		fromElements("scope", SharedByScope, q.names.Own, func(_ *query.Reader, c proxy.Class) (nametable.Key, bool) {
			return nametable.KeyOf(c), c.Names
		}),
		fromElements("cluster and network", SharedByClients, q.names.Own, func(_ *query.Reader, c proxy.Class) (nametable.Key, bool) {
			k, differs := nametable.BaseKeyOf(c)
			return k, c.Names && differs && scope.SetOf(c).Overlay()
		}),
		fromElements("base", SharedByAll, q.names.Base, func(_ *query.Reader, c proxy.Class) (mesh.Families, bool) {
			return c.Families, c.Names && scope.SetOf(c).Overlay()
		}),
	}
}

// hasHTTPProxies reports whether the proxies of a class have a listener that takes requests for any host.
func (q *Queries) hasHTTPProxies(r *query.Reader, c proxy.Class) bool {
	return !c.Gateway && len(q.Scope.HTTPProxies(r, c.Sidecar)) > 0
}

// layersOf are the layers of a class.
func (s stack) layersOf(r *query.Reader, c proxy.Class) (list resource.Layers) {
	for _, p := range s {
		if m, ok := p.layer(r, c); ok {
			list = append(list, m)
		}
	}
	return list
}

// findCells returns the cells that yield a resource of a class, and the layer that shows it. Behind the cell of a patched resource comes the cell of the
// unpatched one.
func (s stack) findCells(r *query.Reader, c proxy.Class, name omap.Name) (cells []query.ID, from stackLayer) {
	for _, p := range s {
		id, ok := p.cell(r, c, name)
		if !ok {
			continue
		}
		if len(cells) == 0 {
			from = p
		}
		cells = append(cells, id)
		if p.effects == nil {
			break
		}
	}
	return cells, from
}
