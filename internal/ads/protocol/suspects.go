package protocol

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/ads/protocol/reject"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// suspects is content of a rejected response that may have caused the NACK.
type suspects struct {
	pins []reject.Pin
	// certain is set if all pins are bad as far as the server knows. Otherwise at least one of them is.
	certain bool
	// alreadyPinned is set if the response contains content that was pinned after it was sent. That content is the likely
	// cause, so the NACK says nothing new.
	alreadyPinned bool
}

// findSuspects lists the content that may have caused the NACK of a response.
func (c *Core) findSuspects(cur *cursor, t resource.Type, of *sentResponse) suspects {
	former, asked, pinned := cur.flight.former(t, of.nonce), cur.flight.forced(), c.pinning.pins
	reason := reject.WordsOf(cur.rejections.Reason)
	var s suspects
	var mentioned []reject.Pin
	for _, r := range of.resources {
		old, had := former.get(r.Name())
		if !had || pinned.AnyIn(t, old) {
			old, had = nil, false // A hidden entry is no content, and the client cannot have rejected content.
		}
		forced := asked.names.Has(omap.Name(r.Name()))
		if had && old.ContentHash() == r.ContentHash() {
			if !asked.all && !forced {
				continue // The client has accepted these bytes before.
			}
			old = nil
		}
		switch {
		case of.typ != resource.VirtualHost || old == nil:
		case forced:
			old = nil // The response has all virtual hosts, because the client may have none of the state.
		default:
			old = r.WithPieces(old.Pieces()) // The response says nothing about the header.
		}
		isMentioned := func(p reject.Pin) bool { return p.MentionedIn(reason, r) }
		suspected := reject.ChangedContent(t, old, r, reason)
		if of.typ == resource.Route && c.split.on {
			suspected = []reject.Pin{reject.Head(old, r)} // The response has no virtual hosts.
		}
		if forced && of.typ == t && !c.split.on && !slices.ContainsFunc(suspected, isMentioned) {
			// The client may never have been sent the pieces that the state had, so the reason may be about those.
			if all := reject.ChangedContent(t, nil, r, reason); slices.ContainsFunc(all, isMentioned) {
				suspected = all
			}
		}
		for _, p := range suspected {
			if pinned.Has(p.Key()) {
				s.alreadyPinned = true
				continue
			}
			s.pins = append(s.pins, p)
			if isMentioned(p) {
				mentioned = append(mentioned, p)
			}
		}
	}
	if len(mentioned) > 0 && cur.rejections.Consecutive < reject.MaxConsecutive {
		return suspects{pins: mentioned, certain: reject.Distinct(mentioned)}
	}
	s.certain = len(s.pins) <= 1
	return s
}
