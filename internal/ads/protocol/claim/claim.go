// Package claim compares the versions that a reconnecting client says it has with the state that it should have. In the split form of route configurations
// the virtual hosts have versions of their own. A comparison depends only on the Client and the state, so streams share it. The package starts no goroutines.
package claim

import (
	"time"

	"github.com/pilotmesh/pilot/internal/ads/request"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Patience is how long a client that connects again, and has route configurations, may take until it says which virtual hosts it has. Envoy says so at
// once. But if ten thousand of them connect at the same time, the message may take seconds, and without it all virtual hosts are sent again.
const Patience = 5 * time.Second

// Unknown reports whether the server knows a resource, or some of its virtual hosts, only by name.
func Unknown(r *resource.Resource) bool {
	if r.Size() == 0 {
		return true
	}
	for _, p := range r.Pieces().All() {
		if !p.HasContent() {
			return true
		}
	}
	return false
}

// claim is a virtual host that a reconnecting client has. name is its name as a resource of its own.
type claim struct {
	name string
	// piece is its name in the route configuration.
	piece   string
	version []byte
}

// all are the virtual hosts that a reconnecting client has, by route configuration.
func all(q *request.Request) map[string][]claim {
	hosts := map[string][]claim{}
	if q == nil {
		return hosts
	}
	for name, version := range q.Initial() {
		route, piece := resource.SplitHostName(string(name))
		hosts[route] = append(hosts[route], claim{string(name), piece, version})
	}
	return hosts
}

// had is what a client has of a route configuration. It is target itself if the client has all of it, and nothing else.
func had(target *resource.Resource, version []byte, has []claim) *resource.Resource {
	equal := 0
	var puts []omap.Change[omap.Name, *resource.Piece]
	for _, h := range has {
		p, ok := target.Pieces().Get(omap.Name(h.piece))
		if ok && p.IsVersion(h.version) {
			equal++
		} else {
			p = resource.UnknownPiece(h.piece)
		}
		puts = append(puts, omap.Put(omap.Name(h.piece), p))
	}
	r := target
	if equal != len(has) || equal != target.Pieces().Len() {
		r = target.WithPieces(omap.With(omap.Map[omap.Name, *resource.Piece]{}, puts...))
	}
	if !target.IsHeadVersion(version) {
		r = r.WithoutHeader()
	}
	return r
}
