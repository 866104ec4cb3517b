package protocol

import (
	"bytes"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const (
	// maxPins bounds what one stream may have pinned. A NACK that would exceed it is reported and pins nothing.
	maxPins = 4096
	// maxConsecutiveNACKs is the number of NACKs without an ACK after which everything that a response changed is pinned,
	// and nothing is released until an ACK or a change of content. So a client that rejects everything gets few responses.
	maxConsecutiveNACKs = 5
	// maxUnexplainedNACKs bounds, between two changes of content, the NACKs that do not name the bad content and that the
	// core nevertheless follows by a bisection.
	maxUnexplainedNACKs = 16
)

// Pin is content that a client rejected and that is held back from its stream. While the state has this content, the
// stream shows what the client acknowledged last instead. Other content under the same name is sent normally.
type Pin struct {
	Type resource.Type
	Name string
	// Piece is the name of a virtual host; empty if the whole resource is pinned.
	Piece string
	// Rejected is the hash of the rejected content.
	Rejected omap.Hash
	// Held or HeldPiece is what the client has instead, as far as the core knew at the time of the NACK; nil if the client
	// has nothing under the name.
	Held      *resource.Resource
	HeldPiece *resource.Piece

	// refs are the clusters that the pinned virtual host refers to.
	refs []string
}

// pinKey identifies rejected content. piece is empty for a whole resource.
type pinKey struct {
	typ         resource.Type
	name, piece string
	rejected    omap.Hash
}

// in reports whether the state contains the rejected content.
func (k pinKey) in(s *resource.State) bool {
	r, ok := s.Get(k.typ, k.name)
	return ok && k.inResource(r)
}

// inResource reports whether the resource, which has the name of the pin, contains the rejected content.
func (k pinKey) inResource(r *resource.Resource) bool {
	if k.piece == "" {
		return r.ContentHash() == k.rejected
	}
	p, ok := r.Pieces().Get(omap.Name(k.piece))
	return ok && p.ContentHash() == k.rejected
}

// in reports whether the resource contains the rejected content.
func (p *Pin) in(r *resource.Resource) bool { return p.Name == r.Name() && p.key().inResource(r) }

func (p *Pin) key() pinKey { return pinKey{p.Type, p.Name, p.Piece, p.Rejected} }

// pinSet is an immutable set of pins. A nil set is empty. keys are sorted and unique, and hash is the hash of them all.
type pinSet struct {
	keys []pinKey
	hash omap.Hash
}

// all lists the pins in order.
func (s *pinSet) all() []pinKey {
	if s == nil {
		return nil
	}
	return s.keys
}

// countIn is the number of pins of a type whose content a state has.
func (s *pinSet) countIn(state *resource.State, t resource.Type) (n int) {
	for _, k := range s.all() {
		if k.typ == t && k.in(state) {
			n++
		}
	}
	return n
}

func (s *pinSet) len() int { return len(s.all()) }

// of lists the pins of one resource.
func (s *pinSet) of(t resource.Type, name string) []pinKey {
	keys := s.all()
	first, _ := slices.BinarySearchFunc(keys, pinKey{typ: t, name: name}, comparePins)
	last := first
	for last < len(keys) && keys[last].typ == t && keys[last].name == name {
		last++
	}
	return keys[first:last]
}

// anyIn reports whether a resource contains pinned content.
func (s *pinSet) anyIn(t resource.Type, r *resource.Resource) bool {
	return slices.ContainsFunc(s.of(t, r.Name()), func(k pinKey) bool { return k.inResource(r) })
}

// hasWhole reports whether a route configuration is pinned as a whole.
func (s *pinSet) hasWhole(route string) bool {
	return slices.ContainsFunc(s.of(resource.Route, route), func(k pinKey) bool { return k.piece == "" })
}

// has reports whether the content is pinned.
func (s *pinSet) has(k pinKey) bool {
	_, found := slices.BinarySearchFunc(s.all(), k, comparePins)
	return found
}

func comparePins(a, b pinKey) int {
	if d := int(a.typ) - int(b.typ); d != 0 {
		return d
	}
	if d := strings.Compare(a.name, b.name); d != 0 {
		return d
	}
	if d := strings.Compare(a.piece, b.piece); d != 0 {
		return d
	}
	return bytes.Compare(a.rejected[:], b.rejected[:])
}

func newPinSet(keys []pinKey) *pinSet {
	if len(keys) == 0 {
		return nil
	}
	slices.SortFunc(keys, comparePins)
	keys = slices.Compact(keys)
	var h omap.Hash
	for _, k := range keys {
		h = omap.Sum(h[:], []byte{byte(k.typ)}, []byte(k.name), []byte{0}, []byte(k.piece), []byte{0}, k.rejected[:])
	}
	return &pinSet{keys, h}
}

func (s *pinSet) with(pins []Pin) *pinSet {
	keys := slices.Clone(s.all())
	for i := range pins {
		keys = append(keys, pins[i].key())
	}
	return newPinSet(keys)
}

func (s *pinSet) without(removed []pinKey) *pinSet {
	drop := map[pinKey]bool{}
	for _, k := range removed {
		drop[k] = true
	}
	return newPinSet(slices.DeleteFunc(slices.Clone(s.all()), func(k pinKey) bool { return drop[k] }))
}
