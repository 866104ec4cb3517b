package protocol

import (
	"github.com/pilotmesh/pilot/internal/ads/protocol/claim"
	"github.com/pilotmesh/pilot/internal/ads/protocol/nameset"
	"github.com/pilotmesh/pilot/internal/ads/request"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// healthURL is the type of requests by which agents report the health of their applications: one with an error_detail is a failure.
// Nothing is sent for this type.
const healthURL = "type.googleapis.com/istio.v1.HealthInformation"

// maxReason is how many bytes of a NACK's reason are kept, and maxText how many of a text that belongs to one name, or to the proxy.
const maxReason, maxText = 16 << 10, 1 << 10

// request processes a request: first as an ACK or NACK, then as a subscription.
func (c *Core) request(q *Request, out []Action) []Action {
	health, applied := string(q.URL) == healthURL, string(q.URL) == request.AppliedURL
	if (health || applied) && !c.connected && q.Node == nil {
		return out // An agent may report before its proxy sends the first request. It repeats the report on a new stream.
	}
	if !c.connected {
		if q.Node == nil {
			return c.close(Malformed, "the first request of a stream must carry the node", out)
		}
		c.connected = true
		out = append(out, Action{Kind: Connect, Node: q.Node})
	}
	if health {
		return append(out, Action{Kind: Health, Healthy: !q.Rejected, Text: request.StatusText(q.Detail, maxText)})
	}
	if applied {
		return append(out, Action{Kind: Applied, Warming: q.Warming(), Draining: q.Draining()})
	}
	t, ok := resource.ParseType(string(q.URL))
	if !ok {
		return append(out, Action{Kind: Unknown, Text: clip(q.URL)})
	}
	switch {
	case t.PerProxy():
		return c.want(t, q, out)
	case t == resource.VirtualHost:
		return c.hostRequest(q, out)
	}
	cur := &c.cursors[t]
	out, stale := c.ackOrNack(t, cur, q, out)
	if stale && q.Variant == StateOfTheWorld {
		return out // The client sends its subscription again when it has read the latest response.
	}
	return c.subscribe(t, cur, q, out)
}

// clip limits the length of what a client sent, for a report.
func clip(b []byte) string { return string(b[:min(len(b), 128)]) }

// ackOrNack processes the request as an ACK or NACK if it is one. stale says that its nonce is not the last
// response's. On a new stream a client may still send the nonce of an older stream, so no nonce is stale before the first
// response.
func (c *Core) ackOrNack(t resource.Type, cur *cursor, q *Request, out []Action) (_ []Action, stale bool) {
	last := c.lastNonceOf(t)
	if len(q.Nonce) == 0 || last == 0 {
		return out, false
	}
	n, f := parseNonce(q.Nonce, t), cur.flight
	stale = n != last
	within := f != nil && f.stages[0].first != 0 && n >= f.stages[0].first && n <= last
	if within {
		f.answer(t, n)
	}
	switch t := cursorType(t); {
	case q.Rejected && (within || !stale):
		out = c.nack(t, cur, n, q, out)
	case within:
		out = c.ack(t, cur, out)
	case stale:
		out = append(out, Action{Kind: Expired, Type: t})
	}
	return out, stale
}

// ack processes an ACK. It acknowledges all responses up to its nonce, because a client answers in order. A stage is
// acknowledged with its last response.
func (c *Core) ack(t resource.Type, cur *cursor, out []Action) []Action {
	f := cur.flight
	n := f.completed()
	switch {
	case n == 0:
		return out
	case !f.failed():
		cur.rejections.Acknowledged()
		f.stages = f.stages[n:]
		if len(f.stages) == 0 {
			cur.flight = nil
		}
		out = append(out, Action{Kind: Acked, Type: t, State: cur.acknowledged().state})
	case n == len(f.stages):
		c.endFlight(t, cur)
	}
	if t == resource.Cluster && c.variant == StateOfTheWorld {
		c.bound.edsNonceAtCDSAck = c.cursors[resource.Endpoint].nonce
	}
	return out
}

// subscribe processes what the request subscribes to and unsubscribes from.
func (c *Core) subscribe(t resource.Type, cur *cursor, q *Request, out []Action) []Action {
	first := cur.sub == nil
	if q.Variant == Delta && !first && q.Subscribes+q.Drops == 0 {
		return out
	}
	digest := q.Digest()
	if q.Variant == StateOfTheWorld {
		if !first && digest == cur.namesDigest {
			return out
		}
		cur.namesDigest = digest
	}
	legacy := !cur.namesGiven
	cur.namesGiven = cur.namesGiven || q.Subscribes > 0 || (q.Variant == Delta && !first)
	d := c.shared.subscriptions.Apply(cur.sub, q, digest, t, legacy)
	if d.TooMany {
		return c.close(TooMuch, "more names subscribed than one stream may have, or longer ones", out)
	}
	if c.split.on && t == resource.Route && d.Dropped.Len() > 0 {
		out = c.retract(cur, d.Dropped, out)
	}
	cur.sub = d.Sub
	if t == resource.Cluster {
		c.narrowClusters()
	}
	cur.open.names = nameset.Union(nameset.Subtract(cur.open.names, d.Dropped), d.Forced)
	cur.open.all = cur.open.all || d.All
	if c.pinning.pins != nil && t == resource.Route {
		c.updateView() // The content pinned with a hidden cluster depends on the subscribed routes.
	}
	if first {
		c.firstRequest(t, cur, q)
	}
	return out
}

// firstRequest processes what only the first request for a type says.
func (c *Core) firstRequest(t resource.Type, cur *cursor, q *Request) {
	if t == resource.Endpoint {
		c.bound.edsRequested = c.timer.now
	}
	// An empty subscription of a type without wildcard needs no response.
	cur.open.initial = t.Wildcard() || cur.sub.Names.Len() > 0
	if q.Initials == 0 {
		if t == resource.Route {
			c.retractClaims(cur)
		}
		return
	}
	// Envoy waits longer before each attempt to connect, up to 30 seconds, until it has received a response: GrpcStream::onReceiveMessage
	// resets the back-off (source/extensions/config_subscription/grpc/grpc_stream.h). So one type is answered even if nothing has changed.
	// An agent that asks for names learns from the answer that those it has kept are up to date.
	cur.open.initial = t == resource.Cluster || t == resource.NameTable
	if c.linger == lingerUnneeded && t != resource.NameTable {
		c.linger = lingerDue
	}
	if t == resource.Route {
		c.chooseForm(q)
	}
	if c.view.state == nil || t == resource.Route && c.awaitsHostVersions() {
		cur.open.resume = q
	} else {
		c.resume(t, q)
	}
}

// resume compares the initial_resource_versions of a reconnecting client with the state it should have. The client is then
// treated as if it had been sent a state on this stream: the present one if everything agrees, else the present one under
// a layer that describes the differences.
func (c *Core) resume(t resource.Type, q *Request) {
	cur := &c.cursors[t]
	cur.open.resume = nil
	to := c.target(step{typ: t, followsClusters: t == resource.Listener || t == resource.Route})
	if to.state == nil {
		to = c.view // Any state can serve as the base of the description.
	}
	// After a restart, many clients of a class reconnect with equal requests. The comparison is shared.
	of := claim.Client{Type: t, Request: q, Sub: cur.sub, Asked: cur.open.names, OnDemand: c.demandsHosts()}
	if t == resource.Route && c.split.on {
		of.Split, of.Hosts = true, c.split.versions
	}
	found := c.shared.resumed.Get(of.Key(to.state), func() claim.Comparison { return of.Compare(c.shared.subscriptions, to.state) })
	if t == resource.Route {
		c.split.blind = c.awaitsHostVersions()
		c.split.retracted, c.split.versions = nameset.Union(c.split.retracted, found.Unwanted), nil
		cur.open.strays = nameset.Union(cur.open.strays, found.Strays)
	}
	cur.sub, cur.open.names = found.Sub, found.Forced
	if found.Equal {
		cur.sent = to
	} else {
		cur.sent = point{state: found.Had, partial: true} // Its order number 0 is below every published state's.
	}
	c.linkAssignments(t, cur)
}

// linkAssignments notes which clusters the assignments of a resumed client belong to, once both types are known.
func (c *Core) linkAssignments(t resource.Type, cur *cursor) {
	switch endpoints := &c.cursors[resource.Endpoint]; t {
	case resource.Cluster:
		if endpoints.clusters == nil {
			endpoints.clusters = cur.sent.state
		}
	case resource.Endpoint:
		if cur.clusters == nil {
			cur.clusters = c.cursors[resource.Cluster].sent.state
		}
	}
}

// Arrived reports whether the client has asked for all that an Envoy asks for at first, and the core keeps no request to compare.
func (c *Core) Arrived() bool {
	for _, t := range []resource.Type{resource.Cluster, resource.Endpoint, resource.Listener, resource.Route} {
		if c.cursors[t].sub == nil {
			return false
		}
	}
	return !c.Compares()
}

// Compares reports whether the core keeps requests of a client that connects again, until it can compare the versions in them with a state.
func (c *Core) Compares() bool {
	if c.split.versions != nil {
		return true
	}
	for t := range c.cursors {
		if c.cursors[t].open.resume != nil {
			return true
		}
	}
	return false
}
