// Package allocation decides which addresses the hosts of ServiceEntries get if their authors name none.
//
// The addresses of a host are in status.addresses, so a decision of this package lasts once it is written there. The package
// decides only changes of the status: an address for a host that has none, and another one for a host whose address belongs
// to another host. There are two small cells for each ServiceEntry, and choices only while they are to be written.
//
// Invariants: A host keeps its address, unless an older object has it too or names it in its spec. A block of addresses that an object
// names takes no address from a host; new addresses are chosen outside of blocks while there are such. No address is decided for two
// hosts. What a cell reads and tries is bounded. Decisions depend on rows only, so all replicas decide the same: the first choice of a host is a hash
// of its name, and where hosts choose the same address, the older object gets it.
//
// The package starts no goroutines.
package allocation

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/selected"
)

// Change is a change of status.addresses of a ServiceEntry.
type Change struct {
	Key api.Key
	// Has is its present value, and Want the value to write.
	Has, Want []api.Allocation
	// Full are the hosts for which there is no address left, each once.
	Full []string
}

// OutputName implements query.Output.
func (c Change) OutputName() string { return c.Key.String() }

// ContentHash implements omap.Value.
func (c Change) ContentHash() omap.Hash {
	b := c.Key.AppendTo(nil)
	for _, list := range [][]api.Allocation{c.Has, c.Want} {
		for _, a := range list {
			b = append(append(append(append(b, a.Host...), 0), a.Address...), 0)
		}
		b = append(b, 1)
	}
	return omap.Sum(b, []byte(strings.Join(c.Full, "\n")))
}

// Size implements omap.Value: changes are not sent to proxies.
func (Change) Size() int { return 0 }

// Changes are changes by object.
type Changes = omap.Map[omap.Name, Change]

// All is the key of the collection of all changes.
type All struct{}

// Queries decide about addresses.
type Queries struct {
	// Changes are the changes to write.
	Changes query.Layers[All, omap.Name, Change]

	tables *state.Tables
	entry  query.Query[api.Key, []entry]
	needs  query.Groups[All, section, need]
	chosen query.Query[section, []choice]
}

// entry is a ServiceEntry to which addresses are allocated.
type entry struct {
	selected.AgeKey
	hosts     []string
	has, kept []api.Allocation
	needs     []need
}

// OutputName implements query.Output.
func (e entry) OutputName() string { return e.Key.String() }

// ContentHash implements omap.Value.
func (e entry) ContentHash() omap.Hash {
	b := Change{Key: e.Key, Has: e.has, Want: e.kept}.ContentHash()
	out := append(e.AgeKey.AppendTo(b[:]), strings.Join(e.hosts, "\n")...)
	for _, l := range e.needs {
		out = l.AppendTo(out)
	}
	return omap.Sum(out)
}

// Size implements omap.Value.
func (entry) Size() int { return 0 }

// need is an address that a host of an object needs.
type need struct {
	selected.AgeKey
	host string
	ipv6 bool
}

// Compare orders by the age of the object, then by host and version.
func (l need) Compare(o need) int {
	return cmp.Or(l.AgeKey.Compare(o.AgeKey), strings.Compare(l.host, o.host), bytes.Compare(flag(l.ipv6), flag(o.ipv6)))
}

// AppendTo appends an unambiguous form.
func (l need) AppendTo(b []byte) []byte {
	b = append(l.AgeKey.AppendTo(b), l.host...)
	return append(append(b, 0), flag(l.ipv6)...)
}

func flag(set bool) []byte {
	if set {
		return []byte{1}
	}
	return []byte{0}
}

// choice is the address for a need.
type choice struct {
	need
	address netip.Addr
}

// Define adds the queries to a graph.
func Define(g *query.Graph, t *state.Tables) *Queries {
	q := &Queries{tables: t}
	all := func(r *query.Reader, _ All) omap.Map[api.Key, omap.Unit] {
		return t.Kinds.Group(r, api.KindServiceEntry)
	}
	self := func(_ All, k api.Key) api.Key { return k }
	q.entry = query.Define(g, "addressedEntry", sameOutputs[entry], q.readEntry)
	entries := query.Each(g, "addressedEntries", all, q.entry, self)
	q.needs = query.GroupBy(g, "addressNeeds", entries, func(e entry, add func(section, need)) {
		for _, l := range e.needs {
			add(q.rangeOf(l.ipv6).section(l), l)
		}
	})
	q.chosen = query.Define(g, "chosenAddresses", slices.Equal[[]choice], q.choose)
	changes := query.Each(g, "addressChanges", all, query.Define(g, "addressChange", sameOutputs[Change], q.change), self)
	q.Changes = query.DefineLayers(g, "allAddressChanges", func(r *query.Reader, all All) []Changes { return []Changes{changes.Get(r, all)} })
	return q
}

func sameOutputs[V query.Output](a, b []V) bool {
	return slices.EqualFunc(a, b, func(a, b V) bool { return a.ContentHash() == b.ContentHash() })
}

// readEntry returns which of its addresses a ServiceEntry keeps, and which addresses it still needs.
func (q *Queries) readEntry(r *query.Reader, k api.Key) ([]entry, bool) {
	o, ok := q.tables.Objects.Get(r, k)
	if !ok || !state.Allocates(o) {
		return nil, false
	}
	e := entry{AgeKey: selected.AgeKey{Created: o.Created.UnixMicro(), Key: k}, has: o.Allocated}
	hosts := state.OwnHosts(o)
	e.hosts = hosts
	for _, a := range o.Allocated {
		if (a.Host == "" || slices.Contains(hosts, a.Host)) && q.keeps(r, k, a) && !slices.ContainsFunc(e.kept, func(b api.Allocation) bool { return a.Address == b.Address }) {
			e.kept = append(e.kept, a)
		}
	}
	for _, host := range hosts {
		for _, ipv6 := range []bool{false, true} {
			if !slices.ContainsFunc(e.kept, func(a api.Allocation) bool { return (a.Host == host || a.Host == "") && isIPv6(a) == ipv6 }) {
				e.needs = append(e.needs, need{e.AgeKey, host, ipv6})
			}
		}
	}
	return []entry{e}, true
}

func isIPv6(a api.Allocation) bool { return strings.Contains(a.Address, ":") }

// keeps reports whether an address in the status of an object is the object's.
func (q *Queries) keeps(r *query.Reader, k api.Key, a api.Allocation) bool {
	ip, err := netip.ParseAddr(a.Address)
	if err != nil {
		return false
	}
	for first := range q.tables.AddressHolders.Group(r, ip).All() {
		return first.Key == k
	}
	return false
}

// maxBlocks bounds how many blocks are avoided in a section.
const maxBlocks = 16

// avoided are the blocks that objects name in a section. One that has all of it is not avoided, because nothing would be left.
func (q *Queries) avoided(r *query.Reader, section netip.Prefix) (list []netip.Prefix) {
	for block := range q.tables.NamedBlocks.Group(r, struct{}{}).All() {
		if section.Overlaps(block.Prefix) && block.Bits() > section.Bits() && len(list) < maxBlocks {
			list = append(list, block.Prefix)
		}
	}
	return list
}

// choose chooses an address for each need of a section, older objects first.
func (q *Queries) choose(r *query.Reader, s section) ([]choice, bool) {
	var list []choice
	of := q.rangeOf(s.ipv6)
	prefix := of.prefix(s)
	held, blocks, chosen := q.tables.TakenIn.Group(r, prefix), q.avoided(r, prefix), map[netip.Addr]bool{}
	for l := range q.needs.Group(r, All{}, s).All() {
		var best netip.Addr
		for ip := range of.candidates(l) {
			if chosen[ip] || held.Has(mesh.AddressBlock{Prefix: netip.PrefixFrom(ip, ip.BitLen())}) {
				continue
			}
			inBlock := slices.ContainsFunc(blocks, func(b netip.Prefix) bool { return b.Contains(ip) })
			if !inBlock || !best.IsValid() {
				best = ip
			}
			if !inBlock {
				break
			}
		}
		if best.IsValid() {
			chosen[best] = true
			list = append(list, choice{l, best})
		} else if of.within <= maxTriedBits {
			break // the section is full
		}
	}
	return list, len(list) > 0
}

// change returns the change of the status of a ServiceEntry, if its addresses change or a host gets none.
func (q *Queries) change(r *query.Reader, k api.Key) ([]Change, bool) {
	list, ok := q.entry.Get(r, k)
	if !ok {
		return nil, false
	}
	e := list[0]
	c := Change{Key: k, Has: e.has, Want: slices.Clone(e.kept)}
	for _, l := range e.needs {
		chosen, _ := q.chosen.Get(r, q.rangeOf(l.ipv6).section(l))
		i, found := slices.BinarySearchFunc(chosen, l, func(a choice, b need) int { return a.need.Compare(b) })
		if found {
			c.Want = append(c.Want, api.Allocation{Host: l.host, Address: chosen[i].address.String()})
		} else if !slices.Contains(c.Full, l.host) {
			c.Full = append(c.Full, l.host)
		}
	}
	if slices.Equal(c.Has, c.Want) && len(c.Full) == 0 {
		return nil, false
	}
	slices.SortStableFunc(c.Want, func(a, b api.Allocation) int {
		return cmp.Or(cmp.Compare(slices.Index(e.hosts, a.Host), slices.Index(e.hosts, b.Host)), bytes.Compare(flag(isIPv6(a)), flag(isIPv6(b))))
	})
	return []Change{c}, true
}

func (q *Queries) rangeOf(ipv6 bool) span {
	if ipv6 {
		return spanOf(q.tables.Ranges().IPv6)
	}
	return spanOf(q.tables.Ranges().IPv4)
}

// section is a part of a range. Needs of different sections cannot choose the same address, so that a choice depends on
// the needs of its section only.
type section struct {
	ipv6   bool
	number uint16
}

// Compare orders by version, then by number.
func (s section) Compare(o section) int {
	return cmp.Or(bytes.Compare(flag(s.ipv6), flag(o.ipv6)), cmp.Compare(s.number, o.number))
}

// AppendTo appends an unambiguous form.
func (s section) AppendTo(b []byte) []byte {
	return binary.BigEndian.AppendUint16(append(b, flag(s.ipv6)...), s.number)
}

// maxCandidates bounds how many addresses are tried for a host. In a section with up to maxTriedBits, every
// address is tried.
const (
	maxTriedBits  = 12
	maxCandidates = 1 << maxTriedBits
)

// span is a range of addresses.
type span struct {
	first netip.Addr
	// sections and within are the numbers of bits that name a section, and an address in it.
	sections, within int
}

func spanOf(p netip.Prefix) span {
	sections, within := mesh.SectionBits(p)
	return span{p.Masked().Addr(), sections, within}
}

// prefix returns the addresses of a section.
func (s span) prefix(of section) netip.Prefix {
	return netip.PrefixFrom(s.number(uint64(of.number)<<s.within), s.first.BitLen()-s.within)
}

// hashOf returns two numbers by which a host chooses.
func hashOf(l need) (where, which, step uint64) {
	h := omap.Sum([]byte(l.Key.Namespace), []byte("/"), []byte(l.Key.Name), []byte("/"), []byte(l.host), flag(l.ipv6))
	first, second := binary.BigEndian.Uint64(h[:8]), binary.BigEndian.Uint64(h[8:16])
	return first >> 48, first, second | 1 // with an odd step every address of a section is tried
}

// section returns the section in which a host chooses.
func (s span) section(l need) section {
	where, _, _ := hashOf(l)
	return section{l.ipv6, uint16(where & (1<<s.sections - 1))}
}

// candidates yields the addresses that a host would take, the first choice first.
func (s span) candidates(l need) func(yield func(netip.Addr) bool) {
	return func(yield func(netip.Addr) bool) {
		_, at, step := hashOf(l)
		in := uint64(s.section(l).number) << s.within
		mask := uint64(1)<<s.within - 1
		for range min(maxCandidates, mask+1) {
			if ip, ok := s.address(in | at&mask); ok && !yield(ip) {
				return
			}
			at += step
		}
	}
}

// address returns the address with a number; false if it is one that looks like a network or a broadcast address.
func (s span) address(n uint64) (netip.Addr, bool) {
	if last := byte(n); last == 0 || last == 255 {
		return netip.Addr{}, false
	}
	return s.number(n), true
}

// number returns the address with a number.
func (s span) number(n uint64) netip.Addr {
	b := s.first.AsSlice()
	for i := len(b) - 1; n > 0; i-- {
		b[i] |= byte(n)
		n >>= 8
	}
	ip, _ := netip.AddrFromSlice(b)
	return ip
}
