package protocol

import (
	"slices"
	"time"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// maxListed is the largest number of names that a status lists.
const maxListed = 20

// TypeStatus describes the progress of a stream in one type. It is meant for debug pages and metrics.
type TypeStatus struct {
	Type resource.Type
	// Sent and Acked are the revisions of the states that the client was sent and has acknowledged.
	Sent  store.Revision
	Acked store.Revision
	// InFlight is set if a response is not acknowledged.
	InFlight bool
	// Nonce is the last response's nonce; empty before the first response.
	Nonce string
	// Wildcard and Names describe the subscription. Names is the number of names.
	Wildcard bool
	Names    int
	// Rejected is the reason of the last NACK. It is empty after an ACK, and when nothing of the rejected content is wanted any more.
	Rejected string
	// HeldBack is the number of resources and virtual hosts whose present content the client has rejected, and which are held back from it.
	HeldBack int
	// Unremoved is the number of delayed removals.
	Unremoved  int
	Subscribed bool
	// Behind is the publication time of the oldest state that the client has not been sent or has not acknowledged; the
	// zero time if there is none.
	Behind time.Time
	// Unacked are resources that were sent and are not acknowledged, in the order of sending. UnackedMore is the number of
	// further ones.
	Unacked     []Unacked
	UnackedMore int
}

// Progress is the progress of a stream in each type.
type Progress [resource.Types]TypeStatus

// Settled is the revision up to which the client has acknowledged everything that it asked for; false if it has acknowledged
// nothing of some type, or has asked for nothing.
func (p *Progress) Settled() (revision store.Revision, ok bool) {
	for _, t := range p {
		switch {
		case !t.Subscribed:
		case t.Acked == 0:
			return 0, false
		case !ok || t.Acked < revision:
			revision, ok = t.Acked, true
		}
	}
	return revision, ok
}

// HoldsBack reports whether something that the client rejected is held back from it.
func (p *Progress) HoldsBack() bool {
	return slices.ContainsFunc(p[:], func(t TypeStatus) bool { return t.HeldBack > 0 })
}

// Unacked is a resource that was sent and is not acknowledged.
type Unacked struct {
	Name string
	// Revision is the revision of the state that the resource was sent with.
	Revision store.Revision
	// Since is when the resource was sent; the zero time while it is being written.
	Since time.Time
}

// Status describes the progress of the stream in each type.
func (c *Core) Status() (all Progress) {
	for i := range all {
		t, cur := resource.Type(i), &c.cursors[i]
		s := TypeStatus{Type: t, Subscribed: cur.sub != nil, InFlight: cur.flight != nil, Unremoved: cur.removals.Len()}
		if cur.sub != nil {
			s.Wildcard, s.Names = cur.sub.Wildcard, cur.sub.Names.Len()
			s.Behind = c.behind(t, cur)
		}
		if cur.nonce > 0 {
			s.Nonce = formatNonce(cur.nonce, t)
		}
		if p := cur.sent.state; p != nil {
			s.Sent = p.Revision
		}
		if p := cur.acknowledged().state; p != nil {
			s.Acked = p.Revision
		}
		if cur.flight != nil {
			s.Unacked, s.UnackedMore = unacked(t, cur)
		}
		s.HeldBack = c.pinning.pins.CountIn(c.published.state, t)
		if s.HeldBack > 0 || !s.Behind.IsZero() {
			s.Rejected = cur.rejections.Reason
		}
		all[i] = s
	}
	return all
}

// Asked is what the client asks for by name of a type, which equal streams share, and the size of the names in bytes.
func (c *Core) Asked(t resource.Type) (names any, bytes int) {
	if sub := c.cursors[t].sub; sub != nil {
		return sub, sub.Bytes
	}
	return nil, 0
}

// Unacknowledged are resources of one type that a client was sent together and has not acknowledged for long. The client does
// not say for which of them it withholds the acknowledgement.
type Unacknowledged struct {
	Type resource.Type
	// Names are at most maxListed.
	Names []string
	// Since is when the resources were sent.
	Since time.Time
}

// Unacknowledged lists, for each type, the resources in the oldest stage if that was sent before a time.
func (c *Core) Unacknowledged(before time.Time) (all []Unacknowledged) {
	for i := range c.cursors {
		t, cur := resource.Type(i), &c.cursors[i]
		if f := cur.flight; f == nil || f.stages[0].sentAt == 0 || f.stages[0].sentAt > before.UnixNano() {
			continue
		}
		list, _ := unacked(t, cur)
		w := Unacknowledged{Type: t}
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

// behind is the publication time of the first state that the client does not have completely; the zero time if it has
// everything.
func (c *Core) behind(t resource.Type, cur *cursor) time.Time {
	switch {
	case cur.flight != nil:
		return cur.reached(0).state.Published
	case c.view.state != nil && c.differs(t, cur, c.view.state):
		return c.view.state.Published
	}
	return time.Time{}
}

// unacked lists the resources in flight that the sent state still has. more is the number of those beyond maxListed.
func unacked(t resource.Type, cur *cursor) (list []Unacked, more int) {
	f := cur.flight
	seen := map[string]bool{}
	for i := range f.stages {
		to := cur.reached(i).state
		u := Unacked{Revision: to.Revision}
		if sent := f.stages[i].sentAt; sent != 0 {
			u.Since = time.Unix(0, sent)
		}
		note := func(name string, content omap.Hash) {
			now, ok := cur.sent.state.Get(t, name)
			switch {
			case seen[name] || !cur.sub.Has(name) || !ok || now.ContentHash() != content:
			case len(list) < maxListed:
				u.Name = name
				list, seen[name] = append(list, u), true
			default:
				more++
			}
		}
		for ch := range resource.Diff(f.stages[i].before.sent.state.Layers(t), to.Layers(t)) {
			if ch.New != nil {
				note(ch.Name, ch.New.ContentHash())
			}
		}
		for n := range f.stages[i].forced.names.All() {
			if r, ok := to.Get(t, string(n)); ok {
				note(string(n), r.ContentHash())
			}
		}
	}
	return list, more
}
