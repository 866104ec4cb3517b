package protocol

import (
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// suspects is content of a rejected response that may have caused the NACK.
type suspects struct {
	pins []Pin
	// certain is set if all pins are bad as far as the server can tell. Otherwise at least one of them is.
	certain bool
	// alreadyPinned is set if the response contains content that was pinned after it was sent. That content is the likely
	// cause, so the NACK says nothing new.
	alreadyPinned bool
}

// findSuspects lists what may have caused the NACK of a response.
func (c *Core) findSuspects(cur *cursor, t resource.Type, of *sentResponse) suspects {
	former, asked, pinned := cur.flight.former(t, of.nonce), cur.flight.forced(), c.pinning.pins
	reason := wordsOf(cur.rejections.reason)
	var s suspects
	var mentioned []Pin
	for _, r := range of.resources {
		old, had := former.get(r.Name())
		if !had || pinned.anyIn(t, old) {
			old, had = nil, false // A hidden entry is no content, and the client cannot have what it rejected.
		}
		forced := asked.names.Has(omap.Name(r.Name()))
		if had && old.ContentHash() == r.ContentHash() {
			if !asked.all && !forced {
				continue // The client has accepted these bytes before.
			}
			old = nil
		}
		isMentioned := func(p Pin) bool { return p.mentionedIn(reason, r) }
		suspected := changedContent(t, old, r, reason)
		if forced && !slices.ContainsFunc(suspected, isMentioned) {
			// The client may never have been sent the pieces that the state had, so the reason may be about those.
			if all := changedContent(t, nil, r, reason); slices.ContainsFunc(all, isMentioned) {
				suspected = all
			}
		}
		for _, p := range suspected {
			if pinned.has(p.key()) {
				s.alreadyPinned = true
				continue
			}
			s.pins = append(s.pins, p)
			if isMentioned(p) {
				mentioned = append(mentioned, p)
			}
		}
	}
	if len(mentioned) > 0 && cur.rejections.consecutive < maxConsecutiveNACKs {
		return suspects{pins: mentioned, certain: distinct(mentioned)}
	}
	s.certain = len(s.pins) <= 1
	return s
}

// distinct reports whether the reason identifies the pins. It does not if they are virtual hosts of several route
// configurations, because these may have the same name.
func distinct(pins []Pin) bool {
	return !slices.ContainsFunc(pins, func(p Pin) bool { return p.Type == resource.Route && p.Name != pins[0].Name })
}

// changedContent lists what may be bad in a resource that changed from old, which is nil if the client had none. These are
// the changed pieces of a route configuration, preferably those that the reason mentions, else the whole resource.
func changedContent(t resource.Type, old, changed *resource.Resource, reason wordSet) []Pin {
	whole := Pin{Type: t, Name: changed.Name(), Rejected: changed.ContentHash(), Held: old}
	if changed.Pieces().Len() == 0 || old != nil && !old.SameHeader(changed) {
		return []Pin{whole}
	}
	var before omap.Map[omap.Name, *resource.Piece]
	if old != nil {
		before = old.Pieces()
	}
	var all, mentioned []Pin
	for ch := range omap.Diff(before, changed.Pieces()) {
		if !ch.HasNew {
			continue
		}
		p := Pin{
			Type: t, Name: changed.Name(), Piece: string(ch.Key), Rejected: ch.New.ContentHash(), HeldPiece: ch.Old,
			refs: ch.New.Refs(),
		}
		all = append(all, p)
		if p.mentionedIn(reason, changed) {
			mentioned = append(mentioned, p)
		}
	}
	switch {
	case len(mentioned) > 0:
		return mentioned
	case len(all) == 0 || len(all) > maxPins/2:
		return []Pin{whole}
	}
	return all
}

// mentionedIn reports whether the reason of a NACK mentions what the pin holds back: the resource, the piece, or a cluster
// that the piece routes to. For a whole route configuration any of its pieces is enough.
func (p *Pin) mentionedIn(reason wordSet, r *resource.Resource) bool {
	if p.Piece != "" {
		return reason[p.Piece] || reason.hasAny(p.refs)
	}
	if reason[p.Name] {
		return true
	}
	for name, piece := range r.Pieces().All() {
		if reason[string(name)] || reason.hasAny(piece.Refs()) {
			return true
		}
	}
	return false
}

// wordSet holds the words of a reason.
type wordSet map[string]bool

func (w wordSet) hasAny(names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return w[n] })
}

// wordsOf splits a reason into words that may be names of resources. Names contain neither blanks nor quotes. The text of a
// NACK may put a full stop or a colon behind a name.
func wordsOf(reason string) wordSet {
	words := wordSet{}
	for _, w := range strings.FieldsFunc(reason, func(r rune) bool { return strings.ContainsRune(" \t\r\n'\"`,;()[]{}<>=", r) }) {
		words[w] = true
		words[strings.TrimRight(w, ".:!")] = true
	}
	return words
}
