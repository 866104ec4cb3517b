package protocol

import (
	"sync"
	"weak"

	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// maxNames bounds what one stream may ask for by name, per type. A mesh of 100,000 services fits.
const maxNames = 400_000

// star is the name that stands for everything, for the types that have a wildcard.
const star = "*"

// maxShared bounds the lists whose decoding is remembered: a flood of huge ones must not be kept alive by the memo.
const maxShared = 20_000

type names = omap.Map[omap.Name, omap.Unit]

// subscription is what a stream asks for of one type. It is immutable and shared by all streams that ask for the
// same, so that names cost nothing per stream.
type subscription struct {
	wildcard bool
	names    names // asked for by name, beside the wildcard or without one
}

func (s *subscription) has(name string) bool {
	return s.wildcard || s.names.Has(omap.Name(name))
}

// demand is what a request makes of the subscription before it.
type demand struct {
	sub *subscription
	// forced names are answered whatever the client has, with the resource or with "does not exist".
	forced names
	// dropped names need no answer any more.
	dropped names
	// all: everything is asked for, and was not before, or is asked for again.
	all bool
	// tooMany: the subscription would exceed maxNames; sub is nil.
	tooMany bool
}

type demandKey struct {
	prev    *subscription
	digest  omap.Hash
	typ     resource.Type
	variant Variant
	legacy  bool
}

// subscriptions interns subscriptions by content and remembers what requests made of them: a herd of equal clients
// costs one decoding.
type subscriptions struct {
	demands *memo[demandKey, demand]

	mu     sync.Mutex
	intern map[internKey]weak.Pointer[subscription]
}

type internKey struct {
	names    omap.Hash
	wildcard bool
}

func newSubscriptions() *subscriptions {
	return &subscriptions{
		demands: newMemo[demandKey, demand](1024),
		intern:  map[internKey]weak.Pointer[subscription]{},
	}
}

func (s *subscriptions) of(wildcard bool, n names) *subscription {
	k := internKey{n.Hash(), wildcard}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.intern[k]; ok {
		if sub := p.Value(); sub != nil {
			return sub
		}
	}
	sub := &subscription{wildcard: wildcard, names: n}
	s.intern[k] = weak.Make(sub)
	return sub
}

func (s *subscriptions) forget() {
	s.demands.forget()
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, p := range s.intern {
		if p.Value() == nil {
			delete(s.intern, k)
		}
	}
}

// demand says what q makes of prev, nil if the stream had not asked for the type yet. legacy: an empty list of
// names means everything, because no names were ever given.
func (s *subscriptions) demand(prev *subscription, q *Request, digest omap.Hash, t resource.Type, legacy bool) demand {
	compute := func() demand {
		if q.Variant == Delta {
			return s.change(prev, q, t, legacy)
		}
		return s.replace(prev, q, t, legacy)
	}
	if q.Subscribes+q.Drops > maxShared {
		return compute()
	}
	return s.demands.get(demandKey{prev, digest, t, q.Variant, legacy}, compute)
}

// replace is State-of-the-World: the list of names is the subscription.
func (s *subscriptions) replace(prev *subscription, q *Request, t resource.Type, legacy bool) demand {
	list, wildcard := decode(q.Subscribed(), q.Subscribes, t)
	if q.Subscribes == 0 && legacy {
		wildcard = t.Wildcard()
	}
	if list.Len() > maxNames {
		return demand{tooMany: true}
	}
	d := demand{sub: s.of(wildcard, list)}
	if prev == nil {
		return d // everything is new
	}
	d.all = wildcard && !prev.wildcard
	if prev.wildcard {
		return d // whoever has everything has what he names now
	}
	var added []omap.Change[omap.Name, omap.Unit]
	for c := range omap.Diff(prev.names, list) {
		if c.HasNew {
			added = append(added, omap.Put(c.Key, omap.Unit{}))
		}
	}
	d.forced = names{}.With(added...)
	return d
}

// change is delta: names come and go. A name that is asked for is answered, also if it is held already: the client
// may have forgotten it. So is the star. A name dropped beside a wildcard is answered too, because the wildcard may cover it.
func (s *subscriptions) change(prev *subscription, q *Request, t resource.Type, legacy bool) demand {
	first := prev == nil
	if first {
		prev = &subscription{wildcard: legacy && q.Subscribes == 0 && t.Wildcard()}
	}
	add, addAll := decode(q.Subscribed(), q.Subscribes, t)
	drop, dropAll := decode(q.Dropped(), q.Drops, t)
	wildcard := (prev.wildcard || addAll) && !dropAll

	var sum, kept, left []omap.Change[omap.Name, omap.Unit]
	for n := range add.All() {
		sum = append(sum, omap.Put(n, omap.Unit{}))
	}
	for n := range drop.All() {
		known := prev.names.Has(n) || add.Has(n)
		sum, kept = append(sum, omap.Del[omap.Name, omap.Unit](n)), append(kept, omap.Del[omap.Name, omap.Unit](n))
		if known && wildcard {
			left = append(left, omap.Put(n, omap.Unit{}))
		}
	}
	all := prev.names.With(sum...)
	if all.Len() > maxNames {
		return demand{tooMany: true}
	}
	return demand{
		sub:     s.of(wildcard, all),
		forced:  add.With(kept...).With(left...),
		dropped: drop,
		all:     wildcard && !first && (addAll || !prev.wildcard),
	}
}

// decode makes a set of a list on the wire. The star is no name where it is a wildcard, and nothing at all for
// types that have none.
func decode(list func(func([]byte) bool), count int, t resource.Type) (set names, wildcard bool) {
	puts := make([]omap.Change[omap.Name, omap.Unit], 0, count)
	for n := range list {
		if string(n) == star {
			wildcard = t.Wildcard()
			continue
		}
		puts = append(puts, omap.Put(omap.Name(n), omap.Unit{}))
	}
	return names{}.With(puts...), wildcard
}
