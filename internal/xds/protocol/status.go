package protocol

import (
	"time"

	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/store"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// maxListed bounds how many names a status lists.
const maxListed = 20

// TypeStatus is where a stream stands in one type, for people.
type TypeStatus struct {
	Type       resource.Type
	Sent       store.Revision // what it was sent
	Acked      store.Revision // what it acknowledged
	InFlight   bool
	Nonce      string
	Wildcard   bool
	Names      int
	Rejected   string // the reason of the last NACK, if no ACK came since
	HeldBack   int    // pins of the type
	Unremoved  int    // removals that wait for routes
	Subscribed bool
	// Behind is when that was published which the client has not acknowledged, or was not sent yet; the zero time if it
	// has acknowledged everything.
	Behind time.Time
	// Unacked are resources that were sent and are not acknowledged, those that were sent first at the beginning. UnackedMore is
	// how many there are beside them.
	Unacked     []Unacked
	UnackedMore int
}

// Unacked is a resource that was sent and is not acknowledged.
type Unacked struct {
	Name     string
	Revision store.Revision // of the state it was sent with
	Since    time.Time      // when it was sent; the zero time while it is being written
}

// Status says where the stream stands in each type.
func (c *Core) Status() (all [resource.Types]TypeStatus) {
	for i := range all {
		t, cur := resource.Type(i), &c.cursors[i]
		s := TypeStatus{Type: t, Subscribed: cur.sub != nil, InFlight: cur.flight != nil, Rejected: cur.refused, Unremoved: cur.owed.Len()}
		if cur.sub != nil {
			s.Wildcard, s.Names = cur.sub.wildcard, cur.sub.names.Len()
			s.Behind = c.behind(t, cur)
		}
		if cur.nonce > 0 {
			s.Nonce = formatNonce(cur.nonce, t)
		}
		if p := cur.at.state; p != nil {
			s.Sent = p.Revision
		}
		if p := cur.acked().state; p != nil {
			s.Acked = p.Revision
		}
		if cur.flight != nil {
			s.Unacked, s.UnackedMore = unacked(t, cur)
		}
		s.HeldBack = c.pins.count(t)
		all[i] = s
	}
	return all
}

// Withheld are resources of one type that a client was sent together and has not acknowledged for long. Some of them it
// waits with: the client does not say which.
type Withheld struct {
	Type  resource.Type
	Names []string // as many as a status lists
	Since time.Time
}

// Withheld is what was sent first of each type and has not been acknowledged since before a time.
func (c *Core) Withheld(before time.Time) (all []Withheld) {
	for i := range c.cursors {
		t, cur := resource.Type(i), &c.cursors[i]
		if f := cur.flight; f == nil || f.stages[0].sent == 0 || f.stages[0].sent > before.UnixNano() {
			continue
		}
		list, _ := unacked(t, cur)
		w := Withheld{Type: t}
		for _, u := range list {
			if len(w.Names) == 0 {
				w.Since = u.Since
			}
			if u.Since.Equal(w.Since) && !u.Since.After(before) {
				w.Names = append(w.Names, u.Name)
			}
		}
		if len(w.Names) > 0 {
			all = append(all, w)
		}
	}
	return all
}

// behind is when the first state was published that the client lacks something of.
func (c *Core) behind(t resource.Type, cur *cursor) time.Time {
	switch {
	case cur.flight != nil:
		return cur.flight.reached(0, cur).state.Published
	case c.view.state != nil && c.differs(t, cur, c.view.state):
		return c.view.state.Published
	}
	return time.Time{}
}

// reached is where the type stood after the i-th stage.
func (f *flight) reached(i int, cur *cursor) point {
	if i+1 < len(f.stages) {
		return f.stages[i+1].before.at
	}
	return cur.at
}

// unacked lists what the stages of the flight brought and the client is still to have.
func unacked(t resource.Type, cur *cursor) (list []Unacked, more int) {
	f := cur.flight
	seen := map[string]bool{}
	for i := range f.stages {
		to := f.reached(i, cur).state
		u := Unacked{Revision: to.Revision}
		if sent := f.stages[i].sent; sent != 0 {
			u.Since = time.Unix(0, sent)
		}
		note := func(name string, content omap.Hash) {
			now, ok := cur.at.state.Get(t, name)
			switch {
			case seen[name] || !cur.sub.has(name) || !ok || now.ContentHash() != content:
			case len(list) < maxListed:
				u.Name = name
				list, seen[name] = append(list, u), true
			default:
				more++
			}
		}
		for ch := range resource.Diff(f.stages[i].before.at.state.Layers(t), to.Layers(t)) {
			if ch.New != nil {
				note(ch.Name, ch.New.ContentHash())
			}
		}
		for n := range f.stages[i].forced.All() {
			if r, ok := to.Get(t, string(n)); ok {
				note(string(n), r.ContentHash())
			}
		}
	}
	return list, more
}
