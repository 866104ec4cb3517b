package protocol

import (
	"encoding/hex"
	"iter"
	"runtime"
	"slices"
	"strings"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// resources are resources by name; here those a client still has although its state no longer holds them.
type resources = omap.Map[omap.Name, *resource.Resource]

// breath counts what a large move has to do with, and lets others run every few hundred of it: a stream that has little to
// send must not wait for one that is sent everything.
type breath int

func (b *breath) take() {
	if *b++; *b%256 == 0 {
		runtime.Gosched()
	}
}

// move is what one type of a stream has to go through: from the state the client has to the state it is to have.
// It says everything the result depends on, so streams with equal moves share one result.
type move struct {
	variant  Variant
	typ      resource.Type
	from, to *resource.State
	sub      *subscription
	// owed are removals held back so far. release hands them out.
	owed    resources
	release bool
	// forced names are answered in any case, all of them if all is set.
	forced names
	all    bool
	// must: there is an answer, be it empty.
	must bool
	// clustersFrom and clustersTo are the cluster states the client's assignments were computed against and are
	// computed against now: the assignment of a cluster that changed is sent again, because Envoy warms the cluster
	// anew and waits for it (envoy issue 13009).
	clustersFrom, clustersTo *resource.State
	// empties: an assignment that does not exist is answered with an empty one.
	empties bool
	// held is the sum over what the client holds (State-of-the-World), if it is known.
	held      omap.Hash
	heldKnown bool
}

type moveKey struct {
	variant            Variant
	typ                resource.Type
	release, all, must bool
	empties            bool
	from, to           *resource.State
	sub                *subscription
	owed, forced       omap.Hash
	cFrom, cTo         *resource.State
}

func (m *move) key() moveKey {
	return moveKey{
		m.variant, m.typ, m.release, m.all, m.must, m.empties, m.from, m.to, m.sub, m.owed.Hash(), m.forced.Hash(),
		m.clustersFrom, m.clustersTo,
	}
}

// idle reports, without computing anything, that the move changes nothing and says nothing.
func (m *move) idle() bool {
	return !m.must && !m.all && !m.release && m.forced.Len() == 0 &&
		m.from.Layers(m.typ).Same(m.to.Layers(m.typ)) &&
		(m.typ != resource.Endpoint || m.clustersFrom.Layers(resource.Cluster).Same(m.clustersTo.Layers(resource.Cluster)))
}

// transition is the result of a move. It is immutable and shared.
type transition struct {
	messages []*Message
	owed     resources // removals held back after it
	held     omap.Hash
}

// holdsRemovals: what a route may still point at goes only after the route.
func holdsRemovals(t resource.Type) bool { return t == resource.Cluster || t == resource.Endpoint }

func (m *move) transition(controlPlane string) *transition {
	put, gone, owed := m.difference()
	put = merged(put, m.requested(owed, &gone))
	put = merged(put, m.warmed())
	put = merged(put, m.missing())
	if m.release {
		for n := range owed.All() {
			if m.sub.has(string(n)) {
				gone = append(gone, string(n))
			}
		}
		owed = resources{}
	}
	slices.Sort(gone)
	gone = slices.Compact(gone)
	t := &transition{owed: owed}
	w := writer{variant: m.variant, typ: m.typ, controlPlane: controlPlane}
	switch {
	case m.variant == Delta:
		w.version = revision(m.to)
		t.messages = w.delta(put, gone, m.must)
	case m.typ.Wildcard():
		if len(put)+len(gone) == 0 && !m.must && !m.all && m.forced.Len() == 0 {
			break
		}
		list := m.list(owed)
		t.held = sum(slices.Values(list))
		w.version = hex.EncodeToString(t.held[:])
		t.messages = w.whole(list)
	default:
		t.held = m.sum()
		w.version = hex.EncodeToString(t.held[:])
		t.messages = w.parts(put, m.must)
	}
	return t
}

// difference lists what was added or changed and what was taken away at once, and the removals that are held back.
func (m *move) difference() (put []*resource.Resource, gone []string, owed resources) {
	var late []omap.Change[omap.Name, *resource.Resource]
	for n := range m.owed.All() {
		if _, back := m.to.Get(m.typ, string(n)); back {
			late = append(late, omap.Del[omap.Name, *resource.Resource](n))
		}
	}
	var b breath
	for c := range resource.Diff(m.from.Layers(m.typ), m.to.Layers(m.typ)) {
		b.take()
		switch {
		case !m.sub.has(c.Name):
		case c.New != nil:
			// Gone and back before it was taken away: the client has it still.
			if had, ok := m.owed.Get(omap.Name(c.Name)); ok && had.ContentHash() == c.New.ContentHash() {
				continue
			}
			put = append(put, c.New)
		case holdsRemovals(m.typ):
			late = append(late, omap.Put(omap.Name(c.Name), c.Old))
		default:
			gone = append(gone, c.Name)
		}
	}
	return put, gone, m.owed.With(late...)
}

// requested lists what is answered because it was asked for.
func (m *move) requested(owed resources, gone *[]string) (put []*resource.Resource) {
	var b breath
	for n := range m.forced.All() {
		b.take()
		switch r, ok := m.to.Get(m.typ, string(n)); {
		case ok:
			put = append(put, r)
		case owed.Has(n): // not there any more, but not taken away yet: routes may point at it
			if r, _ := owed.Get(n); r.Size() > 0 {
				put = append(put, r)
			}
		default:
			*gone = append(*gone, string(n))
		}
	}
	if m.all { // with what is to be taken away: the client is taken to have it until then
		put = merged(put, m.list(owed))
	}
	return put
}

// warmed lists the assignments of clusters that changed, in name order.
func (m *move) warmed() (put []*resource.Resource) {
	if m.typ != resource.Endpoint || m.from == nil {
		return nil // a client without assignments is sent all of them
	}
	for c := range resource.Diff(m.clustersFrom.Layers(resource.Cluster), m.clustersTo.Layers(resource.Cluster)) {
		if c.New == nil {
			continue
		}
		name, ok := c.New.EDS()
		if !ok || !m.sub.has(name) {
			continue
		}
		if r, ok := m.to.Get(m.typ, name); ok {
			put = append(put, r)
		}
	}
	byName := func(a, b *resource.Resource) int { return strings.Compare(a.Name(), b.Name()) }
	slices.SortFunc(put, byName) // clusters name their assignments as they like
	return slices.CompactFunc(put, func(a, b *resource.Resource) bool { return a.Name() == b.Name() })
}

// missing lists an empty assignment for each name that was asked for and does not exist. Only the delta variant can say that it
// does not, and an Envoy whose stream ended while a cluster warmed asks for no clusters before it has the assignment: it would
// never learn that the cluster is no more.
func (m *move) missing() (put []*resource.Resource) {
	if !m.empties {
		return nil
	}
	asked := m.forced
	if m.must {
		asked = m.sub.names
	}
	for n := range asked.All() {
		if _, ok := m.to.Get(m.typ, string(n)); !ok && n != "" { // no assignment is without a name
			put = append(put, resource.New(m.typ, string(n), &endpointv3.ClusterLoadAssignment{ClusterName: string(n)}))
		}
	}
	return put
}

// list is everything subscribed, and what is owed a removal, in name order.
func (m *move) list(owed resources) []*resource.Resource {
	var list []*resource.Resource
	for r := range m.visible() {
		list = append(list, r)
	}
	var late []*resource.Resource
	for _, r := range owed.All() {
		if r.Size() > 0 && m.sub.has(r.Name()) {
			late = append(late, r)
		}
	}
	return merged(list, late)
}

// visible yields what the subscription covers of the target.
func (m *move) visible() iter.Seq[*resource.Resource] {
	if m.sub.wildcard {
		return m.to.Layers(m.typ).All()
	}
	return func(yield func(*resource.Resource) bool) {
		for n := range m.sub.names.All() {
			if r, ok := m.to.Get(m.typ, string(n)); ok && !yield(r) {
				return
			}
		}
	}
}

// sum is the sum over what the client holds after the move; it follows the difference if the sum before is known.
func (m *move) sum() omap.Hash {
	if !m.heldKnown {
		return sum(m.visible())
	}
	h := m.held
	for c := range resource.Diff(m.from.Layers(m.typ), m.to.Layers(m.typ)) {
		if !m.sub.has(c.Name) {
			continue
		}
		if c.Old != nil {
			h = subtract(h, term(c.Old))
		}
		if c.New != nil {
			h = add(h, term(c.New))
		}
	}
	return h
}

// merged is two lists in name order as one. What is in both is in it once.
func merged(a, b []*resource.Resource) []*resource.Resource {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	list := make([]*resource.Resource, 0, max(len(a), len(b)))
	for len(a) > 0 && len(b) > 0 {
		switch d := strings.Compare(a[0].Name(), b[0].Name()); {
		case d < 0:
			list, a = append(list, a[0]), a[1:]
		case d > 0:
			list, b = append(list, b[0]), b[1:]
		default:
			list, a, b = append(list, a[0]), a[1:], b[1:]
		}
	}
	return append(append(list, a...), b...)
}
