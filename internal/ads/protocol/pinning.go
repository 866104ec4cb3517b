package protocol

import (
	"github.com/pilotmesh/pilot/internal/ads/protocol/overlay"
	"github.com/pilotmesh/pilot/internal/ads/protocol/reject"
	"github.com/pilotmesh/pilot/internal/ads/protocol/subscribe"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// pinnedView is the result of pinning for one state. in, pins and routes are its input, out is the result.
type pinnedView struct {
	in, out *resource.State
	pins    *reject.Set
	routes  *subscribe.Subscription
}

// withPins returns the state as the stream may see it: what the client has replaces content that it rejected.
func (c *Core) withPins(p point) point {
	pins := c.pinning.pins
	if pins == nil || p.state == nil {
		return p
	}
	routes := &c.cursors[resource.Route]
	v := pinnedView{in: p.state, pins: pins, routes: routes.sub}
	if last := c.pinning.last; last.in == v.in && last.pins == v.pins && last.routes == v.routes {
		return point{state: last.out, seq: p.seq}
	}
	has := overlay.Client{Pins: pins, Routes: routes.sub, Listens: c.cursors[resource.Listener].sub != nil, Forced: routes.open.names}
	for t := range c.cursors {
		cur := &c.cursors[t]
		has.Sent[t], has.Acked[t], has.Removals[t] = cur.sent.state, cur.acknowledged().state, cur.removals
	}
	v.out = c.shared.pinned.Get(has.Key(p.state), func() *resource.State { return has.Over(p.state) })
	c.pinning.last = v
	return point{state: v.out, seq: p.seq}
}
