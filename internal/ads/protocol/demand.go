package protocol

import (
	"fmt"
	"slices"

	"github.com/pilotmesh/pilot/internal/ads/protocol/nameset"
	"github.com/pilotmesh/pilot/internal/ads/protocol/response"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// A client in the split form may get the virtual hosts of the route configurations of ports on demand: it asks for one by the authority of a request, which
// waits for the answer. These virtual hosts are answers to names, as secrets are (see wants). The client also has fewer clusters: first the ones in
// State.First, and from then on the ones to which its virtual hosts refer. It asks for all clusters as others do, and the core narrows the
// subscription. A cluster stays until the mesh no longer has it.
//
// A virtual host is sent when the client has acknowledged its clusters, which Envoy does when they can take requests, or after Patience. Every name is
// answered: a request whose name has no answer would wait for ever.

// maxDemanded is the largest number of virtual hosts on demand that a stream has. Clients of the workload choose the names, and Envoy never forgets one.
const maxDemanded = 5000

// fullText is the reason for which a stream gets no further virtual hosts.
func fullText() string {
	return fmt.Sprintf("the workload has used %d values of the Host header, as many as a sidecar with hosts on demand may have: requests for others get 404", maxDemanded)
}

// demand is the state of a stream whose client gets virtual hosts on demand.
type demand struct {
	on bool
	// wildcard is set if the client has asked for all clusters.
	wildcard bool
	// clusters are the clusters to which answers have referred.
	clusters names
	// heldSince is when the first of the answers came that wait for clusters, in Unix nanoseconds; 0 if none waits. held is set by mayAnswer.
	heldSince int64
	held      bool
	// absent lists names that are answered with nothing. full is set when there was no room for one of them.
	absent []string
	full   bool
}

// DemandHosts makes the core send virtual hosts, and the clusters behind them, when the client asks for them. It must be called after SplitRoutes, and before
// the first state is published. The client may have asked for clusters before.
func (c *Core) DemandHosts() {
	c.demand.on = c.split.on
	c.narrowClusters()
}

// demandsHosts reports whether the client gets virtual hosts on demand.
func (c *Core) demandsHosts() bool { return c.demand.on && c.split.on }

// demandHosts processes a request for virtual hosts.
func (c *Core) demandHosts(q *Request, out []Action) []Action {
	w := c.wantedType(resource.VirtualHost)
	nonce := parseNonce(q.Nonce, resource.VirtualHost)
	i := slices.IndexFunc(w.inFlight, func(r wantedResponse) bool { return r.nonce == nonce })
	switch {
	case i < 0:
		out, _ = c.ackOrNack(resource.VirtualHost, &c.cursors[resource.Route], q, out)
	case q.Rejected:
		c.retryHosts(w, w.inFlight[i].names)
		fallthrough
	default:
		out, _ = w.ackOrNack(resource.VirtualHost, q, out)
	}
	asked, refused := map[string]string{}, w.refused
	first := w.names == nil
	if first {
		w.names = map[string]*want{}
		for name, version := range q.Initial() {
			if _, _, ok := resource.SplitDemand(string(name)); ok {
				c.demandHost(w, asked, string(name), string(version))
			}
		}
	}
	for name := range q.Subscribed() {
		if _, listed := asked[string(name)]; !listed {
			c.demandHost(w, asked, string(name), "")
		}
	}
	added, dropped := w.add(asked, Delta), w.drop(asked, q)
	var trouble string
	if w.refused > refused && !c.demand.full {
		c.demand.full, trouble = true, fullText()
	}
	if len(added)+len(dropped) == 0 && trouble == "" {
		return out
	}
	return append(out, Action{Kind: Want, Type: resource.VirtualHost, Names: added, Dropped: dropped, Text: trouble})
}

// demandHost adds a name to the ones that a request asks for. A name for which there is no room, or that names no virtual host, is answered with nothing.
func (c *Core) demandHost(w *wantedType, asked map[string]string, name, version string) {
	_, _, ok := resource.SplitDemand(name)
	switch {
	case w.names[name] != nil:
		asked[name] = version
	case !ok || len(name) > maxWantName:
		c.demand.absent = append(c.demand.absent, name)
	case len(w.names)+len(asked) >= maxDemanded:
		c.demand.absent = append(c.demand.absent, name)
		w.refused++
	default:
		asked[name] = version
	}
}

// denyHosts answers names that the client asked for with nothing, because the mesh did not take the demand.
func (c *Core) denyHosts(names []string) {
	w := c.wantedType(resource.VirtualHost)
	for _, name := range names {
		if w.names[name] != nil {
			delete(w.names, name)
			c.demand.absent = append(c.demand.absent, name)
			w.refused++
		}
	}
}

// retryHosts processes the rejection of virtual hosts. Envoy rejects a response as a whole, so each is sent once more alone. The requests for one that is
// rejected alone end with 404.
func (c *Core) retryHosts(w *wantedType, rejected []string) {
	for _, name := range rejected {
		n := w.names[name]
		switch {
		case n == nil:
		case len(rejected) == 1:
			c.demand.absent = append(c.demand.absent, name)
		default:
			n.alone, n.sent = true, false
			w.enqueue(name, n)
		}
	}
}

// writeAbsent emits a response that ends the demand for names without an answer.
func (c *Core) writeAbsent(out []Action) []Action {
	to := response.Writer{Variant: Delta, Type: resource.VirtualHost, Version: response.Revision(c.view.state), ControlPlane: c.shared.controlPlane}
	m := to.Start()
	for _, name := range c.demand.absent {
		m.AddAbsent(name)
	}
	c.demand.absent = nil
	return c.writeAnswers(resource.VirtualHost, m.Seal(), out)
}

// demandClusters adds the clusters to which answers refer to the client's subscription.
func (c *Core) demandClusters(answers []Answer) {
	var list []string
	for _, a := range answers {
		if a.Type == resource.VirtualHost && a.Resource != nil {
			list = append(list, a.Resource.Clusters()...)
		}
	}
	if len(list) > 0 {
		c.demand.clusters = nameset.Union(c.demand.clusters, nameset.Of(list))
		c.widenClusters()
	}
}

// narrowClusters replaces the subscription to all clusters.
func (c *Core) narrowClusters() {
	cur := &c.cursors[resource.Cluster]
	if !c.demandsHosts() || cur.sub == nil || !cur.sub.Wildcard {
		return
	}
	c.demand.wildcard = true
	cur.sub = c.shared.subscriptions.Of(false, cur.sub.Names, cur.sub.Bytes)
	c.widenClusters()
}

// widenClusters adds the clusters that the client has to have to its subscription.
func (c *Core) widenClusters() {
	cur := &c.cursors[resource.Cluster]
	if !c.demandsHosts() || !c.demand.wildcard || c.view.state == nil {
		return
	}
	more := nameset.Subtract(nameset.Union(c.view.state.First, c.demand.clusters), cur.sub.Names)
	if more.Len() == 0 {
		return
	}
	bytes := cur.sub.Bytes
	var known []string
	for name := range more.All() {
		bytes += len(name)
		if _, ok := c.view.state.Get(resource.Cluster, string(name)); ok {
			known = append(known, string(name))
		}
	}
	cur.sub = c.shared.subscriptions.Of(false, nameset.Union(cur.sub.Names, more), bytes)
	if cur.sent.state != nil {
		cur.open.names = nameset.Union(cur.open.names, nameset.Of(known))
	}
}

// answers makes the next response with answers to names; nil if there is none.
func (c *Core) answers() (*response.Message, resource.Type) {
	c.demand.held = false
	m, t := c.wants.message(c.variant, c.shared.controlPlane, c.mayAnswer)
	if !c.demand.held {
		c.demand.heldSince = 0
	}
	return m, t
}

// mayAnswer reports whether a virtual host may be sent: the client has its clusters, or has been given the time to get them.
func (c *Core) mayAnswer(r *resource.Resource) bool {
	if !slices.ContainsFunc(r.Clusters(), func(name string) bool { return !c.hasCluster(name) }) {
		return true
	}
	c.demand.held = true
	if c.demand.heldSince == 0 {
		c.demand.heldSince = c.timer.now
	}
	return c.timer.overdue(c.demand.heldSince)
}

// hasCluster reports whether the client has acknowledged some content of a cluster, or asks for none.
func (c *Core) hasCluster(name string) bool {
	cur, n := &c.cursors[resource.Cluster], omap.Name(name)
	if cur.sub == nil {
		return true
	}
	if _, ok := c.view.state.Get(resource.Cluster, name); !ok || !cur.sub.Has(name) || cur.open.names.Has(n) {
		return false
	}
	if _, ok := cur.sent.state.Get(resource.Cluster, name); !ok {
		return false
	}
	if cur.flight == nil {
		return true
	}
	return !slices.ContainsFunc(cur.flight.stages[cur.flight.overdueStages(&c.timer):], func(s stage) bool {
		_, had := s.before.sent.state.Get(resource.Cluster, name)
		return !had || s.forced.names.Has(n)
	})
}
