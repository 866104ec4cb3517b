package protocol

import (
	"github.com/pilotmesh/pilot/internal/ads/protocol/hold"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// clusterStatesSince lists the base state and the states of clusters that were sent since.
func (c *Core) clusterStatesSince(base point) (k hold.ClusterStates) {
	clusters := &c.cursors[resource.Cluster]
	k[0], k[1] = base.state, clusters.sent.state
	if f := clusters.flight; f != nil {
		for i, s := range f.stages[f.overdueStages(&c.timer):] {
			k[2+i] = s.before.sent.state
		}
	}
	return k
}

// withoutPending is the newest state as listeners or routes may be sent it while clusters that differ from the base state
// are not acknowledged. If something is held back, the revision and the order number are an older state's, which the
// result contains completely.
func (c *Core) withoutPending(t resource.Type, base point, k hold.ClusterStates) point {
	p := c.pendingAt(base, k)
	i, sent := hold.Index(t), c.cursors[t].sent
	if p.States[i] == nil {
		return c.view
	}
	c.cursors[resource.Cluster].flight.wakeWhenOverdue(&c.timer)
	c.cursors[resource.Endpoint].flight.wakeWhenOverdue(&c.timer)
	to := point{state: p.States[i], seq: base.seq}
	if p.DiffersFromBase[i] || sent.seq > base.seq {
		to.seq = sent.seq
	}
	return c.withPins(to) // Held-back content may be older than a pin.
}

// pendingAt returns the last result if it is still valid, else a new one.
func (c *Core) pendingAt(base point, clusters hold.ClusterStates) *hold.Pending {
	forced, last := c.cursors[resource.Route].open.names, c.bound.pending
	k := hold.Key{View: c.view.state, Base: base.state, Clusters: clusters, Forced: forced.Hash()}
	same := last != nil && last.Key.View == k.View && last.Key.Base == k.Base && last.Key.Clusters == k.Clusters &&
		last.Key.Forced == k.Forced
	for t := resource.Listener; t <= resource.Route; t++ {
		i, sent := hold.Index(t), c.cursors[t].sent
		k.Sent[i], k.Newer[i] = sent.state, sent.seq > base.seq
		// The result stays valid when the type is sent exactly that result.
		same = same && (sent.state == last.Key.Sent[i] || sent.state == last.States[i])
	}
	if !same {
		c.bound.pending = c.shared.pending.Get(k, func() *hold.Pending { return hold.New(k, forced) })
	}
	return c.bound.pending
}
