package omap

import "slices"

// ascending returns the changes in strictly ascending key order. If a key occurs several times, only its last change is
// kept. The function does not write to its argument, and returns it if it is in order already, as the output of Diff is.
func ascending[K Key[K], V Value](changes []Change[K, V]) []Change[K, V] {
	inOrder := true
	for i := 1; i < len(changes) && inOrder; i++ {
		inOrder = changes[i-1].Key.Compare(changes[i].Key) < 0
	}
	if inOrder {
		return changes
	}
	order := sortedPositions(len(changes), func(i, j int32) int { return changes[i].Key.Compare(changes[j].Key) })
	out := make([]Change[K, V], 0, len(changes))
	for n, i := range order {
		if n+1 < len(order) && changes[i].Key.Compare(changes[order[n+1]].Key) == 0 {
			continue
		}
		out = append(out, changes[i])
	}
	return out
}

// sortedPositions returns the positions of a list of n items in the order of the items. Of two equal items, the earlier comes
// first. Sorting positions moves fewer bytes than sorting items, and the compiler translates it once for all types of items.
func sortedPositions(n int, compare func(i, j int32) int) []int32 {
	order := make([]int32, n)
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(i, j int32) int {
		if d := compare(i, j); d != 0 {
			return d
		}
		return int(i - j)
	})
	return order
}

// effective returns the changes that would change m. It does not write to its argument.
func effective[K Key[K], V Value](m Map[K, V], changes []Change[K, V]) []Change[K, V] {
	first := slices.IndexFunc(changes, func(c Change[K, V]) bool { return ineffective(m, c) })
	if first < 0 {
		return changes
	}
	out := slices.Clone(changes[:first])
	for _, c := range changes[first+1:] {
		if !ineffective(m, c) {
			out = append(out, c)
		}
	}
	return out
}

func ineffective[K Key[K], V Value](m Map[K, V], c Change[K, V]) bool {
	old, had := m.Get(c.Key)
	if !had || !c.HasNew {
		return had == c.HasNew
	}
	return old.ContentHash() == c.New.ContentHash()
}

// builder receives the new content in key order, as single entries and as whole chunks and pages of the old map, and
// divides it into canonical chunks and pages. A whole chunk or page stays shared with the old map unless an entry follows
// that does not start a chunk: then the builder reopens the last chunk and its page. In this way the deletion of a key
// that started a chunk joins the rest of that chunk to the chunk before it.
type builder[K Key[K], V Value] struct {
	pages   []*page[K, V]  // finished pages
	chunks  []*chunk[K, V] // finished chunks of the open page
	entries []entry[K, V]  // entries of the open chunk
	level   level          // level of entries[0].key
	bytes   []byte         // buffer for the input of a hash
}

// apply adds the content of the old map (root) with changes, which must be ascending and effective. It takes over pages
// and chunks without changes as they are.
func (b *builder[K, V]) apply(root *top[K, V], changes []Change[K, V]) {
	if root == nil {
		for i := range changes {
			b.insert(&changes[i])
		}
		return
	}
	pages := root.pages
	b.pages = make([]*page[K, V], 0, len(pages)+1) // one insertion adds at most one page; the same holds for chunks and entries below
	for len(changes) > 0 {
		i := pageOf(pages, changes[0].Key)
		b.addPages(pages[:i])
		p := pages[i]
		pages = pages[i+1:]
		n := len(changes)
		if len(pages) > 0 {
			n = countBelow(changes, pages[0].first())
		}
		b.applyPage(p, changes[:n])
		changes = changes[n:]
	}
	b.addPages(pages)
}

// applyPage adds the content of one page with the changes that belong to it.
func (b *builder[K, V]) applyPage(p *page[K, V], changes []Change[K, V]) {
	chunks := p.chunks
	b.chunks = slices.Grow(b.chunks, len(chunks)+1)
	for len(changes) > 0 {
		i := chunkOf(chunks, changes[0].Key)
		b.addChunks(chunks[:i])
		c := chunks[i]
		chunks = chunks[i+1:]
		n := len(changes)
		if len(chunks) > 0 {
			n = countBelow(changes, chunks[0].first())
		}
		b.applyChunk(c, changes[:n])
		changes = changes[n:]
	}
	b.addChunks(chunks)
}

// applyChunk adds the content of one chunk with the changes that belong to it.
func (b *builder[K, V]) applyChunk(c *chunk[K, V], changes []Change[K, V]) {
	old, l := c.entries, c.level
	b.entries = slices.Grow(b.entries, len(old)+1)
	for i := range changes {
		ch := &changes[i]
		for len(old) > 0 && old[0].key.Compare(ch.Key) < 0 {
			b.add(old[0], l)
			old, l = old[1:], inChunk
		}
		if len(old) == 0 || old[0].key.Compare(ch.Key) != 0 {
			b.insert(ch) // not a deletion, because the change is effective
			continue
		}
		if ch.HasNew {
			b.add(entry[K, V]{ch.Key, ch.New}, l)
		}
		old, l = old[1:], inChunk
	}
	for ; len(old) > 0; old, l = old[1:], inChunk {
		b.add(old[0], l)
	}
}

// countBelow returns the number of leading changes whose keys are below limit.
func countBelow[K Key[K], V Value](changes []Change[K, V], limit K) int {
	n := 0
	for n < len(changes) && changes[n].Key.Compare(limit) < 0 {
		n++
	}
	return n
}

// insert adds an entry whose key is not in the old map.
func (b *builder[K, V]) insert(c *Change[K, V]) {
	b.bytes = c.Key.AppendTo(b.bytes[:0])
	b.add(entry[K, V]{c.Key, c.New}, levelOf(b.bytes))
}

// add adds an entry whose key has the given level.
func (b *builder[K, V]) add(e entry[K, V], l level) {
	if l == inChunk {
		b.reopenChunk()
	} else {
		b.closeChunk()
		b.turnPage(l)
	}
	if len(b.entries) == 0 {
		b.level = l
	}
	b.entries = append(b.entries, e)
}

// addChunks adds unchanged chunks of one page.
func (b *builder[K, V]) addChunks(chunks []*chunk[K, V]) {
	if len(chunks) == 0 {
		return
	}
	b.closeChunk()
	b.turnPage(chunks[0].level) // only the first chunk of a page can start a page
	b.chunks = append(b.chunks, chunks...)
}

// addPages adds unchanged pages.
func (b *builder[K, V]) addPages(pages []*page[K, V]) {
	if len(pages) == 0 {
		return
	}
	b.closeChunk()
	b.closePage()
	b.pages = append(b.pages, pages...)
}

// turnPage closes or reopens a page, so that the open page is the one to which a chunk of level l belongs.
func (b *builder[K, V]) turnPage(l level) {
	if l == startsPage {
		b.closePage()
	} else {
		b.reopenPage()
	}
}

func (b *builder[K, V]) closeChunk() {
	if len(b.entries) == 0 {
		return
	}
	c := &chunk[K, V]{entries: make([]entry[K, V], len(b.entries)), level: b.level}
	copy(c.entries, b.entries)
	b.bytes = append(slices.Grow(b.bytes[:0], 64*len(c.entries)), chunkTag)
	for i := range c.entries {
		b.bytes = appendEntry(b.bytes, &c.entries[i])
		c.size += c.entries[i].val.Size()
	}
	c.hash = sum128(b.bytes)
	b.chunks = append(b.chunks, c)
	b.entries = b.entries[:0]
}

// closePage finishes the open page. The open chunk must be closed before.
func (b *builder[K, V]) closePage() {
	if len(b.chunks) == 0 {
		return
	}
	p := &page[K, V]{chunks: make([]*chunk[K, V], len(b.chunks))}
	copy(p.chunks, b.chunks)
	b.bytes = append(b.bytes[:0], pageTag)
	for _, c := range p.chunks {
		b.bytes = append(b.bytes, c.hash[:]...)
		p.size += c.size
		p.count += len(c.entries)
	}
	p.hash = sum128(b.bytes)
	b.pages = append(b.pages, p)
	b.chunks = b.chunks[:0]
}

// reopenChunk makes the last finished chunk, if there is one, the open chunk.
func (b *builder[K, V]) reopenChunk() {
	if len(b.entries) > 0 {
		return
	}
	b.reopenPage()
	if n := len(b.chunks); n > 0 {
		c := b.chunks[n-1]
		b.chunks = b.chunks[:n-1]
		b.entries, b.level = append(b.entries, c.entries...), c.level
	}
}

// reopenPage makes the last finished page, if there is one, the open page.
func (b *builder[K, V]) reopenPage() {
	if len(b.chunks) > 0 || len(b.entries) > 0 {
		return
	}
	if n := len(b.pages); n > 0 {
		p := b.pages[n-1]
		b.pages = b.pages[:n-1]
		b.chunks = append(b.chunks, p.chunks...)
	}
}

// finish returns the top node of the new map, or nil if the map is empty.
func (b *builder[K, V]) finish() *top[K, V] {
	b.closeChunk()
	b.closePage()
	if len(b.pages) == 0 {
		return nil
	}
	t := &top[K, V]{pages: slices.Clip(b.pages)}
	b.bytes = append(b.bytes[:0], topTag)
	for _, p := range t.pages {
		b.bytes = append(b.bytes, p.hash[:]...)
		t.size += p.size
		t.count += p.count
	}
	t.hash = sum128(b.bytes)
	return t
}
