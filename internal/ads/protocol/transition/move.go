// Package transition computes the responses that bring one type of a client from a state to another one, in the delta and State-of-the-World variants. A
// result depends only on the Move, so streams with equal moves share it, and it does not change. The package starts no goroutines.
package transition

import (
	"encoding/hex"
	"iter"
	"slices"
	"strings"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/pilotmesh/pilot/internal/ads/protocol/content"
	"github.com/pilotmesh/pilot/internal/ads/protocol/reject"
	"github.com/pilotmesh/pilot/internal/ads/protocol/response"
	"github.com/pilotmesh/pilot/internal/ads/protocol/subscribe"
	"github.com/pilotmesh/pilot/internal/ads/request"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Resources are resources by name. Delayed removals are kept in such a map with the content that the client has.
type Resources = omap.Map[omap.Name, *resource.Resource]

// Move is a change of one type of a stream from the state that the client has to another. It contains everything that the
// responses depend on, so streams with equal moves share one transition.
type Move struct {
	Variant  request.Variant
	Type     resource.Type
	From, To *resource.State
	Sub      *subscribe.Subscription
	// Removals are the delayed removals before the move. SendRemovals is set if the move sends them.
	Removals     Resources
	SendRemovals bool
	// Forced names are answered even if the client should have them. All forces everything that the subscription covers.
	Forced subscribe.Names
	All    bool
	// Pins are what the client has rejected. Such content of a removed resource is not kept until its delayed removal: the
	// client does not have it.
	Pins *reject.Set
	// MustRespond is set if a response is sent even if it is empty.
	MustRespond bool
	// ClustersFrom and clustersTo are the states whose clusters the client's assignments belong to, before and after the
	// move. The assignment of a changed cluster is sent again, because Envoy warms the cluster again and waits for it
	// (envoy issue 13009).
	ClustersFrom, ClustersTo *resource.State
	// EmptyIfMissing is set if the server answers with an empty assignment when there is none.
	EmptyIfMissing bool
	// ContentSum is the sum over what the client has, if ContentSumKnown is set. It is used by State-of-the-World only.
	ContentSum      omap.Hash
	ContentSumKnown bool
	// Split is set if route configurations are sent in the split form. Strays are virtual hosts to remove with the others of theirs.
	Split  bool
	Strays subscribe.Names
	// OnDemand is set if the client gets virtual hosts of the route configurations of ports on demand.
	OnDemand bool
}

// Key identifies the transition of a move. It leaves out ContentSum, which follows from the other fields.
type Key struct {
	variant                        request.Variant
	typ                            resource.Type
	sendRemovals, all, mustRespond bool
	emptyIfMissing                 bool
	from, to                       *resource.State
	sub                            *subscribe.Subscription
	removals, forced, pins         omap.Hash
	clustersFrom, clustersTo       *resource.State
	split, onDemand                bool
	strays                         omap.Hash
}

// Key identifies the result of the move.
func (m *Move) Key() Key {
	k := Key{
		variant: m.Variant, typ: m.Type, sendRemovals: m.SendRemovals, all: m.All, mustRespond: m.MustRespond,
		emptyIfMissing: m.EmptyIfMissing, from: m.From, to: m.To, sub: m.Sub, removals: m.Removals.Hash(), forced: m.Forced.Hash(),
		clustersFrom: m.ClustersFrom, clustersTo: m.ClustersTo, split: m.Split, onDemand: m.OnDemand, strays: m.Strays.Hash(),
	}
	if m.Pins != nil {
		k.pins = m.Pins.Hash()
	}
	return k
}

// Noop reports whether there is nothing to send. It only compares pointers, so it may miss that two states are equal.
func (m *Move) Noop() bool {
	return !m.MustRespond && !m.All && !m.SendRemovals && m.Forced.Len() == 0 && m.Strays.Len() == 0 &&
		m.From.Layers(m.Type).Same(m.To.Layers(m.Type)) &&
		(m.Type != resource.Endpoint || m.ClustersFrom.Layers(resource.Cluster).Same(m.ClustersTo.Layers(resource.Cluster)))
}

// Result is the result of a move. It is immutable and shared.
type Result struct {
	Messages []*response.Message
	// Removals are the delayed removals after the move.
	Removals Resources
	// ContentSum is the sum over what the client has after the move. It is used by State-of-the-World only.
	ContentSum omap.Hash
	// Gone are the virtual hosts of removed route configurations in the split form. Envoy keeps these while something uses them.
	Gone subscribe.Names
}

// DelaysRemovals reports whether routes refer to the type. Such resources are removed only after the routes.
func DelaysRemovals(t resource.Type) bool { return t == resource.Cluster || t == resource.Endpoint }

// Respond computes the responses of the move.
func (m *Move) Respond(controlPlane string) *Result {
	put, removed, removals := m.difference()
	put = content.Merged(put, m.requestedAgain(removals, &removed))
	put = content.Merged(put, m.reassigned())
	put = content.Merged(put, m.emptyAssignments())
	put = content.Merged(put, m.routesOfStrays())
	if m.SendRemovals {
		for n := range removals.All() {
			if m.Sub.Has(string(n)) {
				removed = append(removed, string(n))
			}
		}
		removals = Resources{}
	}
	slices.Sort(removed)
	removed = slices.Compact(removed)
	t := &Result{Removals: removals}
	w := response.Writer{Variant: m.Variant, Type: m.Type, ControlPlane: controlPlane}
	switch {
	case m.Sub.Whole:
		m.wholeTable(t, &w, len(put)+len(removed) > 0, removed)
	case m.Split:
		w.Version = response.Revision(m.To)
		t.Messages, t.Gone = m.splitMessages(&w, put, removed)
	case m.Variant == request.Delta:
		w.Version = response.Revision(m.To)
		content.OrderListeners(put, m.Type, m.From)
		t.Messages = w.Delta(put, removed, m.MustRespond)
	case m.Type.Wildcard():
		if len(put)+len(removed) == 0 && !m.MustRespond && !m.All && m.Forced.Len() == 0 {
			break
		}
		list := m.list(removals)
		t.ContentSum = content.Sum(slices.Values(list))
		w.Version = hex.EncodeToString(t.ContentSum[:])
		content.OrderListeners(list, m.Type, m.From)
		t.Messages = w.Whole(list, removed)
	default:
		t.ContentSum = m.sum()
		w.Version = hex.EncodeToString(t.ContentSum[:])
		t.Messages = w.Partial(put, m.MustRespond)
	}
	return t
}

// wholeTable makes the response with everything as one resource, if something has changed. A NACK of it is about the tables that it
// joins, so that a bad table among them is found as for other clients.
func (m *Move) wholeTable(t *Result, w *response.Writer, changed bool, removed []string) {
	if !changed && !m.MustRespond && !m.All {
		return
	}
	list := m.list(Resources{})
	t.ContentSum = content.Sum(slices.Values(list))
	if w.Version = hex.EncodeToString(t.ContentSum[:]); m.Variant == request.Delta {
		w.Version = response.Revision(m.To)
	}
	t.Messages = w.Whole([]*resource.Resource{resource.Whole(list)}, removed)
	t.Messages[0].Content = list
}

// difference compares the two states. It returns the resources that were added or changed, the names removed at once, and the
// delayed removals after the move.
func (m *Move) difference() (put []*resource.Resource, removed []string, removals Resources) {
	var delayed []omap.Change[omap.Name, *resource.Resource]
	for n := range m.Removals.All() {
		if _, back := m.To.Get(m.Type, string(n)); back {
			delayed = append(delayed, omap.Del[omap.Name, *resource.Resource](n))
		}
	}
	var y content.Yielder
	for c := range resource.Diff(m.From.Layers(m.Type), m.To.Layers(m.Type)) {
		y.Step()
		switch {
		case !m.Sub.Has(c.Name):
		case c.New != nil:
			// The resource came back before its removal was sent, so the client still has it.
			if had, ok := m.Removals.Get(omap.Name(c.Name)); ok && had.ContentHash() == c.New.ContentHash() {
				continue
			}
			put = append(put, c.New)
		case DelaysRemovals(m.Type) && !m.Pins.Has(reject.Key{Type: m.Type, Name: c.Name, Rejected: c.Old.ContentHash()}):
			delayed = append(delayed, omap.Put(omap.Name(c.Name), c.Old))
		default:
			removed = append(removed, c.Name)
		}
	}
	return put, removed, omap.With(m.Removals, delayed...)
}

// requestedAgain lists the resources sent because they are forced. It adds the names that do not exist to removed.
func (m *Move) requestedAgain(removals Resources, removed *[]string) (put []*resource.Resource) {
	var y content.Yielder
	for n := range m.Forced.All() {
		y.Step()
		switch r, ok := m.To.Get(m.Type, string(n)); {
		case ok && content.Known(r): // Of a resource that the client keeps, perhaps only the name is known.
			put = append(put, r)
		case ok:
		case removals.Has(n): // Its removal is delayed, so routes may still refer to it.
			if r, _ := removals.Get(n); content.Known(r) {
				put = append(put, r)
			}
		default:
			*removed = append(*removed, string(n))
		}
	}
	if m.All { // This includes delayed removals: the client is assumed to have them until they are sent.
		put = content.Merged(put, m.list(removals))
	}
	return put
}

// reassigned lists the assignments of changed clusters, in name order.
func (m *Move) reassigned() (put []*resource.Resource) {
	if m.Type != resource.Endpoint || m.From == nil {
		return nil // A client without assignments is sent all of them anyway.
	}
	for c := range resource.Diff(m.ClustersFrom.Layers(resource.Cluster), m.ClustersTo.Layers(resource.Cluster)) {
		if c.New == nil {
			continue
		}
		name, ok := c.New.EDS()
		if !ok || !m.Sub.Has(name) {
			continue
		}
		if r, ok := m.To.Get(m.Type, name); ok {
			put = append(put, r)
		}
	}
	byName := func(a, b *resource.Resource) int { return strings.Compare(a.Name(), b.Name()) }
	slices.SortFunc(put, byName) // The names of an assignment and its cluster may differ.
	return slices.CompactFunc(put, func(a, b *resource.Resource) bool { return a.Name() == b.Name() })
}

// emptyAssignments lists an empty assignment for each requested name that does not exist. Only the delta variant can say
// that a resource does not exist. An Envoy whose stream ended while a cluster warmed does not ask for clusters before it
// has the assignment, so without an answer it would never learn that the cluster was removed.
func (m *Move) emptyAssignments() (put []*resource.Resource) {
	if !m.EmptyIfMissing {
		return nil
	}
	asked := m.Forced
	if m.MustRespond {
		asked = m.Sub.Names
	}
	for n := range asked.All() {
		if _, ok := m.To.Get(m.Type, string(n)); !ok && n != "" { // An assignment must have a name.
			put = append(put, resource.New(m.Type, string(n), &endpointv3.ClusterLoadAssignment{ClusterName: string(n)}))
		}
	}
	return put
}

// list is everything that the subscription covers, with the delayed removals, in name order.
func (m *Move) list(removals Resources) []*resource.Resource {
	var list []*resource.Resource
	for r := range m.Visible() {
		if content.Known(r) {
			list = append(list, r)
		}
	}
	var delayed []*resource.Resource
	for _, r := range removals.All() {
		if content.Known(r) && m.Sub.Has(r.Name()) {
			delayed = append(delayed, r)
		}
	}
	return content.Merged(list, delayed)
}

// Visible yields the resources of the target state that the subscription covers.
func (m *Move) Visible() iter.Seq[*resource.Resource] {
	if m.Sub.Wildcard {
		return m.To.Layers(m.Type).All()
	}
	return func(yield func(*resource.Resource) bool) {
		for n := range m.Sub.Names.All() {
			if r, ok := m.To.Get(m.Type, string(n)); ok && !yield(r) {
				return
			}
		}
	}
}

// sum is the sum over what the client has after the move. If the sum before the move is known, it costs only the
// difference of the two states.
func (m *Move) sum() omap.Hash {
	if !m.ContentSumKnown {
		return content.Sum(m.Visible())
	}
	h := m.ContentSum
	for c := range resource.Diff(m.From.Layers(m.Type), m.To.Layers(m.Type)) {
		if !m.Sub.Has(c.Name) {
			continue
		}
		if c.Old != nil {
			h = content.Subtract(h, content.Term(c.Old))
		}
		if c.New != nil {
			h = content.Add(h, content.Term(c.New))
		}
	}
	return h
}
