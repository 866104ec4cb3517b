package omap

// Bag is a set whose members have multiplicities. A member that several contributors have added stays in the set until the
// last of them has removed it. A Bag has one owner and is not safe for concurrent use; the Map that Members returns is
// immutable.
type Bag[M Key[M]] struct {
	members Map[M, Unit]
	extra   map[M]int // multiplicity minus one, for the members whose multiplicity is above one
}

// Members returns the set of members with a positive multiplicity.
func (b *Bag[M]) Members() Map[M, Unit] { return b.members }

// Apply adds the given multiplicities, which may be negative, and reports whether the set of members changed. Each member
// occurs at most once in counts. Counts in the order of the members cost least.
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
	b.members = With(b.members, changes...)
	return true
}
