package protocol

import (
	"github.com/pilotmesh/pilot/internal/ads/protocol/nameset"
	"github.com/pilotmesh/pilot/internal/ads/protocol/reject"
	"github.com/pilotmesh/pilot/internal/ads/protocol/subscribe"
	"github.com/pilotmesh/pilot/internal/ads/protocol/transition"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// names is a set of names.
type names = subscribe.Names

// point is a state together with its place in the order in which the stream learned of states. The order number is
// needed because content may return to an earlier value: the state alone does not say whether it is older or newer.
type point struct {
	state *resource.State
	seq   uint64
	// partial is set if the state only describes what a reconnecting client said it has of one type. Such a state says
	// nothing about the other types.
	partial bool
}

// position is what the client has of one type if it accepts everything it was sent. A stage keeps a copy from before it
// was sent, and a NACK restores that copy, so a position holds nothing that must survive a NACK.
type position struct {
	// sent is the state that the client was sent last. Its state is nil before the first response.
	sent point
	// removals are resources that the sent state no longer has but that the server has not yet removed from the client.
	// Only clusters and endpoints have such delayed removals, because routes may still refer to them.
	removals transition.Resources
	// removalsSince is the order number of the state that added to removals last. Listeners and routes must be
	// acknowledged up to it before the removals go out.
	removalsSince uint64
	// clusters is the state whose clusters the sent assignments belong to. It is used for endpoints only.
	clusters *resource.State
	// contentSum is the sum over the resources that the client has under the subscription contentSumOf. It is used for
	// the State-of-the-World version and is valid only while contentSumOf is the present subscription.
	contentSum   omap.Hash
	contentSumOf *subscribe.Subscription
}

// forcedSet lists what a response must contain because the client asked for it, even if the client should already have
// it.
type forcedSet struct {
	// names are answered with the resource or with "does not exist".
	names names
	// uncertain is the subset of names for which the server cannot know what the client has, because the client rejected
	// a response that contained them.
	uncertain names
	// strays are virtual hosts of split route configurations, named as resources of their own, that the client may have although the state that
	// it was sent does not have them. The next move to a state that has the content of their route configuration removes them.
	strays names
	// all means that everything the subscription covers must be sent.
	all bool
}

func (f forcedSet) union(g forcedSet) forcedSet {
	return forcedSet{nameset.Union(f.names, g.names), nameset.Union(f.uncertain, g.uncertain), nameset.Union(f.strays, g.strays), f.all || g.all}
}

// openRequest is what the client asked for and no response has answered. A response takes names, all and initial away.
type openRequest struct {
	forcedSet
	// initial is set until the first response of the type. That response is sent even if it is empty.
	initial bool
	// resume is a request with initial_resource_versions that arrived before the first state was published; else nil.
	resume *Request
}

// unanswered reports whether the client waits for a response.
func (o *openRequest) unanswered() bool { return o.initial || o.all || o.names.Len() > 0 }

// cursor is the progress of a stream in one type.
type cursor struct {
	// sub is nil until the client asks for the type.
	sub *subscribe.Subscription
	// namesDigest is the digest of the last list of names. It is used by State-of-the-World only.
	namesDigest omap.Hash
	// namesGiven is set once the client has named resources. From then on an empty list is no wildcard any more.
	namesGiven bool

	position
	open openRequest
	// flight holds the unacknowledged responses; nil if there are none.
	flight     *flight
	rejections reject.Search
	// nonce is the number of the last response; 0 before the first one.
	nonce uint64
}

// acknowledged is the last state that the client acknowledged.
func (c *cursor) acknowledged() point {
	if c.flight != nil {
		return c.flight.start().sent
	}
	return c.sent
}

// sendable reports whether a message of the type waits to be written.
func (c *cursor) sendable() bool { return c.flight != nil && len(c.flight.messages) > 0 }

// dropRemoval forgets the delayed removal of a name.
func (c *cursor) dropRemoval(name omap.Name) {
	c.removals = omap.With(c.removals, omap.Del[omap.Name, *resource.Resource](name))
}
