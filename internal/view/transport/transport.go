// Package transport answers which service owns the connections that a client opens to an address. Connections are
// distinguished by address block, by SNI, or by the address alone.
//
// It owns the precedence of services that ask for the same connections: a Service of a Kubernetes cluster goes before ServiceEntries,
// and an older object before a younger one. The others have a Conflict. No ServiceEntry of another namespace gets a connection to an
// address of a Service, not even by a block that has the address.
// The TCP and TLS rules of VirtualServices are returned as values without messages of the API. For HTTP, a plan
// says only that route configurations decide.
//
// Invariant: no two rules of a plan have an equal match in the sense of Envoy's filter chain match. The package starts no
// goroutines.
package transport

import (
	"fmt"
	"slices"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/gateway"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// maxCandidates bounds how many services with the same single address are considered.
const maxCandidates = 40

// maxInlineParts bounds how many parts of an address are computed by the cell of the plan itself. Beyond it each part has
// a cell of its own, so that no cell reads everything about all services.
const maxInlineParts = 8

// maxConflicts bounds how many conflicts are reported for one host and address.
const maxConflicts = 20

// Key names an address as an audience sees it. NotIntercepted says that traffic is not redirected to the proxies, so that every listener binds the loopback
// address.
type Key struct {
	scope.Audience
	NotIntercepted bool
	At             exposure.Address
}

// reach returns the IP versions and the cluster of the clients, by which the addresses of a service differ. They do not matter to connections to any IP.
func (k Key) reach() (mesh.Families, string) {
	if k.At.IP == "" {
		return mesh.OnlyIPv4, ""
	}
	set := k.Set()
	return set.Families, set.Cluster
}

// place is the address with the clients that reach it.
func (k Key) place() place {
	p := place{at: k.At}
	p.families, p.cluster = k.reach()
	if !k.OfBaseView() {
		set := k.Set()
		p.set = &set
	}
	return p
}

// Queries answer questions about connections.
type Queries struct {
	tables   *state.Tables
	services *service.Queries
	traffic  *traffic.Queries
	scope    *scope.Queries
	gateways *gateway.Queries
	// gatewayRules are the rules of a VirtualService for connections to a server of gateways.
	gatewayRules query.Query[gatewayRulesKey, []Rule]
	// passed are the services to which gateways forward TLS of the mesh.
	passed query.Query[service.HostView, passed]
	// parts are the parts of the services of the base view that share the wildcard address of a port. There may be thousands. The key has no audience.
	parts query.Collection[Key, Part]
	// ownParts are such parts as the proxies of a set see them. For clients with labels they are the parts of services whose rules match their labels, at any
	// address.
	ownParts          query.Collection[Key, Part]
	part              query.Query[partKey, []Part]
	candidatesByMatch query.Groups[Key, match, exposure.Candidate]
	// held are the addresses of Services in a block.
	held query.Query[heldKey, heldAddresses]
}

// Define adds the queries to a graph.
func Define(g *query.Graph, t *state.Tables, s *service.Queries, tr *traffic.Queries, sc *scope.Queries, gw *gateway.Queries) *Queries {
	q := &Queries{tables: t, services: s, traffic: tr, scope: sc, gateways: gw}
	q.defineGatewayRules(g)
	q.part = query.Define(g, "connections", equalParts, func(r *query.Reader, k partKey) ([]Part, bool) {
		p, ok := q.evaluatePart(r, k)
		return []Part{p}, ok
	})
	candidates := func(r *query.Reader, k Key) omap.Map[exposure.Candidate, omap.Unit] {
		return sc.ByAudience.Candidates(k.NotIntercepted).Group(r, k.Audience, k.At)
	}
	q.parts = query.Each(g, "sharedConnections", candidates, q.part, func(k Key, c exposure.Candidate) partKey {
		return partKey{HostView: service.HostView{Host: c.Host}, at: k.At, notIntercepted: k.NotIntercepted, options: c.ListenOptions, marker: marker(c)}
	})
	q.candidatesByMatch = query.GroupBy(g, "connectionRivals", q.parts, func(p Part, add func(match, exposure.Candidate)) {
		for _, rule := range p.Rules {
			for m := range rule.matches() {
				add(m, exposure.Candidate{Created: p.created, Host: p.Host})
			}
		}
	})
	own := query.Define(g, "scopedConnections", equalParts, q.ownPart)
	q.ownParts = query.Each(g, "scopedSharedConnections", candidates, own, func(k Key, c exposure.Candidate) ownPartKey {
		return ownPartKey{k, c.Host, c.Created == exposure.OnlyInBase, c.ListenOptions, marker(c)}
	})
	q.held = query.Define(g, "heldAddresses", heldAddresses.equal, q.heldIn)
	return q
}

// Plan is the plan for an address as an audience sees it. ok is false if the plan of the next wider audience applies, and for all proxies if no service asks for
// the address. A plan that is not in use hides the plan of the wider audience.
func (q *Queries) Plan(r *query.Reader, k Key) (p *Plan, ok bool) {
	switch {
	case k.Labelled():
		return q.forLabels(r, k)
	case k.OfBaseView():
		p = q.inBaseView(r, k, nil)
		return p, p.InUse()
	}
	return q.inSet(r, k, nil)
}

// inBaseView is the plan in the base view, in which the parts of instead replace the parts of the same candidates.
func (q *Queries) inBaseView(r *query.Reader, k Key, instead map[partID]Part) *Plan {
	p := &Plan{replacements: instead}
	own := q.candidates(r, k)
	p.HTTP, p.DynamicHTTP, p.GRPCWeb, p.Bound = own.http, own.dynamic, own.grpcWeb, k.NotIntercepted || own.bound
	if k.At.IP == "" {
		for _, part := range q.parts.Get(r, Key{NotIntercepted: k.NotIntercepted, At: k.At}).All() {
			p.add(part)
		}
		q.keepHeld(r, p, k.At.Port)
		return p
	}
	parts := q.partsOf(r, own.hosts, func(c exposure.Candidate) partKey {
		return k.partKey(service.HostView{Host: c.Host}, clients{}, c.ListenOptions)
	})
	q.addParts(r, p, parts, k.place())
	q.join(r, p, k.place(), k.NotIntercepted)
	return p
}

// inSet is the plan of a set, in which the parts of instead replace the parts of the same candidates. differs is false if the plan of the base view applies.
func (q *Queries) inSet(r *query.Reader, k Key, instead map[partID]Part) (p *Plan, differs bool) {
	var parts []Part
	own, overlay := q.candidates(r, k), k.Set().Overlay()
	p = &Plan{HTTP: own.http, DynamicHTTP: own.dynamic, GRPCWeb: own.grpcWeb, Bound: k.NotIntercepted || own.bound, replacements: instead}
	if overlay {
		base := q.candidates(r, k.inBaseView())
		if len(own.hosts) == 0 && len(own.onlyInBase) == 0 && (base.http || !own.http) &&
			(base.dynamic || !own.dynamic) && (base.grpcWeb || !own.grpcWeb) && !(own.holder && len(base.hosts) > 0) {
			return nil, false
		}
		p.HTTP, p.DynamicHTTP, p.GRPCWeb = p.HTTP || base.http, p.DynamicHTTP || base.dynamic, p.GRPCWeb || base.grpcWeb
		// Services of the base view keep their address, so they come first, unless they look different here.
		parts = q.unchanged(r, k, base, own)
	}
	if k.At.IP == "" {
		for _, part := range q.ownParts.Get(r, k).All() {
			parts = append(parts, part)
		}
		slices.SortStableFunc(parts, func(a, b Part) int { return servicesFirst(a, b) })
		for _, part := range parts {
			p.add(part)
		}
		q.keepHeld(r, p, k.At.Port)
		return p, true
	}
	parts = append(parts, q.partsOf(r, own.hosts, func(c exposure.Candidate) partKey {
		return k.partKey(q.scope.View(r, scope.HostInSet{Host: c.Host, Set: k.Set()}), clients{}, c.ListenOptions)
	})...)
	q.addParts(r, p, parts, k.place())
	q.join(r, p, k.place(), k.NotIntercepted)
	return p, true
}

// candidates are the candidates for an address as an audience sees it.
func (q *Queries) candidates(r *query.Reader, k Key) candidateList {
	return listCandidates(q.scope.ByAudience.Candidates(k.NotIntercepted).Group(r, k.Audience, k.At))
}

// inBaseView is the same address as all proxies see it that call the same addresses of services.
func (k Key) inBaseView() Key {
	set := k.Set()
	k.Audience = scope.InCluster(set.Families, set.Cluster)
	return k
}

// unchanged are the parts of the base view, except parts of hosts that the overlay changes.
func (q *Queries) unchanged(r *query.Reader, k Key, base, own candidateList) (parts []Part) {
	if k.At.IP == "" {
		for _, part := range q.parts.Get(r, Key{NotIntercepted: k.NotIntercepted, At: k.At}).All() {
			if !own.onlyInBase[part.Host] {
				parts = append(parts, part)
			}
		}
		return parts
	}
	hosts := slices.DeleteFunc(slices.Clone(base.hosts), func(c exposure.Candidate) bool { return own.onlyInBase[c.Host] })
	return q.partsOf(r, hosts, func(c exposure.Candidate) partKey {
		return k.partKey(service.HostView{Host: c.Host}, clients{}, c.ListenOptions)
	})
}

// partsOf are the parts of hosts with the same address.
func (q *Queries) partsOf(r *query.Reader, hosts []exposure.Candidate, key func(exposure.Candidate) partKey) (parts []Part) {
	for _, c := range hosts {
		if part, ok := q.partOf(r, len(hosts), key(c)); ok {
			parts = append(parts, part)
		}
	}
	return parts
}

// partOf is the part of one of several hosts.
func (q *Queries) partOf(r *query.Reader, hosts int, k partKey) (Part, bool) {
	if hosts <= maxInlineParts {
		return q.evaluatePart(r, k)
	}
	part, ok := q.part.Get(r, k)
	if !ok {
		return Part{}, false
	}
	return part[0], true
}

// Conflicts are the connections that a host of the base view asks for at an address and another host has.
func (q *Queries) Conflicts(r *query.Reader, host string, at exposure.Address) []Conflict {
	var out []Conflict
	if at.IP != "" {
		plan, _ := q.Plan(r, Key{Audience: scope.Everyone(traffic.UsualVersions.Families(q.tables.DualStack())), At: at})
		for _, l := range plan.conflicts {
			if l.host == host {
				out = append(out, l.Conflict)
			}
		}
		return out
	}
	own, _ := q.part.Get(r, partKey{HostView: service.HostView{Host: host}, at: at})
	seen := map[match]bool{}
	for _, p := range own {
		for _, rule := range p.Rules {
			out = append(out, q.heldConflicts(r, host, rule, at.Port)...)
			for m := range rule.matches() {
				if seen[m] || len(out) == maxConflicts {
					continue
				}
				seen[m] = true
				if winner, ok := q.winner(r, at, m, rule); ok && winner.Host != host {
					out = append(out, Conflict{winner.Host, winner.IsService(), m.block, m.name})
				}
			}
		}
	}
	return out
}

// winner is the first service with a rule for a match. ok is false if its rule does the same as the given one.
func (q *Queries) winner(r *query.Reader, at exposure.Address, m match, rule Rule) (first exposure.Candidate, ok bool) {
	for first := range q.candidatesByMatch.Group(r, Key{At: at}, m).All() {
		theirs, _ := q.part.Get(r, partKey{HostView: service.HostView{Host: first.Host}, at: at})
		for _, p := range theirs {
			for _, other := range p.Rules {
				if other.hasMatch(m) {
					return first, other.differsFrom(rule)
				}
			}
		}
		break
	}
	return exposure.Candidate{}, false
}

// candidateList is the candidates for an address, oldest first.
type candidateList struct {
	// http says that HTTP hosts together ask for the address.
	http bool
	// dynamic says that the proxy resolves some of those hosts for each request.
	dynamic bool
	// grpcWeb says that some of those hosts declare the port gRPC-Web.
	grpcWeb bool
	// holder says that a Service has the address for HTTP that the base view does not have.
	holder bool
	// bound says that some listener has a socket of its own at the address.
	bound bool
	hosts []exposure.Candidate
	// onlyInBase are the hosts that ask for the address in the base view and look different here.
	onlyInBase map[string]bool
}

func listCandidates(group omap.Map[exposure.Candidate, omap.Unit]) candidateList {
	l := candidateList{onlyInBase: map[string]bool{}}
	for who := range group.All() {
		l.bound = l.bound || who.Bound
		switch {
		case who.Host == "" && who.Created == exposure.DynamicHTTPCandidate:
			l.dynamic = true
		case who.Host == "" && who.Created == exposure.GRPCWebCandidate:
			l.grpcWeb = true
		case who.Host == "" && who.Created == exposure.HolderCandidate:
			l.holder = true
		case who.Host == "":
			l.http = true
		case who.Created == exposure.OnlyInBase:
			l.onlyInBase[who.Host] = true
		case len(l.hosts) < maxCandidates:
			l.hosts = append(l.hosts, who)
		}
	}
	return l
}

// partKey names the part of one host at an address.
type partKey struct {
	service.HostView
	at             exposure.Address
	notIntercepted bool
	families       mesh.Families
	cluster        string
	clients        clients
	options        exposure.ListenOptions
	marker         int64
}

// marker distinguishes candidates without a host, which represent all HTTP hosts of an address: elements of a
// collection must have different keys. It is 0 for candidates that are hosts.
func marker(c exposure.Candidate) int64 {
	if c.Host != "" {
		return 0
	}
	return c.Created
}

// partID identifies a part among the parts of an address.
type partID struct {
	host    string
	options exposure.ListenOptions
}

func (p Part) id() partID { return partID{p.Host, p.options} }

// Part is the connections that one service asks for at an address.
type Part struct {
	Host  string
	Rules []Rule
	// Sniffed says that the port has protocol detection: connections that turn out to be HTTP are for the route
	// configuration.
	Sniffed bool
	Port    uint32
	options exposure.ListenOptions
	// Dubbo is the interface that the port serves by the protocol Dubbo; nil for another protocol.
	Dubbo *mesh.DubboInterface
	// Calls are the rules for its calls that go before the rules for connections.
	Calls []CallRule
	// namespace is the namespace of the service, and service says that a Service of a Kubernetes cluster declares it. foreign says that the
	// address is one that the service has in another cluster.
	namespace        string
	service, foreign bool
	created          int64
	age              string
	hash             omap.Hash
}

// OutputName orders parts by age. A host may ask for an address twice: at a Sidecar listener and on its own.
func (p Part) OutputName() string {
	return string(p.options.AppendTo([]byte(p.age + p.Host)))
}

// ContentHash covers all fields.
func (p Part) ContentHash() omap.Hash { return p.hash }

// Size is 0 because a part is not sent by itself.
func (Part) Size() int { return 0 }

func (p Part) withHash(created int64) Part {
	p.created = created
	p.age = fmt.Sprintf("%016x ", uint64(created)^1<<63) // sorts times before 1970 first
	b := fmt.Appendf(nil, "%s%s %s %t %d %t %t", p.age, p.Host, p.namespace, p.Sniffed, p.Port, p.foreign, p.service)
	b = p.appendCalls(b)
	for _, rule := range p.Rules {
		b = fmt.Appendf(b, "\n%q %q %q %s %v", rule.Blocks, rule.ServerNames, rule.StatPrefix, rule.Object, rule.Options)
		for _, d := range rule.Destinations {
			b = fmt.Appendf(b, " %q %q %d %d %t", d.Host, d.Subset, d.Port, d.Weight, d.Dynamic)
		}
	}
	p.hash = omap.Sum(b)
	return p
}

func equalParts(a, b []Part) bool {
	return len(a) == len(b) && (len(a) == 0 || a[0].hash == b[0].hash)
}
