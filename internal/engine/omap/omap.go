// Package omap implements a persistent ordered map whose internal structure depends only on its content. Two maps with
// equal content have equal chunks and equal hashes, on every replica and after every sequence of writes. Collections,
// index groups, route tables and class states are such maps, and Diff computes what changed between two of them.
//
// The package owns the canonical form: how keys divide the sorted entries into chunks, how chunks are grouped into
// pages, and which data is hashed at each level. A map has exactly three levels above its entries: the top node, pages
// (about 512 entries each) and chunks (about 16 entries each).
//
// Invariants:
//   - The bytes of a key alone decide whether the key starts a chunk or a page (see levelOf). Only the first chunk and the
//     first page of a map may start with another key. No chunk, page or top node is empty; the empty map has no top node.
//   - A node is never written after it was built, with one exception: a chunk caches its block (see Blocks). A map shares
//     nodes with the map it was derived from. Two maps with equal content have equal nodes even if they share none.
//   - A write that changes no content hash returns the same top node.
//
// The hash that chooses the chunk boundaries has no secret key, so an attacker who chooses the names can make chunks
// large or small. That costs time (at worst a copy of one large chunk per change) but never correctness.
//
// Goroutines: the package starts none and takes no locks. All methods of Map may be called concurrently.
package omap

import (
	"crypto/sha256"
	"iter"
	"strings"
	"sync/atomic"
)

// Hash is a SHA-256 hash truncated to 128 bits. The zero Hash is the hash of the empty map.
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

// Key is the constraint on keys of a map. AppendTo appends an unambiguous binary form of the key. That form decides the
// chunk boundaries and is part of the map's hash, so it must be the same in every process.
type Key[K any] interface {
	comparable
	Compare(K) int
	AppendTo([]byte) []byte
}

// Value is the constraint on values of a map. ContentHash identifies the content: equal hashes mean equal values. Size is
// the number of bytes that the value contributes to a message, or 0 where that has no meaning; Map.Size adds them up.
type Value interface {
	ContentHash() Hash
	Size() int
}

// Unit is the value type of a map that is used as a set.
type Unit struct{}

// ContentHash returns the same hash for every Unit.
func (Unit) ContentHash() Hash { return Hash{} }

// Size returns 0.
func (Unit) Size() int { return 0 }

// Name is a key that is a string.
type Name string

// Compare orders names by their bytes.
func (n Name) Compare(o Name) int { return strings.Compare(string(n), string(o)) }

// AppendTo appends the name's bytes.
func (n Name) AppendTo(b []byte) []byte { return append(b, n...) }

// Change is one difference between two maps, or one write to a map. Diff fills all fields. With reads Key, New and HasNew
// only; HasNew == false means a deletion.
type Change[K, V any] struct {
	Key            K
	Old, New       V
	HadOld, HasNew bool
}

// Put returns the change that sets k to v.
func Put[K, V any](k K, v V) Change[K, V] { return Change[K, V]{Key: k, New: v, HasNew: true} }

// Del returns the change that deletes k.
func Del[K, V any](k K) Change[K, V] { return Change[K, V]{Key: k} }

// Map is an immutable ordered map. The zero Map is empty.
//
// With, From and Blocks are functions, because the compiler translates all methods of a Map in each package that can see a value of it, for each type of
// keys and values: with these three that took more time than everything else.
type Map[K Key[K], V Value] struct{ root *top[K, V] }

type entry[K Key[K], V Value] struct {
	key K
	val V
}

// chunk is a run of entries up to the next key that starts a chunk. It does not store the hashes of its values, because
// values return their own.
type chunk[K Key[K], V Value] struct {
	entries []entry[K, V]
	hash    Hash
	size    int
	level   level // level of the first key; all other keys have level inChunk
	block   atomic.Pointer[[]byte]
}

// page is a run of chunks up to the next chunk whose first key starts a page. Pages keep the list in the top node short.
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

// Get returns the value of k. It takes O(log n) comparisons.
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

// Has reports whether the map contains k.
func (m Map[K, V]) Has(k K) bool { _, ok := m.Get(k); return ok }

// Len returns the number of entries.
func (m Map[K, V]) Len() int {
	if m.root == nil {
		return 0
	}
	return m.root.count
}

// Size returns the sum of the values' sizes.
func (m Map[K, V]) Size() int {
	if m.root == nil {
		return 0
	}
	return m.root.size
}

// Hash returns the hash of the map's content. Two maps have equal hashes if and only if their content is equal. The hash of
// the empty map is zero.
func (m Map[K, V]) Hash() Hash {
	if m.root == nil {
		return Hash{}
	}
	return m.root.hash
}

// Equal reports whether two maps have the same content. It compares hashes, not entries.
func (m Map[K, V]) Equal(o Map[K, V]) bool { return m.root == o.root || m.Hash() == o.Hash() }

// All yields the entries in key order.
func (m Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if m.root == nil {
			return
		}
		for _, p := range m.root.pages {
			for _, c := range p.chunks {
				if !c.yield(0, yield) {
					return
				}
			}
		}
	}
}

// From yields the entries whose key is k or greater, in key order. It finds the first one in O(log n) comparisons.
func From[K Key[K], V Value](m Map[K, V], k K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if m.root == nil {
			return
		}
		pages := m.root.pages[pageOf(m.root.pages, k):]
		chunks := pages[0].chunks[chunkOf(pages[0].chunks, k):]
		at, _ := chunks[0].find(k)
		for {
			for _, c := range chunks {
				if !c.yield(at, yield) {
					return
				}
				at = 0
			}
			if pages = pages[1:]; len(pages) == 0 {
				return
			}
			chunks = pages[0].chunks
		}
	}
}

// yield yields the entries from index i on. It reports whether all were wanted.
func (c *chunk[K, V]) yield(i int, yield func(K, V) bool) bool {
	for ; i < len(c.entries); i++ {
		if !yield(c.entries[i].key, c.entries[i].val) {
			return false
		}
	}
	return true
}

// Blocks yields the bytes of the values in key order, joined chunk by chunk, so that a message to many clients consists of
// a few large buffers instead of thousands of small ones. A block is built when it is first requested and lives as long as
// its chunk, so maps that share chunks share their blocks. appendTo must be the same function for all maps of one type. No
// yielded block is empty.
func Blocks[K Key[K], V Value](m Map[K, V], appendTo func([]byte, V) []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if m.root == nil {
			return
		}
		for _, p := range m.root.pages {
			for _, c := range p.chunks {
				if b := joinedBlock(c, appendTo); len(b) > 0 && !yield(b) {
					return
				}
			}
		}
	}
}

func joinedBlock[K Key[K], V Value](c *chunk[K, V], appendTo func([]byte, V) []byte) []byte {
	if b := c.block.Load(); b != nil {
		return *b
	}
	b := make([]byte, 0, c.size)
	for i := range c.entries {
		b = appendTo(b, c.entries[i].val)
	}
	c.block.Store(&b) // a concurrent caller stores an equal block
	return b
}

// With returns the map with the changes applied. If a key occurs several times, its last change counts. The cost depends on
// the number and size of the touched chunks, not on the size of the map. A write of a value with an equal ContentHash changes
// nothing; if no change has an effect, With returns m itself.
func With[K Key[K], V Value](m Map[K, V], changes ...Change[K, V]) Map[K, V] {
	changes = effective(m, ascending(changes))
	if len(changes) == 0 {
		return m
	}
	var b builder[K, V]
	b.apply(m.root, changes)
	return Map[K, V]{root: b.finish()}
}

// Same reports whether the two maps share their top node. It is cheaper than Equal, but maps with equal content may have
// different top nodes.
func (m Map[K, V]) Same(o Map[K, V]) bool { return m.root == o.root }

// pageOf returns the index of the page that contains k, or would contain it. Keys below the first page belong to that page.
func pageOf[K Key[K], V Value](pages []*page[K, V], k K) int {
	// Invariant: pages before lo start at or below k (or are the first page), and pages from hi on start above k.
	lo, hi := 1, len(pages)
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

// chunkOf returns the index of the chunk that contains k, or would contain it; see pageOf.
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

// find returns the index of k, or the index at which it would be inserted, and whether the chunk contains k.
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
