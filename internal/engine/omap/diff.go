package omap

import "iter"

// Diff yields, in key order, the entries that differ between a and b. It skips equal pages and chunks by comparing their
// pointers and then their hashes.
func Diff[K Key[K], V Value](a, b Map[K, V]) iter.Seq[Change[K, V]] {
	return func(yield func(Change[K, V]) bool) {
		if a.Equal(b) {
			return
		}
		x, y := cursorOf(a), cursorOf(b)
		for !x.done() && !y.done() {
			if skipShared(&x, &y) {
				continue
			}
			d := x.entry().key.Compare(y.entry().key)
			var c Change[K, V]
			if d <= 0 {
				e := x.entry()
				c.Key, c.Old, c.HadOld = e.key, e.val, true
				x.next()
			}
			if d >= 0 {
				e := y.entry()
				c.Key, c.New, c.HasNew = e.key, e.val, true
				y.next()
			}
			if d == 0 && c.Old.ContentHash() == c.New.ContentHash() {
				continue
			}
			if !yield(c) {
				return
			}
		}
		for ; !x.done(); x.next() {
			if e := x.entry(); !yield(Change[K, V]{Key: e.key, Old: e.val, HadOld: true}) {
				return
			}
		}
		for ; !y.done(); y.next() {
			if e := y.entry(); !yield(Put(e.key, e.val)) {
				return
			}
		}
	}
}

// skipShared advances both cursors if both are at the start of a page or chunk that is the same in both maps. Boundaries
// depend on keys only, so wherever the maps are equal both cursors reach such a start at the same time.
func skipShared[K Key[K], V Value](x, y *cursor[K, V]) bool {
	if x.entryAt != 0 || y.entryAt != 0 {
		return false
	}
	if x.chunkAt == 0 && y.chunkAt == 0 {
		if p, q := x.pages[0], y.pages[0]; p == q || p.hash == q.hash {
			x.nextPage()
			y.nextPage()
			return true
		}
	}
	if c, d := x.chunk(), y.chunk(); c == d || c.hash == d.hash {
		x.nextChunk()
		y.nextChunk()
		return true
	}
	return false
}

// cursor is a position in a map: an entry, or the end of the map when pages is empty.
type cursor[K Key[K], V Value] struct {
	pages            []*page[K, V] // the current page and those after it
	chunkAt, entryAt int           // indexes of the chunk in the current page, and of the entry in that chunk
}

func cursorOf[K Key[K], V Value](m Map[K, V]) cursor[K, V] {
	if m.root == nil {
		return cursor[K, V]{}
	}
	return cursor[K, V]{pages: m.root.pages}
}

func (c *cursor[K, V]) done() bool { return len(c.pages) == 0 }

func (c *cursor[K, V]) chunk() *chunk[K, V] { return c.pages[0].chunks[c.chunkAt] }

func (c *cursor[K, V]) entry() *entry[K, V] { return &c.chunk().entries[c.entryAt] }

func (c *cursor[K, V]) next() {
	if c.entryAt++; c.entryAt == len(c.chunk().entries) {
		c.nextChunk()
	}
}

func (c *cursor[K, V]) nextChunk() {
	c.entryAt = 0
	if c.chunkAt++; c.chunkAt == len(c.pages[0].chunks) {
		c.nextPage()
	}
}

func (c *cursor[K, V]) nextPage() {
	c.pages, c.chunkAt, c.entryAt = c.pages[1:], 0, 0
}
