package protocol

import (
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// maxReason is how much of a NACK's reason is read.
const maxReason = 16 << 10

// request takes a request in: what it acknowledges or rejects first, then what it asks for.
func (c *Core) request(q *Request, out []Action) []Action {
	if !c.connected {
		if q.Node == nil {
			return c.close(Malformed, "the first request of a stream must carry the node", out)
		}
		c.connected = true
		out = append(out, Action{Kind: Connect, Node: q.Node})
	}
	t, ok := resource.ParseType(string(q.URL))
	if !ok {
		return append(out, Action{Kind: Unknown, Text: clip(q.URL)})
	}
	if t.Personal() {
		return c.want(t, q, out)
	}
	cur := &c.cursors[t]
	out, stale := c.answer(t, cur, q, out)
	if stale && q.Variant == StateOfTheWorld {
		return out // the client will speak again when it has read the response it had not seen
	}
	return c.subscribe(t, cur, q, out)
}

// clip keeps what a client sent short enough for a report.
func clip(b []byte) string { return string(b[:min(len(b), 128)]) }

// answer takes the request as the answer to a response, if it is one. A client on a new stream may still send the nonce
// of an old one: as long as nothing was sent, no nonce is stale.
func (c *Core) answer(t resource.Type, cur *cursor, q *Request, out []Action) (_ []Action, stale bool) {
	if len(q.Nonce) == 0 || cur.nonce == 0 {
		return out, false
	}
	n, f := parseNonce(q.Nonce, t), cur.flight
	stale = n != cur.nonce
	within := f != nil && f.stages[0].first != 0 && n >= f.stages[0].first && n <= cur.nonce
	switch {
	case q.Rejected && (within || !stale):
		out = c.nack(t, cur, n, q, out)
	case within:
		out = c.accept(t, cur, n, out)
	case stale:
		out = append(out, Action{Kind: Expired, Type: t})
	}
	return out, stale
}

// accept takes an acknowledgement in. It stands for all responses up to its nonce: a client answers in order. Of a sequence only
// that of the last part says something.
func (c *Core) accept(t resource.Type, cur *cursor, nonce uint64, out []Action) []Action {
	f := cur.flight
	n := f.answered(nonce)
	switch {
	case n == 0:
		return out
	case !f.bad():
		cur.strikes, cur.refused, cur.accepted = 0, "", true
		f.stages = f.stages[n:]
		if len(f.stages) == 0 {
			cur.flight = nil
		}
		out = append(out, Action{Kind: Acked, Type: t, State: cur.acked().state})
	case n == len(f.stages):
		c.land(t, cur)
	}
	if t == resource.Cluster && c.variant == StateOfTheWorld {
		c.crossing = c.cursors[resource.Endpoint].nonce
	}
	return out
}

// subscribe takes in what the request asks for.
func (c *Core) subscribe(t resource.Type, cur *cursor, q *Request, out []Action) []Action {
	first := cur.sub == nil
	if q.Variant == Delta && !first && q.Subscribes+q.Drops == 0 {
		return out
	}
	digest := q.Digest()
	if q.Variant == StateOfTheWorld {
		if !first && digest == cur.digest {
			return out
		}
		cur.digest = digest
	}
	legacy := !cur.named
	cur.named = cur.named || q.Subscribes > 0 || (q.Variant == Delta && !first)
	d := c.shared.subscriptions.demand(cur.sub, q, digest, t, legacy)
	if d.tooMany {
		return c.close(TooMuch, "more names subscribed than one stream may have", out)
	}
	cur.sub = d.sub
	cur.forced = union(subtractNames(cur.forced, d.dropped), d.forced)
	cur.all = cur.all || d.all
	if c.pins != nil && t == resource.Route {
		c.look() // which virtual hosts are pinned along depends on which routes are asked for
	}
	if !first {
		return out
	}
	if t == resource.Endpoint {
		c.endpointsAsked = c.clock
	}
	// A type without wildcard that asks for nothing waits for nothing.
	cur.first = t.Wildcard() || d.sub.names.Len() > 0
	if q.Initials > 0 {
		cur.first = false
		if c.linger == unneeded {
			c.linger = wanted
		}
		if c.view.state == nil {
			cur.resume = q
		} else {
			c.resume(t, q)
		}
	}
	return out
}

// resume compares what a client says it has from an earlier stream with what it should have. The names are read off the
// wire; what remains is a state: the present one if they agree, else the present one under a layer that says what differs.
func (c *Core) resume(t resource.Type, q *Request) {
	cur := &c.cursors[t]
	cur.resume = nil
	to := c.target(step{typ: t, bound: t == resource.Listener || t == resource.Route})
	if to.state == nil {
		to = c.view // any state will do to say what the client has
	}
	// Clients of a class that come back after a restart say the same: it is compared once.
	k := resumeKey{t, to.state, cur.sub, cur.forced.Hash(), q.InitialDigest()}
	found := c.shared.resumed.get(k, func() resumption { return c.compare(t, cur, q, to.state) })
	cur.sub, cur.forced = found.sub, found.forced
	if found.equal {
		cur.at = to
	} else {
		cur.at = point{state: found.had, partial: true} // older than everything known
	}
	c.stand(t, cur)
}

type resumeKey struct {
	typ     resource.Type
	state   *resource.State
	sub     *subscription
	forced  omap.Hash
	initial omap.Hash
}

// resumption is what a client that comes back has, against what it is to have.
type resumption struct {
	sub    *subscription   // what it asked for, and what it has
	equal  bool            // it has everything
	had    *resource.State // else: a state that shows what it has
	forced names           // what it asked for and does not have: that is answered in any case, the rest by the difference
}

func (c *Core) compare(t resource.Type, cur *cursor, q *Request, s *resource.State) resumption {
	sub := cur.sub
	if !t.Wildcard() {
		// What a client has it asks for, also if it does not say so.
		var more []omap.Change[omap.Name, omap.Unit]
		for n := range q.Initial() {
			if !sub.names.Has(omap.Name(n)) {
				more = append(more, omap.Put(omap.Name(n), omap.Unit{}))
			}
		}
		if len(more) > 0 {
			sub = c.shared.subscriptions.of(sub.wildcard, sub.names.With(more...))
		}
	}
	equal := 0
	for n, version := range q.Initial() {
		if r, ok := s.Get(t, string(n)); ok && sub.has(r.Name()) && r.IsVersion(version) {
			equal++
		}
	}
	if equal == q.Initials && equal == c.expected(t, sub, s) {
		return resumption{sub: sub, equal: true, forced: absent(cur.forced, t, s)}
	}
	layer, said := difference(t, sub, q, s)
	had := &resource.State{}
	had.Types[t] = s.Types[t].On(layer)
	return resumption{sub: sub, had: had, forced: subtractNames(cur.forced, said)}
}

// absent is those of the names that the state does not have.
func absent(n names, t resource.Type, s *resource.State) names {
	var list []omap.Change[omap.Name, omap.Unit]
	for name := range n.All() {
		if _, ok := s.Get(t, string(name)); !ok {
			list = append(list, omap.Put(name, omap.Unit{}))
		}
	}
	return names{}.With(list...)
}

// stand notes what goes with the state a resumed cursor stands at.
func (c *Core) stand(t resource.Type, cur *cursor) {
	switch endpoints := &c.cursors[resource.Endpoint]; t {
	case resource.Cluster:
		if endpoints.clusters == nil {
			endpoints.clusters = cur.at.state
		}
	case resource.Endpoint:
		if cur.clusters == nil {
			cur.clusters = c.cursors[resource.Cluster].at.state
		}
	}
}

// expected is the number of names a client that has everything has.
func (c *Core) expected(t resource.Type, sub *subscription, s *resource.State) int {
	if sub.wildcard {
		return s.Types[t].Len()
	}
	return sub.names.Len()
}

// difference makes the layer that, put over the present state, shows what the client says it has: a name in another
// version, or one that is no more, is there with unknown content, one it does not speak of is hidden. said are the names it spoke of.
func difference(t resource.Type, sub *subscription, q *Request, s *resource.State) (layer resources, said names) {
	var held []omap.Change[omap.Name, omap.Unit]
	var over []omap.Change[omap.Name, *resource.Resource]
	for n, version := range q.Initial() {
		name := string(n)
		held = append(held, omap.Put(omap.Name(name), omap.Unit{}))
		switch r, ok := s.Get(t, name); {
		case !ok || !sub.has(name) || !r.IsVersion(version):
			over = append(over, omap.Put(omap.Name(name), resource.Gone(name)))
		}
	}
	said = names{}.With(held...)
	m := move{typ: t, to: s, sub: sub}
	for r := range m.visible() {
		if n := omap.Name(r.Name()); !said.Has(n) {
			over = append(over, omap.Put(n, resource.Hide(r.Name())))
		}
	}
	return resources{}.With(over...), said
}

func with(s names, n omap.Name) names    { return s.With(omap.Put(n, omap.Unit{})) }
func without(s names, n omap.Name) names { return s.With(omap.Del[omap.Name, omap.Unit](n)) }

func union(a, b names) names {
	if a.Len() == 0 {
		return b
	}
	var puts []omap.Change[omap.Name, omap.Unit]
	for n := range b.All() {
		puts = append(puts, omap.Put(n, omap.Unit{}))
	}
	return a.With(puts...)
}

func subtractNames(a, b names) names {
	if a.Len() == 0 || b.Len() == 0 {
		return a
	}
	var dels []omap.Change[omap.Name, omap.Unit]
	for n := range b.All() {
		dels = append(dels, omap.Del[omap.Name, omap.Unit](n))
	}
	return a.With(dels...)
}
