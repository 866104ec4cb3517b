// Package transport answers whose the connections are that a client opens to an address: told by the block of addresses
// it lies in, by the name a TLS client asks for, or by nothing but the address.
//
// It owns the precedence of services that want the same connections: the oldest has them, and the others are told of
// their loss. The rules of VirtualServices for TCP and TLS are given in values without a message type. What is HTTP is
// only noted here: whom a request is for is up to routes.
//
// Invariants: the rules of a plan do not overlap in what Envoy would call the same match. The package starts no goroutines
// and must not import xds or Envoy's protos.
package transport

import (
	"fmt"

	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// maxClaimants bounds how many services with one and the same single address are looked at.
const maxClaimants = 40

// maxDirect bounds how many of them are worked out where they are asked for. More have cells of their own, so that none
// reads all about all of them.
const maxDirect = 8

// maxLosses bounds how many of them are told of one address.
const maxLosses = 20

// All names an address as all see it. Direct: nothing redirects, so that all addresses are one, the loopback.
type All struct {
	Direct bool
	At     service.Address
}

// In names an address as a set sees it.
type In struct {
	Set    scope.Set
	Direct bool
	At     service.Address
}

// Queries answer questions about connections.
type Queries struct {
	tables   *state.Tables
	services *service.Queries
	traffic  *traffic.Queries
	scope    *scope.Queries
	// parts and scopedParts are what each of the services wants that share the wildcard address of a port: there may be
	// thousands.
	parts       *query.Collection[All, Part]
	scopedParts *query.Collection[In, Part]
	// labelledParts are what those services want of callers with labels whose rules name such.
	labelledParts *query.Collection[For, Part]
	part          *query.Query[claim, []Part]
	rivals        *query.Groups[All, match, service.Claimant]
}

// Define adds the queries.
func Define(g *query.Graph, t *state.Tables, s *service.Queries, tr *traffic.Queries, sc *scope.Queries) *Queries {
	q := &Queries{tables: t, services: s, traffic: tr, scope: sc}
	elem := query.Define(g, "connections", equalParts, func(r *query.Reader, k claim) ([]Part, bool) {
		p, ok := q.wants(r, k)
		return []Part{p}, ok
	})
	q.part = elem
	q.parts = query.Each(g, "sharedConnections", func(r *query.Reader, k All) omap.Map[service.Claimant, omap.Unit] {
		return Taken(k.Direct, s.Taken).Group(r, service.All{}, k.At)
	}, elem, func(k All, c service.Claimant) claim {
		return claim{View: service.View{Host: c.Host}, at: k.At, direct: k.Direct, terms: c.Terms, marker: marker(c)}
	})
	q.rivals = query.GroupBy(g, "connectionRivals", q.parts, func(p Part, add func(match, service.Claimant)) {
		for _, rule := range p.Rules {
			for m := range rule.matches() {
				add(m, service.Claimant{Created: p.created, Host: p.Host})
			}
		}
	})
	scoped := query.Define(g, "scopedConnections", equalParts, func(r *query.Reader, k claimIn) ([]Part, bool) {
		if k.gone || k.Host == "" {
			return nil, false
		}
		return elem.Get(r, claim{q.scope.View(r, k.HostIn), k.at, k.direct, callers{}, k.terms, 0})
	})
	q.scopedParts = query.Each(g, "scopedSharedConnections", func(r *query.Reader, k In) omap.Map[service.Claimant, omap.Unit] {
		return Taken(k.Direct, sc.Taken).Group(r, k.Set, k.At)
	}, scoped, func(k In, c service.Claimant) claimIn {
		return claimIn{scope.HostIn{Host: c.Host, Set: k.Set}, k.At, k.Direct, c.Created == service.Never, c.Terms, marker(c)}
	})
	q.defineLabelled(g, elem)
	return q
}

// Taken are the claims on addresses, with or without redirection.
func Taken[C comparable](direct bool, t *service.Taken[C]) *query.Groups[C, service.Address, service.Claimant] {
	if direct {
		return t.Local
	}
	return t.Listen
}

// Base is the plan for an address as all see it; absent if nobody wants it.
func (q *Queries) Base(r *query.Reader, k All) (*Plan, bool) {
	p := q.planOfAll(r, k, nil)
	return p, p.Wanted()
}

// planOfAll is the plan as all see it, but for what some hosts want instead.
func (q *Queries) planOfAll(r *query.Reader, k All, instead map[claimed]Part) *Plan {
	p := &Plan{instead: instead}
	own := claimants(Taken(k.Direct, q.services.Taken).Group(r, service.All{}, k.At))
	p.HTTP, p.ByName, p.Web, p.Bound = own.http, own.dynamic, own.web, k.Direct || own.bound
	if k.At.IP == "" {
		for _, part := range q.parts.Get(r, k).All() {
			p.add(part)
		}
		return p
	}
	for _, c := range own.hosts {
		if part, ok := q.one(r, len(own.hosts), claim{service.View{Host: c.Host}, k.At, k.Direct, callers{}, c.Terms, 0}); ok {
			p.add(part)
		}
	}
	return p
}

// Scoped is the plan for an address as a set sees it. In an overlay, differs is false where the base's is right; a plan
// that nobody wants hides the base's.
func (q *Queries) Scoped(r *query.Reader, k In) (p *Plan, differs bool) { return q.plan(r, k, nil) }

// plan is the plan as a set sees it, but for what some hosts want instead.
func (q *Queries) plan(r *query.Reader, k In, instead map[claimed]Part) (p *Plan, differs bool) {
	own := claimants(Taken(k.Direct, q.scope.Taken).Group(r, k.Set, k.At))
	p = &Plan{HTTP: own.http, ByName: own.dynamic, Web: own.web, Bound: k.Direct || own.bound, instead: instead}
	if k.Set.Overlay() {
		base := claimants(Taken(k.Direct, q.services.Taken).Group(r, service.All{}, k.At))
		if len(own.hosts) == 0 && len(own.gone) == 0 && (base.http || !own.http) && (base.dynamic || !own.dynamic) && (base.web || !own.web) {
			return nil, false
		}
		p.HTTP, p.ByName, p.Web = p.HTTP || base.http, p.ByName || base.dynamic, p.Web || base.web
		// What all see keeps its address, so it comes first, unless it looks different from here.
		q.unchanged(r, k, base, own, p)
	}
	if k.At.IP == "" {
		for _, part := range q.scopedParts.Get(r, k).All() {
			p.add(part)
		}
		return p, true
	}
	for _, c := range own.hosts {
		view := q.scope.View(r, scope.HostIn{Host: c.Host, Set: k.Set})
		if part, ok := q.one(r, len(own.hosts), claim{view, k.At, k.Direct, callers{}, c.Terms, 0}); ok {
			p.add(part)
		}
	}
	return p, true
}

// unchanged adds the base's parts which are not of hosts that the overlay changes.
func (q *Queries) unchanged(r *query.Reader, k In, base, own claimantList, p *Plan) {
	if k.At.IP == "" {
		for _, part := range q.parts.Get(r, All{k.Direct, k.At}).All() {
			if !own.gone[part.Host] {
				p.add(part)
			}
		}
		return
	}
	for _, c := range base.hosts {
		if own.gone[c.Host] {
			continue
		}
		if part, ok := q.one(r, len(base.hosts), claim{service.View{Host: c.Host}, k.At, k.Direct, callers{}, c.Terms, 0}); ok {
			p.add(part)
		}
	}
}

// one is what one of some hosts wants of an address.
func (q *Queries) one(r *query.Reader, hosts int, k claim) (Part, bool) {
	if hosts <= maxDirect {
		return q.wants(r, k)
	}
	part, ok := q.part.Get(r, k)
	if !ok {
		return Part{}, false
	}
	return part[0], true
}

// Losses are what a host that all see wants of an address, and an older one has.
func (q *Queries) Losses(r *query.Reader, host string, at service.Address) []Loss {
	var out []Loss
	if at.IP != "" {
		plan, _ := q.Base(r, All{At: at})
		for _, l := range plan.losses {
			if l.host == host {
				out = append(out, l.Loss)
			}
		}
		return out
	}
	own, _ := q.part.Get(r, claim{View: service.View{Host: host}, at: at})
	seen := map[match]bool{}
	for _, p := range own {
		for _, rule := range p.Rules {
			for m := range rule.matches() {
				if seen[m] || len(out) == maxLosses {
					continue
				}
				seen[m] = true
				if winner, ok := q.winner(r, at, m, rule); ok && winner != host {
					out = append(out, Loss{winner, m.block, m.name})
				}
			}
		}
	}
	return out
}

// winner is the oldest service with a rule for a match, if it does something else with it.
func (q *Queries) winner(r *query.Reader, at service.Address, m match, rule Rule) (host string, ok bool) {
	for first := range q.rivals.Group(r, All{At: at}, m).All() {
		theirs, _ := q.part.Get(r, claim{View: service.View{Host: first.Host}, at: at})
		for _, p := range theirs {
			for _, other := range p.Rules {
				if other.has(m) {
					return first.Host, other.conflicts(rule)
				}
			}
		}
		break
	}
	return "", false
}

// claimantList is who wants an address, oldest first.
type claimantList struct {
	http    bool // HTTP hosts together do
	dynamic bool // some of those are resolved for each request
	web     bool // some of those declare the port gRPC-Web
	bound   bool // somebody has a socket there
	hosts   []service.Claimant
	gone    map[string]bool // what the base's hosts want that look different here
}

func claimants(group omap.Map[service.Claimant, omap.Unit]) claimantList {
	l := claimantList{gone: map[string]bool{}}
	for who := range group.All() {
		l.bound = l.bound || who.Bound
		switch {
		case who.Host == "" && who.Created == service.DynamicHTTP:
			l.dynamic = true
		case who.Host == "" && who.Created == service.WebHTTP:
			l.web = true
		case who.Host == "":
			l.http = true
		case who.Created == service.Never:
			l.gone[who.Host] = true
		case len(l.hosts) < maxClaimants:
			l.hosts = append(l.hosts, who)
		}
	}
	return l
}

type claim struct {
	service.View
	at     service.Address
	direct bool
	of     callers
	terms  service.Terms
	marker int64
}

type claimIn struct {
	scope.HostIn
	at     service.Address
	direct bool
	gone   bool // what it wants is what it looks like to others
	terms  service.Terms
	marker int64
}

// marker tells apart the claimants that stand for no host of their own, but for all HTTP hosts of an address: elements of a
// collection must have different keys. It is 0 for those that are hosts.
func marker(c service.Claimant) int64 {
	if c.Host != "" {
		return 0
	}
	return c.Created
}

// claimed is who wants an address, on which terms.
type claimed struct {
	host  string
	terms service.Terms
}

func (p Part) claimed() claimed { return claimed{p.Host, p.terms} }

// Part is what one service wants of the connections at an address.
type Part struct {
	Host  string
	Rules []Rule
	// Sniffed says that what turns out to be HTTP is for routes to tell.
	Sniffed bool
	Port    uint32
	terms   service.Terms
	created int64
	age     string
	hash    omap.Hash
}

// OutputName orders parts by age. A host may want an address on two terms, a listener's and its own.
func (p Part) OutputName() string {
	return string(p.terms.AppendTo([]byte(p.age + p.Host)))
}

// ContentHash covers all of it.
func (p Part) ContentHash() omap.Hash { return p.hash }

// Size is 0: a part is not sent by itself.
func (Part) Size() int { return 0 }

func (p Part) sealed(created int64) Part {
	p.created = created
	p.age = fmt.Sprintf("%016x ", uint64(created)^1<<63) // so that what is before 1970 comes first
	b := fmt.Appendf(nil, "%s%s %t %d", p.age, p.Host, p.Sniffed, p.Port)
	for _, rule := range p.Rules {
		b = fmt.Appendf(b, "\n%q %q %q %s %v", rule.Blocks, rule.Names, rule.Stat, rule.Object, rule.Conduct)
		for _, d := range rule.To {
			b = fmt.Appendf(b, " %q %q %d %d %t", d.Host, d.Subset, d.Port, d.Weight, d.ByName)
		}
	}
	p.hash = omap.Sum(b)
	return p
}

func equalParts(a, b []Part) bool {
	return len(a) == len(b) && (len(a) == 0 || a[0].hash == b[0].hash)
}
