package omap

// Bag is a set whose members have multiplicities: what several contribute stays until the last takes it back.
// Only Members is persistent; a Bag has one owner.
type Bag[M Key[M]] struct {
	members Map[M, Unit]
	extra   map[M]int // contributions beyond the first, for the few members that have them
}

// Members is the set of members with a positive multiplicity.
func (b *Bag[M]) Members() Map[M, Unit] { return b.members }

// Apply adds the given multiplicities, which may be negative, and reports whether the membership changed. No member comes twice;
// members in order cost least.
func (b *Bag[M]) Apply(counts []Count[M]) bool {
	changes := make([]Change[M, Unit], 0, len(counts))
	for _, c := range counts {
		m := c.Member
		had := b.members.Has(m)
		total := c.By + b.extra[m]
		if had {
			total++
		}
		if total > 1 {
			if b.extra == nil {
				b.extra = make(map[M]int)
			}
			b.extra[m] = total - 1
		} else {
			delete(b.extra, m)
		}
		switch {
		case total > 0 && !had:
			changes = append(changes, Put(m, Unit{}))
		case total <= 0 && had:
			changes = append(changes, Del[M, Unit](m))
		}
	}
	if len(changes) == 0 {
		return false
	}
	b.members = b.members.With(changes...)
	return true
}
