package protocol

import (
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/xds/request"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// nack takes a rejection in: what was rejected is pinned, and the type stands again where it stood before, so that
// everything else that changed is sent again, and never the rejected bytes. If more responses of the flight are on
// their way, their answers are waited for first, for a while: they may be rejections, too.
func (c *Core) nack(t resource.Type, cur *cursor, nonce uint64, q *Request, out []Action) []Action {
	f := cur.flight
	p := f.part(nonce)
	if p == nil && (f == nil || !f.joined) || p != nil && p.rejected {
		return out // said before, or of no response
	}
	cur.refused = request.StatusText(q.Detail, maxReason)
	out = append(out, Action{Kind: Rejected, Type: t, Text: cur.refused, State: cur.at.state})
	if p == nil {
		f.lost, f.messages = true, nil // what the response held is forgotten: all of it is sent again, and judged then
	} else {
		p.rejected = true
		out = c.indict(t, cur, p, out)
	}
	if nonce == cur.nonce && len(f.messages) == 0 {
		c.land(t, cur)
	}
	return out
}

// indict holds back what may have caused the rejection of a response.
func (c *Core) indict(t resource.Type, cur *cursor, p *part, out []Action) []Action {
	f := cur.flight
	cur.strikes++
	pins, sure, explained := c.suspects(cur, t, p)
	if explained {
		cur.strikes-- // sent before it was known what is bad
		return out
	}
	// With nothing to hold back, or too much, the client keeps what it has until the content changes.
	if len(pins) > 0 && c.pins.len()+len(pins) <= maxPins {
		f.rejected = append(f.rejected, pins...)
		f.messages = nil
		c.pins = c.pins.with(pins)
		out = c.blame(t, cur, pins, sure, out)
	}
	return out
}

// land ends the flight of the type: all its responses are answered, or what is not is not waited for any longer. If one was
// rejected, the type returns to where it was.
func (c *Core) land(t resource.Type, cur *cursor) {
	f := cur.flight
	cur.flight = nil
	if !f.bad() {
		return
	}
	doubtful, had := f.doubtful(t, cur)
	cur.restore(*f.before())
	for n := range f.gone().All() {
		cur.owed = cur.owed.With(omap.Del[omap.Name, *resource.Resource](n))
	}
	if t == resource.Cluster { // the client drops the assignments of clusters that it drops: what comes again, comes with them
		c.cursors[resource.Endpoint].clusters = cur.at.state
	}
	asked := f.asked()
	cur.doubt = union(asked.doubt, doubtful)
	if holdsRemovals(t) && len(had) > 0 {
		cur.owed, cur.owedSince = cur.owed.With(had...), c.now.seq
	}
	cur.forced, cur.all = union(union(asked.forced, cur.forced), cur.doubt), cur.all || asked.all
	for i := range f.rejected {
		p := &f.rejected[i]
		if r, ok := cur.owed.Get(omap.Name(p.Name)); ok && p.Piece == "" && r.ContentHash() == p.Rejected {
			cur.owed = cur.owed.With(omap.Del[omap.Name, *resource.Resource](omap.Name(p.Name))) // the client might have had it, but has rejected it
		}
		// What was asked for is answered with what is held instead; with nothing, if nothing is.
		if p.Piece == "" && p.Held == nil && !cur.doubt.Has(omap.Name(p.Name)) {
			cur.forced = without(cur.forced, omap.Name(p.Name))
		}
	}
	if !holdsRemovals(t) {
		c.postpone()
	}
	c.look()
}

// postpone makes removals wait for listeners and routes anew: what the client keeps of them may point at what was to go.
func (c *Core) postpone() {
	c.now.seq++
	for t := range c.cursors {
		cur := &c.cursors[t]
		cur.owedSince = c.now.seq
		if cur.flight != nil {
			for i := range cur.flight.stages {
				cur.flight.stages[i].before.owedSince = c.now.seq
			}
		}
	}
}

// blame reports what is held back for good, and prepares trials of what may be innocent.
func (c *Core) blame(t resource.Type, cur *cursor, pins []Pin, sure bool, out []Action) []Action {
	if n := len(cur.trials); n > 0 {
		cur.trials[n-1].guilty = false // the half before it is to blame, which says nothing about this one
	}
	if !sure {
		keys := make([]pinKey, len(pins))
		for i := range pins {
			keys[i] = pins[i].key()
		}
		cur.trials = halve(cur.trials, keys)
		cur.failed++
	}
	if cur.strikes == maxStrikes { // what waits for its trial stays held back for now, and that is to be known
		pins = slices.Clip(pins)
		for _, g := range cur.trials {
			pins = append(pins, pinsOf(g.keys)...)
		}
		sure = true
	}
	if sure {
		out = append(out, Action{Kind: Pinned, Type: t, Pins: pins, Text: cur.refused})
	}
	return out
}

// trial is a group of resources or pieces some of which may have caused a rejection that did not say which. When there is
// nothing else to do they are tried again in halves, so that a bad one does not hold back those that changed with it.
type trial struct {
	keys []pinKey
	// guilty: one of them it must be, if the half tried before this one is accepted.
	guilty bool
}

func halve(trials []trial, keys []pinKey) []trial {
	half := len(keys) / 2
	return append(trials, trial{keys[half:], true}, trial{keys[:half], false})
}

func pinsOf(keys []pinKey) []Pin {
	pins := make([]Pin, len(keys))
	for i, k := range keys {
		pins[i] = Pin{Type: k.typ, Name: k.name, Piece: k.piece, Rejected: k.rejected}
	}
	return pins
}

// retry releases the next group that may be innocent. It reports whether there may be something to send.
func (c *Core) retry(out []Action) ([]Action, bool) {
	for t := range c.cursors {
		cur := &c.cursors[t]
		if len(cur.trials) > 0 && cur.strikes < maxStrikes && cur.failed < maxTrials && cur.flight == nil && cur.at.state == c.view.state && !cur.requested() {
			return c.release(resource.Type(t), cur, out), true
		}
	}
	return out, false
}

func (c *Core) release(t resource.Type, cur *cursor, out []Action) []Action {
	n := len(cur.trials)
	g := cur.trials[n-1]
	cur.trials = cur.trials[:n-1]
	guilty := g.guilty && cur.accepted && !slices.ContainsFunc(cur.tried, func(k pinKey) bool { return !k.current(cur.at.state) })
	cur.accepted, cur.tried = false, nil
	switch {
	case guilty && len(g.keys) == 1:
		return append(out, Action{Kind: Pinned, Type: t, Pins: pinsOf(g.keys), Text: cur.refused})
	case guilty:
		cur.trials = halve(cur.trials, g.keys)
		return out
	}
	c.pins = c.pins.without(g.keys)
	// The order of states decides what may be sent; a view under other pins is a new one.
	c.now.seq++
	c.look()
	cur.tried = g.keys
	for _, k := range g.keys {
		// A name that was asked for when it was rejected may be no difference between two states.
		if k.piece == "" && cur.sub.has(k.name) && k.current(c.now.state) {
			cur.forced = with(cur.forced, omap.Name(k.name))
		}
	}
	return out
}

// current reports whether the state has the content.
func (k *pinKey) current(s *resource.State) bool {
	r, ok := s.Get(k.typ, k.name)
	if !ok || k.piece == "" {
		return ok && r.ContentHash() == k.rejected
	}
	p, ok := r.Pieces().Get(omap.Name(k.piece))
	return ok && p.ContentHash() == k.rejected
}

// suspects lists what may have caused the rejection of a response. sure: these are to blame, as far as can be told;
// otherwise one or some of them are. explained: the response held what was held back after it was sent, which will be why.
func (c *Core) suspects(cur *cursor, t resource.Type, of *part) (pins []Pin, sure, explained bool) {
	f, asked := cur.flight, cur.flight.asked()
	said := words(cur.refused)
	var named []Pin
	for _, r := range of.resources {
		old, had := f.had(t, r.Name())
		if !had || c.pins.has(pinKey{t, r.Name(), "", old.ContentHash()}) {
			old, had = nil, false // not the entry that hides it, nor something the client cannot have
		}
		forced := asked.forced.Has(omap.Name(r.Name()))
		if had && old.ContentHash() == r.ContentHash() {
			if !asked.all && !forced {
				continue // these bytes were accepted once
			}
			old = nil
		}
		suspected := suspect(t, old, r, said)
		mentioned := func(p Pin) bool { return p.mentioned(said, r) }
		if forced && !slices.ContainsFunc(suspected, mentioned) {
			// It was asked for: the client may never have been sent the pieces that the state had, and may speak of those.
			if all := suspect(t, nil, r, said); slices.ContainsFunc(all, mentioned) {
				suspected = all
			}
		}
		for _, p := range suspected {
			if c.pins.has(p.key()) {
				explained = true
				continue // a rejection that teaches nothing new is not answered
			}
			pins = append(pins, p)
			if p.mentioned(said, r) {
				named = append(named, p)
			}
		}
	}
	if len(named) > 0 && cur.strikes < maxStrikes {
		return named, distinct(named), false
	}
	return pins, len(pins) <= 1, explained
}

// distinct reports whether what was mentioned can be told apart: virtual hosts of different route configurations may have
// the same name.
func distinct(pins []Pin) bool {
	return !slices.ContainsFunc(pins, func(p Pin) bool { return p.Type == resource.Route && p.Name != pins[0].Name })
}

// suspect lists what of a changed resource may be bad: the changed pieces of a gathered one, else the whole.
func suspect(t resource.Type, old, fresh *resource.Resource, said map[string]bool) []Pin {
	whole := Pin{Type: t, Name: fresh.Name(), Rejected: fresh.ContentHash(), Held: old}
	if fresh.Pieces().Len() == 0 || old != nil && !old.SameHeader(fresh) {
		return []Pin{whole}
	}
	var before omap.Map[omap.Name, *resource.Piece]
	if old != nil {
		before = old.Pieces()
	}
	var all, named []Pin
	for ch := range omap.Diff(before, fresh.Pieces()) {
		if !ch.HasNew {
			continue
		}
		p := Pin{Type: t, Name: fresh.Name(), Piece: string(ch.Key), Rejected: ch.New.ContentHash(), HeldPiece: ch.Old, refs: ch.New.Refs()}
		all = append(all, p)
		if p.mentioned(said, fresh) {
			named = append(named, p)
		}
	}
	switch {
	case len(named) > 0:
		return named
	case len(all) == 0 || len(all) > maxPins/2:
		return []Pin{whole}
	}
	return all
}

// mentioned reports whether the reason names what the pin holds: the resource, the piece, or a cluster the piece routes
// to. For a whole route configuration any of its pieces will do.
func (p *Pin) mentioned(said map[string]bool, r *resource.Resource) bool {
	if p.Piece != "" {
		return said[p.Piece] || saidOf(said, p.refs)
	}
	if said[p.Name] {
		return true
	}
	for name, piece := range r.Pieces().All() {
		if said[string(name)] || saidOf(said, piece.Refs()) {
			return true
		}
	}
	return false
}

func saidOf(said map[string]bool, names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return said[n] })
}

// words cuts a reason into what may be names. Names hold neither blanks nor quotes; what ends a sentence or opens an
// explanation is no part of one.
func words(reason string) map[string]bool {
	said := map[string]bool{}
	for _, w := range strings.FieldsFunc(reason, func(r rune) bool { return strings.ContainsRune(" \t\r\n'\"`,;()[]{}<>=", r) }) {
		said[w] = true
		said[strings.TrimRight(w, ".:!")] = true
	}
	return said
}
