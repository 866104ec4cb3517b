package claim

import (
	"maps"

	"github.com/pilotmesh/pilot/internal/ads/protocol/nameset"
	"github.com/pilotmesh/pilot/internal/ads/protocol/subscribe"
	"github.com/pilotmesh/pilot/internal/ads/protocol/transition"
	"github.com/pilotmesh/pilot/internal/ads/request"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Client is a client that connects again, with its claims and its requests about one type.
type Client struct {
	Type resource.Type
	// Request has the versions that the client says it has.
	Request *request.Request
	// Sub covers the names that the client asks for, and Asked are the ones of them that it asked for explicitly.
	Sub   *subscribe.Subscription
	Asked subscribe.Names
	// Split is set if the client has route configurations in the split form. Hosts is the request with the virtual hosts that it has; nil if there is none.
	Split bool
	Hosts *request.Request
	// OnDemand is set if the client gets virtual hosts on demand.
	OnDemand bool
}

// Key is everything that a comparison depends on.
type Key struct {
	typ             resource.Type
	state           *resource.State
	sub             *subscribe.Subscription
	forced, initial omap.Hash
	// hosts is the digest of the virtual hosts that the client has; zero if the route configurations are not split.
	hosts omap.Hash
	// split is set if the client has route configurations in the split form, and onDemand if it gets virtual hosts on demand.
	split, onDemand bool
}

// Key identifies the comparison with a state.
func (c *Client) Key(s *resource.State) Key {
	k := Key{typ: c.Type, state: s, sub: c.Sub, forced: c.Asked.Hash(), initial: c.Request.InitialDigest(), split: c.Split, onDemand: c.OnDemand}
	if c.Hosts != nil {
		k.hosts = c.Hosts.InitialDigest()
	}
	return k
}

// Compare compares what the client has with a state.
func (c *Client) Compare(subscriptions *subscribe.Shared, s *resource.State) Comparison {
	sub := c.withInitial(subscriptions)
	if c.Split {
		return c.compareSplit(sub, s)
	}
	return c.compareInitial(sub, s)
}

// Comparison says what a reconnecting client has of one type.
type Comparison struct {
	// Sub covers the names that the client asked for and the resources that it has.
	Sub *subscribe.Subscription
	// Equal is set if the client has everything it should have, and nothing else.
	Equal bool
	// Had is a state that describes what the client has; nil if Equal is set.
	Had *resource.State
	// Forced are names that the client asked for and does not have. The difference of the states covers all others.
	Forced subscribe.Names
	// Strays and Unwanted are virtual hosts that the client has and should not have: of route configurations that it has, and of others.
	Strays, Unwanted subscribe.Names
}

// compareInitial compares initial_resource_versions with a state.
func (c *Client) compareInitial(sub *subscribe.Subscription, s *resource.State) Comparison {
	t, q := c.Type, c.Request
	equal := 0
	for n, version := range q.Initial() {
		if r, ok := s.Get(t, string(n)); ok && sub.Has(r.Name()) && r.IsVersion(version) {
			equal++
		}
	}
	if equal == q.Initials && equal == expectedNames(t, sub, s) {
		return Comparison{Sub: sub, Equal: true, Forced: absent(c.Asked, t, s)}
	}
	layer, listed := describeInitial(t, sub, q, s)
	found := Comparison{Sub: sub, Had: &resource.State{}, Forced: nameset.Subtract(c.Asked, listed)}
	found.Had.Types[t] = s.Types[t].On(layer)
	return found
}

// compareSplit compares the versions of route configurations in the split form, and of virtual hosts, with a state.
func (c *Client) compareSplit(sub *subscribe.Subscription, s *resource.State) Comparison {
	t, q, found := c.Type, c.Request, Comparison{Sub: sub}
	hosts := all(c.Hosts)
	onDemand := func(route string) bool { return c.OnDemand && resource.OnDemandRoute(route) }
	maps.DeleteFunc(hosts, func(route string, _ []claim) bool { return onDemand(route) })
	var over []omap.Change[omap.Name, *resource.Resource]
	var listed, strays, unwanted []string
	for n, version := range q.Initial() {
		name := string(n)
		listed = append(listed, name)
		has := hosts[name]
		delete(hosts, name)
		target, ok := s.Get(t, name)
		if !ok {
			over = append(over, omap.Put(omap.Name(name), resource.UnknownContent(name)))
			for _, h := range has {
				strays = append(strays, h.name)
			}
			continue
		}
		if onDemand(name) {
			if string(version) != target.DemandHead().Version() {
				over = append(over, omap.Put(omap.Name(name), target.WithoutHeader()))
			}
		} else if r := had(target, version, has); r != target {
			over = append(over, omap.Put(omap.Name(name), r))
		}
	}
	for _, of := range hosts {
		for _, h := range of {
			unwanted = append(unwanted, h.name)
		}
	}
	found.Strays, found.Unwanted = nameset.Of(strays), nameset.Of(unwanted)
	set := nameset.Of(listed)
	if len(over) == 0 && set.Len() == found.Sub.Names.Len() {
		found.Equal, found.Forced = true, absent(c.Asked, t, s)
		return found
	}
	m := transition.Move{Type: t, To: s, Sub: found.Sub}
	for r := range m.Visible() {
		if n := omap.Name(r.Name()); !set.Has(n) {
			over = append(over, omap.Put(n, resource.Hide(r.Name())))
		}
	}
	found.Had = &resource.State{}
	found.Had.Types[t] = s.Types[t].On(omap.With(transition.Resources{}, over...))
	found.Forced = nameset.Subtract(c.Asked, set)
	return found
}

// withInitial is a subscription with the names of initial_resource_versions: a client is subscribed to the resources that it has, even if it does not
// list their names.
func (c *Client) withInitial(subscriptions *subscribe.Shared) *subscribe.Subscription {
	sub := c.Sub
	if c.Type.Wildcard() && !(c.Type == resource.Cluster && c.OnDemand) {
		return sub
	}
	var more []omap.Change[omap.Name, omap.Unit]
	bytes := sub.Bytes
	for n := range c.Request.Initial() {
		if !sub.Names.Has(omap.Name(n)) {
			more, bytes = append(more, omap.Put(omap.Name(n), omap.Unit{})), bytes+len(n)
		}
	}
	if len(more) == 0 {
		return sub
	}
	return subscriptions.Of(sub.Wildcard, omap.With(sub.Names, more...), bytes)
}

// absent is the subset of the names that the state does not have.
func absent(n subscribe.Names, t resource.Type, s *resource.State) subscribe.Names {
	var list []omap.Change[omap.Name, omap.Unit]
	for name := range n.All() {
		if _, ok := s.Get(t, string(name)); !ok {
			list = append(list, omap.Put(name, omap.Unit{}))
		}
	}
	return omap.With(subscribe.Names{}, list...)
}

// expectedNames is the number of names that a client has if it has everything it subscribed to.
func expectedNames(t resource.Type, sub *subscribe.Subscription, s *resource.State) int {
	if sub.Wildcard {
		return s.Types[t].Len()
	}
	return sub.Names.Len()
}

// describeInitial makes the layer that, put over the state, describes what the client has. A name in another version, or
// one that the state does not have, gets unknown content. A name that the client does not list is hidden. listed are the
// names that the client listed.
func describeInitial(t resource.Type, sub *subscribe.Subscription, q *request.Request, s *resource.State) (layer transition.Resources, listed subscribe.Names) {
	var puts []omap.Change[omap.Name, omap.Unit]
	var over []omap.Change[omap.Name, *resource.Resource]
	for n, version := range q.Initial() {
		name := string(n)
		puts = append(puts, omap.Put(omap.Name(name), omap.Unit{}))
		if r, ok := s.Get(t, name); !ok || !sub.Has(name) || !r.IsVersion(version) {
			over = append(over, omap.Put(omap.Name(name), resource.UnknownContent(name)))
		}
	}
	listed = omap.With(subscribe.Names{}, puts...)
	m := transition.Move{Type: t, To: s, Sub: sub}
	for r := range m.Visible() {
		if n := omap.Name(r.Name()); !listed.Has(n) {
			over = append(over, omap.Put(n, resource.Hide(r.Name())))
		}
	}
	return omap.With(transition.Resources{}, over...), listed
}
