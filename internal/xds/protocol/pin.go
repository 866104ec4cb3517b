package protocol

import (
	"bytes"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const (
	// maxPins bounds what one stream may have held back; a rejection beyond it is noted and otherwise ignored.
	maxPins = 4096
	// maxStrikes is the number of rejections in a row after which everything a response changed is held back, and
	// nothing is tried again until something is accepted: who rejects everything gets few responses.
	maxStrikes = 5
	// maxTrials is how often a rejection that does not say what is bad may be looked into, until the content changes.
	maxTrials = 16
)

// Pin is content that a client rejected and that is held back from its stream: while the state has it, the stream
// shows what the client acknowledged last instead. Other content under the name is sent as ever.
type Pin struct {
	Type     resource.Type
	Name     string
	Piece    string    // the virtual host, if it is one and not the whole resource
	Rejected omap.Hash // the content's hash
	// Held or HeldPiece is what the client keeps, as far as it is known at the time; nil if it has nothing under the name.
	Held      *resource.Resource
	HeldPiece *resource.Piece

	refs []string
}

// pinKey is what identifies rejected content.
type pinKey struct {
	typ         resource.Type
	name, piece string
	rejected    omap.Hash
}

// in reports whether a resource has the rejected content.
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

// pinSet is an immutable set of pins; a nil set is empty.
type pinSet struct {
	keys []pinKey
	hash omap.Hash
}

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

// has reports whether the content was rejected.
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

func (s *pinSet) without(gone []pinKey) *pinSet {
	if s == nil {
		return nil
	}
	drop := map[pinKey]bool{}
	for _, k := range gone {
		drop[k] = true
	}
	return newPinSet(slices.DeleteFunc(slices.Clone(s.keys), func(k pinKey) bool { return drop[k] }))
}
