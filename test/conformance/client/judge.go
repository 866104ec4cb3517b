package client

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
)

// take takes one message in: it is judged, becomes what the client has unless it is rejected, and is answered.
func (c *Client) take(raw []byte) (*Response, error) {
	r, faults, err := decode(c.Variant, raw, c.Checker)
	if err != nil {
		return nil, err
	}
	r.Index = len(c.Log)
	c.Log = append(c.Log, r)
	c.Faults = append(c.Faults, faults...)
	c.judge(r)
	if c.Policy != nil {
		r.Answer = c.Policy(r)
	}
	if !r.Known {
		return r, nil
	}
	s := &c.types[r.Type]
	s.nonce = r.Nonce
	c.compare(r)
	if c.Refuses != nil {
		return r, c.ended(c.pick(r))
	}
	if r.Answer == Nack {
		return r, c.ended(c.Reject(r, "rejected by the test: "+strings.Join(append(slices.Clone(r.Put), r.Again...), " ")))
	}
	c.install(r)
	if c.Follow {
		c.minds(r)
		if err := c.follow(r.Type); err != nil {
			return r, c.ended(err)
		}
	}
	if r.Answer == Hold {
		return r, nil
	}
	return r, c.ended(c.acknowledge(r))
}

// pick stores the resources of a response that are not refused, and rejects it if one is refused.
func (c *Client) pick(r *Response) error {
	var refused []string
	kept := *r
	kept.Resources, kept.Put = nil, nil
	for _, res := range r.Resources {
		switch had := c.Get(r.Type, res.Name); {
		case !c.Refuses(res):
			kept.Resources = append(kept.Resources, res)
			if slices.Contains(r.Put, res.Name) {
				kept.Put = append(kept.Put, res.Name)
			}
		case had != nil && c.Variant == SotW:
			kept.Resources = append(kept.Resources, had)
			fallthrough
		default:
			refused = append(refused, res.Name)
		}
	}
	c.install(&kept)
	if c.Follow {
		c.minds(&kept)
		if err := c.follow(r.Type); err != nil {
			return err
		}
	}
	if len(refused) == 0 {
		return c.acknowledge(r)
	}
	r.Answer = Nack
	return c.Reject(r, fmt.Sprintf("Error adding/updating %s(s) %s: refused by the test", r.Type, strings.Join(refused, ", ")))
}

// ended lets the error of a stream that is over pass: responses that arrived before are processed, and then Next returns the error.
func (c *Client) ended(err error) error {
	if errors.Is(err, ErrEnded) {
		return nil
	}
	return err
}

func (c *Client) blame(rule, format string, args ...any) {
	c.Faults = append(c.Faults, Fault{rule, fmt.Sprintf(format, args...)})
}

// judge checks the rules for every response.
func (c *Client) judge(r *Response) {
	kind := r.URL
	if r.Known {
		kind = r.Type.String()
	}
	switch {
	case r.Nonce == "":
		c.blame("nonce/present", "%s response %d has no nonce", kind, r.Index)
	case c.nonces[r.Nonce]:
		c.blame("nonce/present", "%s response %d has a nonce of an earlier one, %q", kind, r.Index, r.Nonce)
	}
	c.nonces[r.Nonce] = true
	if c.Variant == SotW && r.Version == "" {
		c.blame("version/present", "%s response %d has no version_info", kind, r.Index)
	}
	if r.Known && !c.types[r.Type].asked {
		c.blame("first/type", "response %d is of type %s, which was not asked for", r.Index, kind)
	}
	names := map[string]bool{}
	for _, res := range r.Resources {
		if names[res.Name] {
			c.blame("content/no-duplicates", "%s response %d has %q twice", kind, r.Index, res.Name)
		}
		names[res.Name] = true
		if res.URL != r.URL {
			c.blame("first/type", "%s response %d has a resource of type %q", kind, r.Index, res.URL)
		}
		if res.TTL {
			c.blame("version/no-ttl", "%s response %d: %q has a time to live", kind, r.Index, res.Name)
		}
		if c.Variant == Delta && res.Version == "" {
			c.blame("version/present", "%s response %d: %q has no version", kind, r.Index, res.Name)
		}
		if r.Known && !r.Type.Wildcard() && !c.types[r.Type].ever[res.Name] {
			c.blame("first/only-named", "%s response %d has %q, which was never asked for", kind, r.Index, res.Name)
		}
	}
	for _, n := range r.Removed {
		if names[n] {
			c.blame("content/no-duplicates", "%s response %d holds %q, or removes it already, and removes it", kind, r.Index, n)
		}
		names[n] = true
		if r.Known && !c.types[r.Type].had[n] && !c.types[r.Type].ever[n] {
			c.blame("removal/never-had", "%s response %d removes %q, which the client neither had nor asked for", kind, r.Index, n)
		}
	}
}

// compare says what a response means for the client.
func (c *Client) compare(r *Response) {
	s := &c.types[r.Type]
	names := map[string]bool{}
	for _, res := range r.Resources {
		names[res.Name] = true
		if res.Same(s.held[res.Name]) {
			r.Again = append(r.Again, res.Name)
		} else {
			r.Put = append(r.Put, res.Name)
		}
	}
	r.Gone = slices.Clone(r.Removed)
	if c.Variant == SotW && r.Type.Wildcard() {
		for _, n := range c.Names(r.Type) {
			if !names[n] {
				r.Gone = append(r.Gone, n)
			}
		}
	}
}

// install makes a response what the client has.
func (c *Client) install(r *Response) {
	s := &c.types[r.Type]
	for _, n := range r.Gone {
		delete(s.held, n)
		delete(c.warming, n)
	}
	for _, res := range r.Resources {
		// A resource dropped since may still have been on its way.
		if !c.Covers(r.Type, res.Name) {
			continue
		}
		s.held[res.Name], s.had[res.Name] = res, true
		if r.Type == EDS {
			delete(c.warming, res.Name)
		}
	}
	if r.Type == CDS {
		for _, n := range r.Put {
			if s.held[n] == nil {
				continue
			}
			if m, ok := s.held[n].Message.(*clusterv3.Cluster); ok && EDSName(m) != "" {
				c.warming[EDSName(m)] = true
			}
		}
	}
}

// minds checks what an Envoy minds: that nothing it has sends to a cluster it does not have. It is asked after every
// response, so an order of sending that leaves a gap is seen.
func (c *Client) minds(r *Response) {
	if !c.types[CDS].asked {
		return
	}
	rule, types := "order/make-before-break", []Type{r.Type}
	switch r.Type {
	case CDS:
		if len(r.Gone) == 0 {
			return
		}
		rule, types = "order/break-last", []Type{LDS, RDS}
	case EDS:
		return
	case LDS, RDS:
	}
	for _, t := range types {
		for _, n := range c.Names(t) {
			m := c.types[t].held[n].Message
			if m == nil || r.Type != CDS && !slices.Contains(r.Put, n) {
				continue
			}
			for _, ref := range ClusterRefs(m) {
				if c.types[CDS].held[ref] == nil {
					c.blame(rule, "after %s response %d, %s %q sends to cluster %q, which the client does not have", r.Type, r.Index, t, n, ref)
				}
			}
		}
	}
}

// Warming lists the clusters that changed and whose assignment did not come since. Envoy keeps them back.
func (c *Client) Warming() []string {
	var names []string
	for n := range c.warming {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Loose lists what the client's resources refer to and it does not have.
func (c *Client) Loose() []string {
	var loose []string
	missing := func(t Type, n string, to Type, ref string) {
		loose = append(loose, fmt.Sprintf("%s %q refers to %s %q", t, n, to, ref))
	}
	for _, n := range c.Names(CDS) {
		if m, ok := c.Get(CDS, n).Message.(*clusterv3.Cluster); ok {
			if name := EDSName(m); name != "" && c.Get(EDS, name) == nil {
				missing(CDS, n, EDS, name)
			}
		}
	}
	for _, t := range []Type{LDS, RDS} {
		for _, n := range c.Names(t) {
			m := c.Get(t, n).Message
			if m == nil {
				continue
			}
			for _, ref := range ClusterRefs(m) {
				if c.Get(CDS, ref) == nil {
					missing(t, n, CDS, ref)
				}
			}
			if l, ok := m.(*listenerv3.Listener); ok {
				for _, ref := range RouteNames(l) {
					if c.Get(RDS, ref) == nil {
						missing(t, n, RDS, ref)
					}
				}
			}
		}
	}
	return loose
}

// Collisions lists listeners that Envoy refuses because another one has their address.
func (c *Client) Collisions() []string {
	var found []string
	owner := map[string]string{}
	for _, n := range c.Names(LDS) {
		l, ok := c.Get(LDS, n).Message.(*listenerv3.Listener)
		if !ok || l.GetInternalListener() != nil {
			continue
		}
		sa := l.GetAddress().GetSocketAddress()
		if sa == nil || sa.GetPortValue() == 0 {
			continue
		}
		address := fmt.Sprintf("%s %s:%d", corev3.SocketAddress_Protocol_name[int32(sa.Protocol)], sa.Address, sa.GetPortValue())
		if other, taken := owner[address]; taken {
			found = append(found, fmt.Sprintf("listeners %q and %q both have %s", other, n, address))
		}
		owner[address] = n
	}
	return found
}
