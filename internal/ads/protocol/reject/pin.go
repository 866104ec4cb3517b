// Package reject knows which content a client rejected. A Pin holds such content back from the stream of the client. A Search finds the bad
// content among the suspects of a NACK by bisection.
//
// It knows neither requests nor responses: package protocol does, and decides what to send. A Set is immutable. The package starts no
// goroutines.
package reject

import (
	"bytes"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const (
	// MaxPins bounds what one stream may have pinned. A NACK that would exceed it is reported and pins nothing.
	MaxPins = 4096
	// MaxConsecutive is the number of NACKs without an ACK after which everything that a response changed is pinned,
	// and nothing is released until an ACK or a change of content. So a client that rejects everything gets few responses.
	MaxConsecutive = 5
	// maxUnexplained bounds, between two changes of content, the NACKs that do not name the bad content and that the
	// core nevertheless follows by a bisection.
	maxUnexplained = 16
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

// Key identifies rejected content. Piece is empty for a whole resource.
type Key struct {
	Type        resource.Type
	Name, Piece string
	Rejected    omap.Hash
}

// In reports whether the state contains the rejected content.
func (k Key) In(s *resource.State) bool {
	r, ok := s.Get(k.Type, k.Name)
	return ok && k.InResource(r)
}

// InResource reports whether the resource, which has the name of the pin, contains the rejected content.
func (k Key) InResource(r *resource.Resource) bool {
	if k.Piece == "" {
		return r.ContentHash() == k.Rejected || k.Type == resource.Route && r.HeadHash() == k.Rejected
	}
	p, ok := r.Pieces().Get(omap.Name(k.Piece))
	return ok && p.ContentHash() == k.Rejected
}

// In reports whether the resource contains the rejected content.
func (p *Pin) In(r *resource.Resource) bool { return p.Name == r.Name() && p.Key().InResource(r) }

// Key returns the identity of the rejected content.
func (p *Pin) Key() Key { return Key{p.Type, p.Name, p.Piece, p.Rejected} }

// Set is an immutable set of pins. A nil set is empty. keys are sorted and unique, and hash is the hash of them all.
type Set struct {
	keys []Key
	hash omap.Hash
}

// Hash returns the hash of all pins; zero if there are none.
func (s *Set) Hash() (none omap.Hash) {
	if s == nil {
		return none
	}
	return s.hash
}

// All lists the pins in order.
func (s *Set) All() []Key {
	if s == nil {
		return nil
	}
	return s.keys
}

// CountIn is the number of pins of a type whose content a state has.
func (s *Set) CountIn(state *resource.State, t resource.Type) (n int) {
	for _, k := range s.All() {
		if k.Type == t && k.In(state) {
			n++
		}
	}
	return n
}

// Len returns the number of pins.
func (s *Set) Len() int { return len(s.All()) }

// of lists the pins of one resource.
func (s *Set) of(t resource.Type, name string) []Key {
	keys := s.All()
	first, _ := slices.BinarySearchFunc(keys, Key{Type: t, Name: name}, compare)
	last := first
	for last < len(keys) && keys[last].Type == t && keys[last].Name == name {
		last++
	}
	return keys[first:last]
}

// AnyIn reports whether a resource contains pinned content.
func (s *Set) AnyIn(t resource.Type, r *resource.Resource) bool {
	return slices.ContainsFunc(s.of(t, r.Name()), func(k Key) bool { return k.InResource(r) })
}

// HasWhole reports whether a route configuration is pinned as a whole.
func (s *Set) HasWhole(route string) bool {
	return slices.ContainsFunc(s.of(resource.Route, route), func(k Key) bool { return k.Piece == "" })
}

// Has reports whether the content is pinned.
func (s *Set) Has(k Key) bool {
	_, found := slices.BinarySearchFunc(s.All(), k, compare)
	return found
}

func compare(a, b Key) int {
	if d := int(a.Type) - int(b.Type); d != 0 {
		return d
	}
	if d := strings.Compare(a.Name, b.Name); d != 0 {
		return d
	}
	if d := strings.Compare(a.Piece, b.Piece); d != 0 {
		return d
	}
	return bytes.Compare(a.Rejected[:], b.Rejected[:])
}

func newSet(keys []Key) *Set {
	if len(keys) == 0 {
		return nil
	}
	slices.SortFunc(keys, compare)
	keys = slices.Compact(keys)
	var h omap.Hash
	for _, k := range keys {
		h = omap.Sum(h[:], []byte{byte(k.Type)}, []byte(k.Name), []byte{0}, []byte(k.Piece), []byte{0}, k.Rejected[:])
	}
	return &Set{keys, h}
}

// With returns the set with further pins.
func (s *Set) With(pins []Pin) *Set {
	keys := slices.Clone(s.All())
	for i := range pins {
		keys = append(keys, pins[i].Key())
	}
	return newSet(keys)
}

// Without returns the set without some pins.
func (s *Set) Without(removed []Key) *Set {
	drop := map[Key]bool{}
	for _, k := range removed {
		drop[k] = true
	}
	return newSet(slices.DeleteFunc(slices.Clone(s.All()), func(k Key) bool { return drop[k] }))
}
