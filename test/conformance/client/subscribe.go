package client

import (
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
)

// Subscribe asks for names of a type, in addition to those asked for. Without names it sends the request all the same:
// the first empty one asks for everything.
func (c *Client) Subscribe(t Type, names ...string) error { return c.Change(t, names, nil) }

// Unsubscribe drops names of a type.
func (c *Client) Unsubscribe(t Type, names ...string) error { return c.Change(t, nil, names) }

// Change adds and drops names in one request.
func (c *Client) Change(t Type, add, drop []string) error {
	c.note(t, add, drop)
	if c.Variant == Delta {
		return c.Send(Request{URL: t.URL(), Subscribe: add, Unsubscribe: drop})
	}
	return c.Send(c.State(t))
}

// State is the request with the present state of a State-of-the-World client in a type.
func (c *Client) State(t Type) Request {
	s := &c.types[t]
	return Request{URL: t.URL(), Names: s.names, Version: s.accepted, Nonce: s.nonce}
}

// Resume asks for a type as the first request of a delta stream that follows an earlier one.
func (c *Client) Resume(t Type, versions map[string]string, names ...string) error {
	c.note(t, names, nil)
	for n := range versions {
		c.types[t].had[n] = true
	}
	return c.Send(Request{URL: t.URL(), Subscribe: names, Initial: versions})
}

// Adopt makes a client believe that it has what another one has, as after a reconnection.
func (c *Client) Adopt(t Type, held map[string]*Resource) {
	for n, r := range held {
		c.types[t].held[n], c.types[t].had[n] = r, true
	}
}

// Note keeps the books on names that a request of the test's own making asks for.
func (c *Client) Note(t Type, names ...string) { c.note(t, names, nil) }

// note records the subscriptions.
func (c *Client) note(t Type, add, drop []string) {
	s := &c.types[t]
	switch {
	case !s.asked:
		s.asked, s.legacy = true, len(add) == 0 && t.Wildcard()
	case s.legacy && len(add) > 0:
		// What the empty request meant is to be said from now on (State-of-the-World) and stays in force (delta).
		s.legacy = false
		s.add(Star)
	}
	for _, n := range add {
		s.add(n)
	}
	for _, n := range drop {
		s.ever[n] = true
		delete(s.now, n)
		s.legacy = s.legacy && n != Star
	}
	if len(drop) == 0 {
		return
	}
	s.names = slices.DeleteFunc(s.names, func(n string) bool { return !s.now[n] })
	for n := range s.held { // dropping a name removes its resource, except where a wildcard may still cover it
		if !c.Covers(t, n) {
			delete(s.held, n)
		}
	}
}

func (s *typeState) add(name string) {
	s.ever[name] = true
	if !s.now[name] {
		s.now[name] = true
		s.names = append(s.names, name)
	}
}

// acknowledge answers a response with its nonce.
func (c *Client) acknowledge(r *Response) error {
	if !r.Known {
		return nil
	}
	if c.Variant == Delta {
		return c.Send(Request{URL: r.URL, Nonce: r.Nonce})
	}
	c.types[r.Type].accepted = r.Version
	return c.Send(c.State(r.Type))
}

// Acknowledge answers a response that was held.
func (c *Client) Acknowledge(r *Response) error {
	r.Answer = Ack
	return c.acknowledge(r)
}

// Reject answers a response with a reason.
func (c *Client) Reject(r *Response, reason string) error {
	if c.Variant == Delta {
		return c.Send(Request{URL: r.URL, Nonce: r.Nonce, Reason: reason})
	}
	q := Request{URL: r.URL}
	if r.Known {
		q = c.State(r.Type)
	}
	q.Nonce, q.Reason = r.Nonce, reason
	return c.Send(q)
}

// follow subscribes to the names that the clusters or listeners held now refer to, and drops the others.
func (c *Client) follow(t Type) error {
	var want []string
	wanted := map[string]bool{}
	ask := func(name string) {
		if name != "" && !wanted[name] {
			wanted[name] = true
			want = append(want, name)
		}
	}
	to := EDS
	switch t {
	case CDS:
		for _, n := range c.Names(CDS) {
			if m, ok := c.types[CDS].held[n].Message.(*clusterv3.Cluster); ok {
				ask(EDSName(m))
			}
		}
	case LDS:
		to = RDS
		for _, n := range c.Names(LDS) {
			if m, ok := c.types[LDS].held[n].Message.(*listenerv3.Listener); ok {
				for _, name := range RouteNames(m) {
					ask(name)
				}
			}
		}
	case EDS, RDS:
		return nil
	}
	s := &c.types[to]
	var add, drop []string
	for _, n := range want {
		if !s.now[n] {
			add = append(add, n)
		}
	}
	for _, n := range s.names {
		if !wanted[n] {
			drop = append(drop, n)
		}
	}
	if len(add)+len(drop) == 0 {
		return nil
	}
	return c.Change(to, add, drop)
}
