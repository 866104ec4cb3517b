package omap

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// val is a value with a hash that is computed once, as the values of the product are.
type val struct{ *content }

type content struct {
	n    int
	hash Hash
}

func valOf(n int) val {
	return val{&content{n, Sum(binary.LittleEndian.AppendUint64(nil, uint64(n)))}}
}

func (v val) ContentHash() Hash { return v.hash }
func (v val) Size() int         { return v.n }

type (
	nameMap    = Map[Name, val]
	nameChange = Change[Name, val]
)

// check compares the result of every method of m with the plain map, and the nodes of m with the canonical form.
func check(t rapid.TB, m nameMap, plain map[Name]int) {
	t.Helper()
	size := 0
	for _, n := range plain {
		size += n
	}
	if m.Len() != len(plain) || m.Size() != size {
		t.Fatalf("Len, Size = %d, %d; want %d, %d", m.Len(), m.Size(), len(plain), size)
	}
	keys := slices.Sorted(maps.Keys(plain))
	at := 0
	for k, v := range m.All() {
		if at >= len(keys) || k != keys[at] || v.n != plain[k] {
			t.Fatalf("entry %d is %q = %d; want keys %q", at, k, v.n, keys)
		}
		at++
	}
	if at != len(keys) {
		t.Fatalf("All yields %d entries of %d", at, len(keys))
	}
	checkBlocks(t, m, keys, plain)
	for _, k := range keys {
		if v, ok := m.Get(k); !ok || v.n != plain[k] {
			t.Fatalf("Get(%q) = %v, %v; want %d", k, v, ok, plain[k])
		}
	}
	checkForm(t, m, keys, plain)
}

// checkBlocks checks that the joined blocks are the values in key order, also when Blocks is called again.
func checkBlocks(t rapid.TB, m nameMap, keys []Name, plain map[Name]int) {
	t.Helper()
	appendTo := func(b []byte, v val) []byte { return fmt.Appendln(b, v.n) }
	want := ""
	for _, k := range keys {
		want += fmt.Sprintln(plain[k])
	}
	for range 2 {
		got := ""
		for block := range Blocks(m, appendTo) {
			if len(block) == 0 {
				t.Fatal("an empty block")
			}
			got += string(block)
		}
		if got != want {
			t.Fatalf("blocks join to %q; want %q", got, want)
		}
	}
}

// checkForm computes the nodes from the content by their definition, without builder, and compares them with the nodes of m.
func checkForm(t rapid.TB, m nameMap, keys []Name, plain map[Name]int) {
	t.Helper()
	if len(keys) == 0 {
		if m.root != nil || m.Hash() != (Hash{}) {
			t.Fatalf("empty map has root %v, hash %x", m.root, m.Hash())
		}
		return
	}
	var pages [][][]Name
	for i, k := range keys {
		l := levelOf([]byte(k))
		if i == 0 || l == startsPage {
			pages = append(pages, nil)
		}
		p := &pages[len(pages)-1]
		if i == 0 || l >= startsChunk {
			*p = append(*p, nil)
		}
		c := &(*p)[len(*p)-1]
		*c = append(*c, k)
	}
	var got [][][]Name
	for _, p := range m.root.pages {
		var chunks [][]Name
		for _, c := range p.chunks {
			var names []Name
			for _, e := range c.entries {
				names = append(names, e.key)
			}
			if c.level != levelOf([]byte(names[0])) {
				t.Fatalf("chunk at %q has level %d", names[0], c.level)
			}
			chunks = append(chunks, names)
		}
		got = append(got, chunks)
	}
	if g, w := fmt.Sprintf("%q", got), fmt.Sprintf("%q", pages); g != w {
		t.Fatalf("layout\n got %s\nwant %s", g, w)
	}
	ofTop := []byte{topTag}
	for _, p := range pages {
		ofPage := []byte{pageTag}
		for _, c := range p {
			ofChunk := []byte{chunkTag}
			for _, k := range c {
				h := valOf(plain[k]).hash
				ofChunk = binary.LittleEndian.AppendUint32(ofChunk, uint32(len(k)))
				ofChunk = append(append(ofChunk, k...), h[:]...)
			}
			h := Sum(ofChunk)
			ofPage = append(ofPage, h[:]...)
		}
		h := Sum(ofPage)
		ofTop = append(ofTop, h[:]...)
	}
	if want := Sum(ofTop); m.Hash() != want {
		t.Fatalf("hash %x; want %x", m.Hash(), want)
	}
}

// checkDiff checks that Diff yields each key whose value differs, once, in key order.
func checkDiff(t rapid.TB, a, b nameMap, plainA, plainB map[Name]int) {
	t.Helper()
	both := maps.Clone(plainA)
	maps.Copy(both, plainB)
	var want []string
	for _, k := range slices.Sorted(maps.Keys(both)) {
		x, inA := plainA[k]
		y, inB := plainB[k]
		if x != y || inA != inB {
			want = append(want, fmt.Sprint(k, x, inA, y, inB))
		}
	}
	var got []string
	var changes []nameChange
	for c := range Diff(a, b) {
		changes = append(changes, c)
		x, y := 0, 0
		if c.HadOld {
			x = c.Old.n
		}
		if c.HasNew {
			y = c.New.n
		}
		got = append(got, fmt.Sprint(c.Key, x, c.HadOld, y, c.HasNew))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("Diff\n got %q\nwant %q", got, want)
	}
	if r := With(a, changes...); r.Hash() != b.Hash() {
		t.Fatalf("Diff replayed gives another map")
	}
	if (a.Hash() == b.Hash()) != (len(want) == 0) {
		t.Fatalf("hashes equal: %v, but %d differences", a.Hash() == b.Hash(), len(want))
	}
	for stop := range changes {
		n := 0
		for range Diff(a, b) {
			if n++; n > stop {
				break
			}
		}
		if n != stop+1 {
			t.Fatalf("Diff stopped by itself after %d of %d", n, len(changes))
		}
	}
}

func scratch(plain map[Name]int) nameMap {
	var changes []nameChange
	for k, n := range plain { // in random order
		changes = append(changes, Put(k, valOf(n)))
	}
	return With(nameMap{}, changes...)
}

func replay(plain map[Name]int, changes []nameChange) map[Name]int {
	plain = maps.Clone(plain)
	for _, c := range changes {
		if c.HasNew {
			plain[c.Key] = c.New.n
		} else {
			delete(plain, c.Key)
		}
	}
	return plain
}

// keysOf returns n names that have the given level and prefix.
func keysOf(l level, prefix string, n int) []Name {
	var out []Name
	for i := 0; len(out) < n; i++ {
		if k := fmt.Sprintf("%s%05d", prefix, i); levelOf([]byte(k)) == l {
			out = append(out, Name(k))
		}
	}
	return out
}

// pool returns names among which boundaries are as frequent as other keys. With the natural frequencies a small random map
// has one chunk, and the test would exercise nothing.
func pool() []Name {
	return slices.Concat(keysOf(inChunk, "", 40), keysOf(startsChunk, "", 30), keysOf(startsPage, "", 12), []Name{""})
}

func TestAgainstPlainMap(t *testing.T) {
	names := pool()
	rapid.Check(t, func(t *rapid.T) {
		gen := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) nameChange {
			k := rapid.SampledFrom(names).Draw(t, "key")
			if rapid.IntRange(0, 9).Draw(t, "op") < 4 {
				return Del[Name, val](k)
			}
			return Put(k, valOf(rapid.IntRange(1, 3).Draw(t, "value")))
		}), 0, 60)
		var m nameMap
		plain := map[Name]int{}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			changes := gen.Draw(t, "changes")
			given := slices.Clone(changes)
			next, nextPlain := With(m, changes...), replay(plain, changes)
			if !slices.Equal(changes, given) {
				t.Fatalf("With wrote to its argument")
			}
			check(t, next, nextPlain)
			check(t, m, plain) // the old map has not changed
			checkFrom(t, next, nextPlain, rapid.SampledFrom(names).Draw(t, "from"))
			if s := scratch(nextPlain); s.Hash() != next.Hash() {
				t.Fatalf("hash depends on history")
			}
			if maps.Equal(plain, nextPlain) != next.Same(m) {
				t.Fatalf("Same = %v, content equal = %v", next.Same(m), maps.Equal(plain, nextPlain))
			}
			checkDiff(t, m, next, plain, nextPlain)
			checkDiff(t, next, m, nextPlain, plain)
			checkDiff(t, scratch(plain), next, plain, nextPlain) // the two maps share no nodes
			m, plain = next, nextPlain
		}
		for k := range plain {
			m = With(m, Del[Name, val](k))
		}
		check(t, m, nil)
	})
}

// TestBoundaries deletes each key that starts a chunk or a page, in a map with further pages, and inserts it again.
func TestBoundaries(t *testing.T) {
	const n = 3000
	m, plain := filled(n), map[Name]int{}
	for i := range n {
		plain[nameAt(i)] = i
	}
	for i := range n {
		k := nameAt(i)
		if levelOf([]byte(k)) == inChunk {
			continue
		}
		less := maps.Clone(plain)
		delete(less, k)
		without := With(m, Del[Name, val](k))
		checkForm(t, without, slices.Sorted(maps.Keys(less)), less)
		if back := With(without, Put(k, valOf(i))); back.Hash() != m.Hash() {
			t.Fatalf("%s taken out and put back gives another map", k)
		}
	}
}

// TestLargeHistory applies random changes to a map with natural boundaries and several pages.
func TestLargeHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1000, 3000).Draw(t, "n")
		m, plain := nameMap{}, map[Name]int{}
		for range 3 {
			var changes []nameChange
			for range rapid.IntRange(1, n).Draw(t, "changes") {
				k := nameAt(rapid.IntRange(0, n).Draw(t, "key"))
				if rapid.Bool().Draw(t, "delete") {
					changes = append(changes, Del[Name, val](k))
				} else {
					changes = append(changes, Put(k, valOf(1)))
				}
			}
			m, plain = With(m, changes...), replay(plain, changes)
			check(t, m, plain)
		}
	})
}

func TestNoOpIsSame(t *testing.T) {
	m := filled(1000)
	if got := With(m); !got.Same(m) {
		t.Error("no change")
	}
	if got := With(m, Put(nameAt(3), valOf(3)), Del[Name, val]("absent"), Put(nameAt(999), valOf(999))); !got.Same(m) {
		t.Error("equal values and deletion of the absent")
	}
	if got := With(m, Put[Name]("x", valOf(1)), Del[Name, val]("x")); !got.Same(m) {
		t.Error("last one wins: written, then deleted")
	}
	if got := With(nameMap{}, Del[Name, val]("absent")); !got.Same(nameMap{}) {
		t.Error("deletion from the empty map")
	}
}

// checkFrom compares what From yields, as a whole and when it is stopped, with a plain map.
func checkFrom(t *rapid.T, m nameMap, plain map[Name]int, from Name) {
	var want []Name
	for _, k := range slices.Sorted(maps.Keys(plain)) {
		if k >= from {
			want = append(want, k)
		}
	}
	var got []Name
	for k, v := range From(m, from) {
		if got = append(got, k); v.n != plain[k] {
			t.Fatalf("From(%q): %q has the value %d, want %d", from, k, v.n, plain[k])
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("From(%q) = %q, want %q", from, got, want)
	}
	for range From(m, from) {
		break
	}
}

func TestAllStops(t *testing.T) {
	n := 0
	for range filled(100).All() {
		if n++; n == 40 {
			break
		}
	}
	if n != 40 {
		t.Errorf("%d entries", n)
	}
}

// TestGolden fails when the canonical form changes, because then hashes, and versions that proxies receive, differ between
// releases. Such a change is allowed, but must be intended.
func TestGolden(t *testing.T) {
	for _, c := range []struct {
		n    int
		want string
	}{
		{0, "00000000000000000000000000000000"},
		{1, "4de825dfe2b8a0af43e5b8d5f4c68c16"},
		{2000, "d7aa32479f9b6da75c517ebf6e7a9ecb"},
	} {
		m := filled(c.n)
		h := m.Hash()
		if got := hex.EncodeToString(h[:]); got != c.want {
			t.Errorf("hash of the map of %d entries is %s; want %s", c.n, got, c.want)
		}
	}
}

func nodes(m nameMap) (set map[any]bool) {
	set = map[any]bool{}
	for _, p := range m.root.pages {
		set[p] = true
		for _, c := range p.chunks {
			set[c] = true
		}
	}
	return set
}

func TestSharing(t *testing.T) {
	const n = 10_000
	m := filled(n)
	old := nodes(m)
	if len(m.root.pages) > 60 || len(old) > 1000 || len(old) < 400 {
		t.Fatalf("%d pages, %d nodes", len(m.root.pages), len(old))
	}
	for i := 0; i < n; i += 97 {
		k := nameAt(i)
		for what, next := range map[string]nameMap{
			"change": With(m, Put(k, valOf(-1))),
			"delete": With(m, Del[Name, val](k)),
			"insert": With(m, Put(k+"x", valOf(-1))),
		} {
			fresh := 0
			for node := range nodes(next) {
				if !old[node] {
					fresh++
				}
			}
			// An insertion or deletion may touch two chunks and two pages; a change of a value touches one of each.
			if limit := map[string]int{"change": 2, "delete": 2, "insert": 4}[what]; fresh > limit {
				t.Errorf("%s at %d: %d new nodes, want at most %d", what, i, fresh, limit)
			}
		}
	}
}

func TestAdversarialKeys(t *testing.T) {
	for _, l := range []level{inChunk, startsChunk, startsPage} {
		keys := keysOf(l, "k", 130)
		m, plain := nameMap{}, map[Name]int{}
		step := func(c nameChange) {
			t.Helper()
			next, nextPlain := With(m, c), replay(plain, []nameChange{c})
			check(t, next, nextPlain)
			checkDiff(t, m, next, plain, nextPlain)
			m, plain = next, nextPlain
		}
		for i := range keys {
			step(Put(keys[i*7%len(keys)], valOf(i)))
		}
		// A key of level inChunk is inserted before, between and behind the others, with and without a boundary before it.
		for _, k := range slices.Concat(keysOf(inChunk, "a", 1), keysOf(inChunk, "k00060-", 1), keysOf(inChunk, "z", 1)) {
			step(Put(k, valOf(1)))
		}
		for i := range keys {
			step(Del[Name, val](keys[i*11%len(keys)]))
		}
		if m.Len() != 3 {
			t.Errorf("level %d: %d entries are left", l, m.Len())
		}
	}
}

// pair is a key with two parts. The pairs ("ab", "c") and ("a", "bc") must have different encodings.
type pair struct{ a, b string }

func (p pair) Compare(o pair) int {
	if d := strings.Compare(p.a, o.a); d != 0 {
		return d
	}
	return strings.Compare(p.b, o.b)
}

func (p pair) AppendTo(b []byte) []byte { return append(append(append(b, p.a...), 0), p.b...) }

func TestHashIsUnambiguous(t *testing.T) {
	seen := map[Hash]string{}
	note := func(h Hash, what string) {
		t.Helper()
		if other, ok := seen[h]; ok {
			t.Errorf("%s and %s have one hash", what, other)
		}
		seen[h] = what
	}
	set := func(keys ...pair) Hash {
		var m Map[pair, Unit]
		for _, k := range keys {
			m = With(m, Put(k, Unit{}))
		}
		return m.Hash()
	}
	zeros := string(make([]byte, 20)) // the length of a key and the hash of a Unit are zero bytes too
	note(set(), "nothing")
	note(set(pair{}), "empty key")
	note(set(pair{"ab", "c"}), "ab,c")
	note(set(pair{"a", "bc"}), "a,bc")
	note(set(pair{"a", "b"}, pair{"c", ""}), "two keys")
	note(set(pair{"a", zeros}), "a key that looks like an entry")
	note(set(pair{"a", ""}, pair{"", ""}), "two entries")
}

func TestAllocations(t *testing.T) {
	m := filled(1000)
	k, c := nameAt(500), Put(nameAt(500), valOf(500))
	if n := testing.AllocsPerRun(100, func() { m.Get(k) }); n != 0 {
		t.Errorf("Get allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() { With(m, c) }); n > 1 {
		t.Errorf("a write of the same value allocates %v times", n)
	}
}

// FuzzMap interprets its input as writes to two maps: bytes select the key, the value or a deletion, and when to commit.
func FuzzMap(f *testing.F) {
	f.Add([]byte{1, 2, 3, 255, 4, 5})
	f.Add([]byte("\x00\x01\x02\x01\xff\xff\x00\x00\xff\xff"))
	f.Add(slices.Repeat([]byte{80, 1, 70, 2, 10, 0}, 20))
	names := pool()
	f.Fuzz(func(t *testing.T, input []byte) {
		var m nameMap
		plain := map[Name]int{}
		var changes []nameChange
		commit := func() {
			next, nextPlain := With(m, changes...), replay(plain, changes)
			check(t, next, nextPlain)
			if maps.Equal(plain, nextPlain) != next.Same(m) {
				t.Fatalf("Same = %v, content equal = %v", next.Same(m), maps.Equal(plain, nextPlain))
			}
			checkDiff(t, m, next, plain, nextPlain)
			m, plain, changes = next, nextPlain, nil
		}
		for ; len(input) >= 2; input = input[2:] {
			if input[0] == 255 {
				commit()
				continue
			}
			k := names[int(input[0])%len(names)]
			if n := int(input[1]) % 4; n == 0 {
				changes = append(changes, Del[Name, val](k))
			} else {
				changes = append(changes, Put(k, valOf(n)))
			}
		}
		commit()
	})
}
