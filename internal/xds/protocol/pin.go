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
	if !ok || k.piece == "" {
		return ok && r.ContentHash() == k.rejected
	}
	p, ok := r.Pieces().Get(omap.Name(k.piece))
	return ok && p.ContentHash() == k.rejected
}

// in reports whether the resource contains the rejected content.
func (p *Pin) in(r *resource.Resource) bool {
	switch {
	case p.Name != r.Name():
		return false
	case p.Piece == "":
		return r.ContentHash() == p.Rejected
	}
	piece, ok := r.Pieces().Get(omap.Name(p.Piece))
	return ok && piece.ContentHash() == p.Rejected
}

func (p *Pin) key() pinKey { return pinKey{p.Type, p.Name, p.Piece, p.Rejected} }

// pinSet is an immutable set of pins. A nil set is empty. keys are sorted and unique, and hash is the hash of them all.
type pinSet struct {
	keys []pinKey
	hash omap.Hash
}

// count is the number of pins of a type.
func (s *pinSet) count(t resource.Type) (n int) {
	if s == nil {
		return 0
	}
	for _, k := range s.keys {
		if k.typ == t {
			n++
		}
	}
	return n
}

func (s *pinSet) len() int {
	if s == nil {
		return 0
	}
	return len(s.keys)
}

// hasWhole reports whether a route configuration is pinned as a whole.
func (s *pinSet) hasWhole(route string) bool {
	return s != nil && slices.ContainsFunc(s.keys, func(k pinKey) bool {
		return k.typ == resource.Route && k.name == route && k.piece == ""
	})
}

// has reports whether the content is pinned.
func (s *pinSet) has(k pinKey) bool {
	if s == nil {
		return false
	}
	_, found := slices.BinarySearchFunc(s.keys, k, comparePins)
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
	var keys []pinKey
	if s != nil {
		keys = slices.Clone(s.keys)
	}
	for i := range pins {
		keys = append(keys, pins[i].key())
	}
	return newPinSet(keys)
}

func (s *pinSet) without(removed []pinKey) *pinSet {
	if s == nil {
		return nil
	}
	drop := map[pinKey]bool{}
	for _, k := range removed {
		drop[k] = true
	}
	return newPinSet(slices.DeleteFunc(slices.Clone(s.keys), func(k pinKey) bool { return drop[k] }))
}
