package protocol

import (
	"encoding/hex"
	"iter"
	"runtime"
	"slices"
	"strings"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/pilotmesh/pilot/internal/ads/protocol/content"
	"github.com/pilotmesh/pilot/internal/ads/protocol/reject"
	"github.com/pilotmesh/pilot/internal/ads/protocol/subscribe"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// resources are resources by name. Delayed removals are kept in such a map with the content that the client has.
type resources = omap.Map[omap.Name, *resource.Resource]

// yielder counts the steps of a large move and lets other goroutines run after every 256 of them. A stream that has
// little to send must not wait for one that is sent everything.
type yielder int

func (y *yielder) step() {
	if *y++; *y%256 == 0 {
		runtime.Gosched()
	}
}

// move is a change of one type of a stream from the state that the client has to another. It contains everything that the
// responses depend on, so streams with equal moves share one transition.
type move struct {
	variant  Variant
	typ      resource.Type
	from, to *resource.State
	sub      *subscribe.Subscription
	// removals are the delayed removals before the move. sendRemovals is set if the move sends them.
	removals     resources
	sendRemovals bool
	// forced names are answered even if the client should have them. all forces everything that the subscription covers.
	forced names
	all    bool
	// pins are what the client has rejected. Such content of a removed resource is not kept until its delayed removal: the
	// client does not have it.
	pins *reject.Set
	// mustRespond is set if a response is sent even if it is empty.
	mustRespond bool
	// clustersFrom and clustersTo are the states whose clusters the client's assignments belong to, before and after the
	// move. The assignment of a changed cluster is sent again, because Envoy warms the cluster again and waits for it
	// (envoy issue 13009).
	clustersFrom, clustersTo *resource.State
	// emptyIfMissing is set if the server answers with an empty assignment when there is none.
	emptyIfMissing bool
	// contentSum is the sum over what the client has, if contentSumKnown is set. It is used by State-of-the-World only.
	contentSum      omap.Hash
	contentSumKnown bool
	// split is set if route configurations are sent in the split form. strays are virtual hosts to remove with the others of theirs.
	split  bool
	strays names
	// onDemand is set if the client gets virtual hosts of the route configurations of ports on demand.
	onDemand bool
}

// moveKey identifies the transition of a move. It leaves out contentSum, which follows from the other fields.
type moveKey struct {
	variant                        Variant
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

func (m *move) key() moveKey {
	k := moveKey{
		variant: m.variant, typ: m.typ, sendRemovals: m.sendRemovals, all: m.all, mustRespond: m.mustRespond,
		emptyIfMissing: m.emptyIfMissing, from: m.from, to: m.to, sub: m.sub, removals: m.removals.Hash(), forced: m.forced.Hash(),
		clustersFrom: m.clustersFrom, clustersTo: m.clustersTo, split: m.split, onDemand: m.onDemand, strays: m.strays.Hash(),
	}
	if m.pins != nil {
		k.pins = m.pins.Hash()
	}
	return k
}

// noop reports whether there is nothing to send. It only compares pointers, so it may miss that two states are equal.
func (m *move) noop() bool {
	return !m.mustRespond && !m.all && !m.sendRemovals && m.forced.Len() == 0 && m.strays.Len() == 0 &&
		m.from.Layers(m.typ).Same(m.to.Layers(m.typ)) &&
		(m.typ != resource.Endpoint || m.clustersFrom.Layers(resource.Cluster).Same(m.clustersTo.Layers(resource.Cluster)))
}

// transition is the result of a move. It is immutable and shared.
type transition struct {
	messages []*Message
	// removals are the delayed removals after the move.
	removals resources
	// contentSum is the sum over what the client has after the move. It is used by State-of-the-World only.
	contentSum omap.Hash
	// gone are the virtual hosts of removed route configurations in the split form. Envoy keeps these while something uses them.
	gone names
}

// delaysRemovals reports whether routes refer to the type. Such resources are removed only after the routes.
func delaysRemovals(t resource.Type) bool { return t == resource.Cluster || t == resource.Endpoint }

// transition computes the responses of the move.
func (m *move) transition(controlPlane string) *transition {
	put, removed, removals := m.difference()
	put = content.Merged(put, m.requestedAgain(removals, &removed))
	put = content.Merged(put, m.reassigned())
	put = content.Merged(put, m.emptyAssignments())
	put = content.Merged(put, m.routesOfStrays())
	if m.sendRemovals {
		for n := range removals.All() {
			if m.sub.Has(string(n)) {
				removed = append(removed, string(n))
			}
		}
		removals = resources{}
	}
	slices.Sort(removed)
	removed = slices.Compact(removed)
	t := &transition{removals: removals}
	w := writer{variant: m.variant, typ: m.typ, controlPlane: controlPlane}
	switch {
	case m.sub.Whole:
		m.wholeTable(t, &w, len(put)+len(removed) > 0, removed)
	case m.split:
		w.version = revision(m.to)
		t.messages, t.gone = m.splitMessages(&w, put, removed)
	case m.variant == Delta:
		w.version = revision(m.to)
		content.OrderListeners(put, m.typ, m.from)
		t.messages = w.delta(put, removed, m.mustRespond)
	case m.typ.Wildcard():
		if len(put)+len(removed) == 0 && !m.mustRespond && !m.all && m.forced.Len() == 0 {
			break
		}
		list := m.list(removals)
		t.contentSum = content.Sum(slices.Values(list))
		w.version = hex.EncodeToString(t.contentSum[:])
		content.OrderListeners(list, m.typ, m.from)
		t.messages = w.whole(list, removed)
	default:
		t.contentSum = m.sum()
		w.version = hex.EncodeToString(t.contentSum[:])
		t.messages = w.partial(put, m.mustRespond)
	}
	return t
}

// wholeTable makes the response with everything as one resource, if something has changed. A NACK of it is about the tables that it
// joins, so that a bad table among them is found as for other clients.
func (m *move) wholeTable(t *transition, w *writer, changed bool, removed []string) {
	if !changed && !m.mustRespond && !m.all {
		return
	}
	list := m.list(resources{})
	t.contentSum = content.Sum(slices.Values(list))
	if w.version = hex.EncodeToString(t.contentSum[:]); m.variant == Delta {
		w.version = revision(m.to)
	}
	t.messages = w.whole([]*resource.Resource{resource.Whole(list)}, removed)
	t.messages[0].resources = list
}

// difference compares the two states. It returns the resources that were added or changed, the names removed at once, and the
// delayed removals after the move.
func (m *move) difference() (put []*resource.Resource, removed []string, removals resources) {
	var delayed []omap.Change[omap.Name, *resource.Resource]
	for n := range m.removals.All() {
		if _, back := m.to.Get(m.typ, string(n)); back {
			delayed = append(delayed, omap.Del[omap.Name, *resource.Resource](n))
		}
	}
	var y yielder
	for c := range resource.Diff(m.from.Layers(m.typ), m.to.Layers(m.typ)) {
		y.step()
		switch {
		case !m.sub.Has(c.Name):
		case c.New != nil:
			// The resource came back before its removal was sent, so the client still has it.
			if had, ok := m.removals.Get(omap.Name(c.Name)); ok && had.ContentHash() == c.New.ContentHash() {
				continue
			}
			put = append(put, c.New)
		case delaysRemovals(m.typ) && !m.pins.Has(reject.Key{Type: m.typ, Name: c.Name, Rejected: c.Old.ContentHash()}):
			delayed = append(delayed, omap.Put(omap.Name(c.Name), c.Old))
		default:
			removed = append(removed, c.Name)
		}
	}
	return put, removed, omap.With(m.removals, delayed...)
}

// requestedAgain lists the resources sent because they are forced. It adds the names that do not exist to removed.
func (m *move) requestedAgain(removals resources, removed *[]string) (put []*resource.Resource) {
	var y yielder
	for n := range m.forced.All() {
		y.step()
		switch r, ok := m.to.Get(m.typ, string(n)); {
		case ok && hasContent(r): // Of a resource that the client keeps, perhaps only the name is known.
			put = append(put, r)
		case ok:
		case removals.Has(n): // Its removal is delayed, so routes may still refer to it.
			if r, _ := removals.Get(n); hasContent(r) {
				put = append(put, r)
			}
		default:
			*removed = append(*removed, string(n))
		}
	}
	if m.all { // This includes delayed removals: the client is assumed to have them until they are sent.
		put = content.Merged(put, m.list(removals))
	}
	return put
}

// reassigned lists the assignments of changed clusters, in name order.
func (m *move) reassigned() (put []*resource.Resource) {
	if m.typ != resource.Endpoint || m.from == nil {
		return nil // A client without assignments is sent all of them anyway.
	}
	for c := range resource.Diff(m.clustersFrom.Layers(resource.Cluster), m.clustersTo.Layers(resource.Cluster)) {
		if c.New == nil {
			continue
		}
		name, ok := c.New.EDS()
		if !ok || !m.sub.Has(name) {
			continue
		}
		if r, ok := m.to.Get(m.typ, name); ok {
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
func (m *move) emptyAssignments() (put []*resource.Resource) {
	if !m.emptyIfMissing {
		return nil
	}
	asked := m.forced
	if m.mustRespond {
		asked = m.sub.Names
	}
	for n := range asked.All() {
		if _, ok := m.to.Get(m.typ, string(n)); !ok && n != "" { // An assignment must have a name.
			put = append(put, resource.New(m.typ, string(n), &endpointv3.ClusterLoadAssignment{ClusterName: string(n)}))
		}
	}
	return put
}

// list is everything that the subscription covers, with the delayed removals, in name order.
func (m *move) list(removals resources) []*resource.Resource {
	var list []*resource.Resource
	for r := range m.visible() {
		if hasContent(r) {
			list = append(list, r)
		}
	}
	var delayed []*resource.Resource
	for _, r := range removals.All() {
		if hasContent(r) && m.sub.Has(r.Name()) {
			delayed = append(delayed, r)
		}
	}
	return content.Merged(list, delayed)
}

// visible yields the resources of the target state that the subscription covers.
func (m *move) visible() iter.Seq[*resource.Resource] {
	if m.sub.Wildcard {
		return m.to.Layers(m.typ).All()
	}
	return func(yield func(*resource.Resource) bool) {
		for n := range m.sub.Names.All() {
			if r, ok := m.to.Get(m.typ, string(n)); ok && !yield(r) {
				return
			}
		}
	}
}

// sum is the sum over what the client has after the move. If the sum before the move is known, it costs only the
// difference of the two states.
func (m *move) sum() omap.Hash {
	if !m.contentSumKnown {
		return content.Sum(m.visible())
	}
	h := m.contentSum
	for c := range resource.Diff(m.from.Layers(m.typ), m.to.Layers(m.typ)) {
		if !m.sub.Has(c.Name) {
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
