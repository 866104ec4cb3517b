package protocol

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/ads/protocol/content"
	"github.com/pilotmesh/pilot/internal/ads/protocol/nameset"
	"github.com/pilotmesh/pilot/internal/ads/protocol/response"
	"github.com/pilotmesh/pilot/internal/ads/protocol/transition"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// A client of the delta variant may get route configurations in the split form: the virtual hosts are resources of their own (VHDS). They belong to the
// cursor of the route configurations, whose states contain them as pieces. A move sends the heads that differ, and then one response per
// route configuration with the virtual hosts that differ.
//
// Envoy asks for virtual hosts once per stream and names none. It applies virtual hosts only of route configurations that it is subscribed
// to, but lists all that it has acknowledged when it connects again. So that the list is true, the core removes the virtual hosts of a route
// configuration when the client unsubscribes from it, before it sends anything else. The claim of a client that it has a virtual host counts only if
// the client claims the route configuration, too.

// split is the state of the split form on a stream.
type split struct {
	// on is set if the stream sends the split form. It does not change after the first route configuration.
	on bool
	// asked is set when the client has asked for virtual hosts.
	asked bool
	// nonce is the number of the last response with virtual hosts; 0 before the first one.
	nonce uint64
	// blind is set if the client was resumed before it said which virtual hosts it has. Until it does, they may refer to any cluster.
	blind bool
	// since is when a reconnecting client asked for route configurations, in Unix nanoseconds.
	since int64
	// versions is the request that says which virtual hosts a reconnecting client has, until that is known of its route configurations, too; else nil.
	versions *Request
	// retracted are virtual hosts of route configurations from which the client has unsubscribed. They are removed before anything else is sent.
	retracted names
}

// SplitRoutes makes the core send route configurations in the split form, unless the client connects again and has them in the whole form: the form
// of a route configuration that an Envoy uses must not change. It must be called before the first state is published.
func (c *Core) SplitRoutes() { c.split.on = c.variant == Delta }

// Split reports whether route configurations are sent in the split form.
func (c *Core) Split() bool { return c.split.on }

// wireOf is the index of a type among the types of one cursor.
func wireOf(t resource.Type) int {
	if t == resource.VirtualHost {
		return 1
	}
	return 0
}

// cursorType is the type whose cursor a type belongs to.
func cursorType(t resource.Type) resource.Type {
	if t == resource.VirtualHost {
		return resource.Route
	}
	return t
}

// lastNonceOf is the number of the last response of a type; 0 before the first one.
func (c *Core) lastNonceOf(t resource.Type) uint64 {
	if t == resource.VirtualHost {
		return c.split.nonce
	}
	return c.cursors[t].nonce
}

// hostRequest processes a request for virtual hosts.
func (c *Core) hostRequest(q *Request, out []Action) []Action {
	if !c.split.on {
		return append(out, Action{Kind: Unknown, Text: clip(q.URL)})
	}
	cur := &c.cursors[resource.Route]
	if c.demandsHosts() {
		out = c.demandHosts(q, out)
	} else {
		out, _ = c.ackOrNack(resource.VirtualHost, cur, q, out)
	}
	if c.split.asked {
		return out
	}
	c.split.asked, c.split.blind = true, false
	if q.Initials > 0 {
		c.split.versions = q
	}
	switch {
	case cur.sub == nil || c.view.state == nil && cur.open.resume != nil:
	case cur.open.resume != nil:
		c.resume(resource.Route, cur.open.resume)
	default:
		c.retractClaims(cur)
	}
	return out
}

// chooseForm processes the versions of the route configurations that a reconnecting client has.
func (c *Core) chooseForm(q *Request) {
	c.split.since = c.timer.now
	for _, version := range q.Initial() {
		c.split.on = c.split.on && resource.IsSplitVersion(version)
	}
}

// awaitsHostVersions reports whether a reconnecting client has not yet said which virtual hosts it has.
func (c *Core) awaitsHostVersions() bool { return c.split.on && !c.split.asked }

// retractClaims removes virtual hosts that a client claims to have, and that the stream has not sent it. They are of route configurations that it does not
// claim to have.
func (c *Core) retractClaims(cur *cursor) {
	q := c.split.versions
	if c.split.versions = nil; q == nil {
		return
	}
	var list, older []string
	for name := range q.Initial() {
		route, piece := resource.SplitHostName(string(name))
		if c.demandsHosts() && resource.OnDemandRoute(route) {
			continue
		}
		if r, ok := cur.sent.state.Get(resource.Route, route); !ok || !cur.sub.Has(route) || !r.Pieces().Has(omap.Name(piece)) {
			list = append(list, string(name))
		} else {
			older = append(older, string(name))
		}
	}
	c.split.retracted = nameset.Union(c.split.retracted, nameset.Of(list))
	// The client keeps its older version of a virtual host if it rejects the version that was sent.
	cur.open.strays = nameset.Union(cur.open.strays, nameset.Of(older))
}

// retract notes that the client unsubscribes from route configurations. Their virtual hosts are removed, and unwritten ones are not sent.
func (c *Core) retract(cur *cursor, dropped names, out []Action) []Action {
	if cur.open.resume != nil && c.view.state != nil {
		c.resume(resource.Route, cur.open.resume)
	}
	if c.split.nonce == 0 && !c.split.asked {
		return out
	}
	states := []*resource.State{cur.sent.state}
	if cur.flight != nil {
		for i := range cur.flight.stages {
			states = append(states, cur.flight.stages[i].before.sent.state)
		}
	}
	var list []string
	for route := range dropped.All() {
		for _, s := range states {
			if r, ok := s.Get(resource.Route, string(route)); ok && !(c.demandsHosts() && resource.OnDemandRoute(r.Name())) {
				list = transition.AppendHosts(list, r, omap.Map[omap.Name, *resource.Piece]{})
			}
		}
	}
	ofDropped := func(host omap.Name) bool {
		route, _ := resource.SplitHostName(string(host))
		return dropped.Has(omap.Name(route))
	}
	strays, rest := nameset.Partition(cur.open.strays, ofDropped)
	cur.open.strays = rest
	c.split.retracted = nameset.Union(nameset.Union(c.split.retracted, strays), nameset.Of(list))
	return c.dropHosts(cur, dropped, out)
}

// dropHosts drops the unsent virtual hosts of route configurations. It does not wait for answers to sent ones if the client has not asked for virtual hosts:
// it drops the names before it has read their heads, and Envoy answers no virtual hosts before it has asked.
func (c *Core) dropHosts(cur *cursor, dropped names, out []Action) []Action {
	f := cur.flight
	if f == nil {
		return out
	}
	if !c.split.asked {
		f.forgetHosts(dropped)
	}
	if len(f.messages) == 0 {
		return c.ack(resource.Route, cur, out)
	}
	f.messages = slices.DeleteFunc(slices.Clone(f.messages), func(m *response.Message) bool {
		return m.Type == resource.VirtualHost && dropped.Has(omap.Name(m.Content[0].Name()))
	})
	if len(f.messages) > 0 {
		return out
	}
	f.messages = nil
	if c.sending.cursor != cur {
		f.newest().sentAt = c.timer.now
	}
	return c.ack(resource.Route, cur, out)
}

// writeRetraction emits the removal of the retracted virtual hosts. A client cannot reject it, so nothing waits for its acknowledgement.
func (c *Core) writeRetraction(out []Action) []Action {
	w := response.Writer{Variant: c.variant, Type: resource.VirtualHost, Version: response.Revision(c.view.state), ControlPlane: c.shared.controlPlane}
	m := w.Start()
	for n := range c.split.retracted.All() {
		m.Remove(string(n))
	}
	c.split.retracted = names{}
	c.lastNonce++
	c.split.nonce = c.lastNonce
	c.sending = sending{active: true}
	return append(out, Action{Kind: Send, Type: m.Type, Message: m.Seal(), Nonce: formatNonce(c.split.nonce, m.Type), State: c.view.state})
}

// splitStrays divides the strays: a move to a state removes the ones of whose route configuration the state has the content. Others stay for later.
func splitStrays(cur *cursor, to *resource.State) (now, later names) {
	return nameset.Partition(cur.open.strays, func(n omap.Name) bool {
		route, _ := resource.SplitHostName(string(n))
		r, ok := to.Get(resource.Route, route)
		return ok && content.Known(r)
	})
}

// leftovers lists the virtual hosts of responses that the client did not have before and may have if what followed is taken back.
func leftovers(responses []sentResponse, before *position) names {
	var list []string
	for _, s := range responses {
		if s.typ != resource.VirtualHost || s.rejected {
			continue
		}
		for _, r := range s.resources {
			var had omap.Map[omap.Name, *resource.Piece]
			if old, ok := before.sent.state.Get(resource.Route, r.Name()); ok {
				had = old.Pieces()
			}
			list = transition.AppendHosts(list, r, had)
		}
	}
	return nameset.Of(list)
}

// forgetHosts makes the stages wait for no answers to the virtual hosts of route configurations. Merged stages, whose responses are not known, still do.
func (f *flight) forgetHosts(dropped names) {
	for i := range f.stages {
		s := &f.stages[i]
		before := len(s.responses)
		s.responses = slices.DeleteFunc(slices.Clone(s.responses), func(r sentResponse) bool {
			return r.typ == resource.VirtualHost && dropped.Has(omap.Name(r.resources[0].Name()))
		})
		if len(s.responses) == before || f.merged {
			continue
		}
		host := wireOf(resource.VirtualHost)
		s.last[host] = 0
		for _, r := range s.responses {
			if r.typ == resource.VirtualHost {
				s.last[host] = max(s.last[host], r.nonce)
			}
		}
	}
}

// split reports whether the flight has sent virtual hosts as resources of their own.
func (f *flight) split() bool {
	return slices.ContainsFunc(f.stages, func(s stage) bool { return s.last[wireOf(resource.VirtualHost)] != 0 })
}
