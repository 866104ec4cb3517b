// Package omap is a persistent ordered map whose shape depends only on its content: equal content means equal
// chunks and equal hash, on every replica and after every history. Everything that is a list in the mesh
// (collections, index groups, route tables, class states) is such a map, and "what changed" is always Diff.
//
// It owns the canonical form: how keys cut the sorted entries into chunks, chunks into pages, and what is hashed at
// each level. A map has exactly three levels: top -> page (about 512 entries) -> chunk (about 16 entries) -> entries.
//
// Invariants:
//   - A key's bytes alone decide whether it starts a chunk or a page (see levelOf); only the very first chunk and page
//     of a map may start with another key. No chunk, page or top is empty: the empty map has no root.
//   - A node is never written after it was built, except that a chunk remembers its block (see Blocks). Maps that stem
//     from one another share nodes, and two maps with equal content have equal nodes even if they share none.
//   - A write that changes no content hash returns the identical root.
//
// The cut is not keyed, so whoever chooses the names can make chunks large or small. That costs time (at worst a flat
// copy of the chunk per change), never correctness.
//
// Goroutines: it starts none and takes no lock; all methods may be called concurrently. It imports the standard
// library only and must stay below every other package of this module.
package omap

import (
	"crypto/sha256"
	"iter"
	"strings"
	"sync/atomic"
)

// Hash is a SHA-256 cut to 128 bits. The zero Hash is the hash of the empty map.
type Hash [16]byte

// Sum hashes the concatenation of parts.
func Sum(parts ...[]byte) Hash {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	var full [sha256.Size]byte
	h.Sum(full[:0])
	return Hash(full[:16])
}

// Key is what a map can be ordered by. AppendTo appends an unambiguous byte form of the key: it decides
// chunk boundaries and enters the map's hash, so it must be the same in every process.
type Key[K any] interface {
	comparable
	Compare(K) int
	AppendTo([]byte) []byte
}

// Value is what a map can hold. ContentHash stands for the value's content: equal hashes mean equal values.
// Size is the number of bytes the value contributes to a message (0 where that means nothing); Map.Size sums it.
type Value interface {
	ContentHash() Hash
	Size() int
}

// Unit is the value of a set.
type Unit struct{}

// ContentHash is the same for every Unit.
func (Unit) ContentHash() Hash { return Hash{} }

// Size is 0.
func (Unit) Size() int { return 0 }

// Name is a string key.
type Name string

// Compare orders names bytewise.
func (n Name) Compare(o Name) int { return strings.Compare(string(n), string(o)) }

// AppendTo appends the name's bytes.
func (n Name) AppendTo(b []byte) []byte { return append(b, n...) }

// Change is one difference between two maps, or one write to a map.
// With reads Key, New and HasNew only; Diff fills all fields.
type Change[K, V any] struct {
	Key            K
	Old, New       V
	HadOld, HasNew bool
}

// Put is the change that gives k the value v.
func Put[K, V any](k K, v V) Change[K, V] { return Change[K, V]{Key: k, New: v, HasNew: true} }

// Del is the change that removes k.
func Del[K, V any](k K) Change[K, V] { return Change[K, V]{Key: k} }

// Map is an immutable ordered map. The zero Map is empty.
type Map[K Key[K], V Value] struct{ root *top[K, V] }

type entry[K Key[K], V Value] struct {
	key K
	val V
}

// chunk is a run of entries up to the next key that starts a chunk. It holds no hash per entry: values know theirs.
type chunk[K Key[K], V Value] struct {
	entries []entry[K, V]
	hash    Hash
	size    int
	level   level // of the first key; all other keys are inChunk
	block   atomic.Pointer[[]byte]
}

// page is a run of chunks up to the next chunk whose first key starts a page. It keeps the top list short.
type page[K Key[K], V Value] struct {
	chunks []*chunk[K, V]
	hash   Hash
	size   int
	count  int
}

type top[K Key[K], V Value] struct {
	pages []*page[K, V]
	hash  Hash
	size  int
	count int
}

func (c *chunk[K, V]) first() K { return c.entries[0].key }

func (p *page[K, V]) first() K { return p.chunks[0].entries[0].key }

// Get looks k up: O(log n).
func (m Map[K, V]) Get(k K) (V, bool) {
	if m.root == nil {
		var none V
		return none, false
	}
	p := m.root.pages[pageOf(m.root.pages, k)]
	c := p.chunks[chunkOf(p.chunks, k)]
	if i, ok := c.find(k); ok {
		return c.entries[i].val, true
	}
	var none V
	return none, false
}

// Has reports whether k is in the map.
func (m Map[K, V]) Has(k K) bool { _, ok := m.Get(k); return ok }

// Len is the number of entries.
func (m Map[K, V]) Len() int {
	if m.root == nil {
		return 0
	}
	return m.root.count
}

// Size is the sum of the values' sizes.
func (m Map[K, V]) Size() int {
	if m.root == nil {
		return 0
	}
	return m.root.size
}

// Hash is equal for two maps iff their content is equal; zero for the empty map.
func (m Map[K, V]) Hash() Hash {
	if m.root == nil {
		return Hash{}
	}
	return m.root.hash
}

// Equal reports whether two maps have the same content.
func (m Map[K, V]) Equal(o Map[K, V]) bool { return m.root == o.root || m.Hash() == o.Hash() }

// All yields the entries in key order.
func (m Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if m.root == nil {
			return
		}
		for _, p := range m.root.pages {
			for _, c := range p.chunks {
				for i := range c.entries {
					if !yield(c.entries[i].key, c.entries[i].val) {
						return
					}
				}
			}
		}
	}
}

// Blocks yields the values' bytes joined chunk by chunk, in key order: what is sent to many is then few large pieces and
// not thousands of small ones. A block is made when it is first asked for and lives as long as its chunk, so maps that
// share chunks share their blocks. appendTo must be the same function for all maps of a type. No block is empty.
func (m Map[K, V]) Blocks(appendTo func([]byte, V) []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if m.root == nil {
			return
		}
		for _, p := range m.root.pages {
			for _, c := range p.chunks {
				if b := c.joined(appendTo); len(b) > 0 && !yield(b) {
					return
				}
			}
		}
	}
}

func (c *chunk[K, V]) joined(appendTo func([]byte, V) []byte) []byte {
	if b := c.block.Load(); b != nil {
		return *b
	}
	b := make([]byte, 0, c.size)
	for i := range c.entries {
		b = appendTo(b, c.entries[i].val)
	}
	c.block.Store(&b) // whoever else is at it makes the same
	return b
}

// With returns the map with changes applied; on a key given twice the last one wins. The cost is that of the touched chunks,
// not of the map. A write of an equal value (by ContentHash) changes nothing: m.With() of no effective change returns m itself.
func (m Map[K, V]) With(changes ...Change[K, V]) Map[K, V] {
	changes = m.effective(ascending(changes))
	if len(changes) == 0 {
		return m
	}
	var b builder[K, V]
	b.apply(m.root, changes)
	return Map[K, V]{root: b.finish()}
}

// Same reports whether the two maps share their root (cheap; false negatives possible).
func (m Map[K, V]) Same(o Map[K, V]) bool { return m.root == o.root }

// pageOf is the index of the page that holds k or would take it. Keys below the first page belong to it.
func pageOf[K Key[K], V Value](pages []*page[K, V], k K) int {
	lo, hi := 1, len(pages) // invariant: pages before lo start at or below k (or are the first), pages from hi on start above it
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if pages[mid].first().Compare(k) <= 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo - 1
}

// chunkOf is pageOf for the chunks of a page.
func chunkOf[K Key[K], V Value](chunks []*chunk[K, V], k K) int {
	lo, hi := 1, len(chunks)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if chunks[mid].first().Compare(k) <= 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo - 1
}

// find is the index at which k is, or would be inserted, and whether it is there.
func (c *chunk[K, V]) find(k K) (int, bool) {
	lo, hi := 0, len(c.entries)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		switch d := c.entries[mid].key.Compare(k); {
		case d == 0:
			return mid, true
		case d < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return lo, false
}
