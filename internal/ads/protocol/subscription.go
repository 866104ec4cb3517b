package protocol

import (
	"sync"
	"weak"

	"github.com/pilotmesh/pilot/internal/ads/protocol/memo"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// A stream may subscribe to maxNames names of a type, of maxNameBytes together. It is enough for a mesh of 100,000 services.
const maxNames, maxNameBytes = 400_000, 64 << 20

// star is the name of the wildcard, for the types that have one.
const star = "*"

// maxShared is the largest number of names in a request whose result is cached. A flood of larger requests must not fill
// the memory.
const maxShared = 20_000

type names = omap.Map[omap.Name, omap.Unit]

// subscription is what a stream asks for of one type. It is immutable, and streams with equal subscriptions share it, so
// that names need no memory per stream.
type subscription struct {
	wildcard bool
	// whole is set if a client asked for names as Istio's agents do: it gave no names and no star. It gets everything as one resource.
	// Such a subscription is a wildcard, too.
	whole bool
	// names are asked for by name, with or without the wildcard. bytes is their size together.
	names names
	bytes int
}

// has reports whether the subscription covers a name.
func (s *subscription) has(name string) bool {
	return s.wildcard || s.names.Has(omap.Name(name))
}

// subscriptionChange is the effect of a request on the subscription of its stream.
type subscriptionChange struct {
	// sub is the new subscription; nil if tooMany is set.
	sub *subscription
	// forced names must be answered, with the resource or with "does not exist", even if the client should have them.
	forced names
	// dropped names need no answer any more.
	dropped names
	// all is set if the client asks for everything, either again or for the first time after the first request.
	all bool
	// tooMany is set if the subscription would exceed maxNames or maxNameBytes.
	tooMany bool
}

type changeKey struct {
	prev    *subscription
	digest  omap.Hash
	typ     resource.Type
	variant Variant
	legacy  bool
}

// subscriptions interns subscriptions by content and caches the effects of requests. When many equal clients connect, each
// request is decoded once.
type subscriptions struct {
	changes *memo.Memo[changeKey, subscriptionChange]

	mu     sync.Mutex
	intern map[internKey]weak.Pointer[subscription]
}

type internKey struct {
	names           omap.Hash
	wildcard, whole bool
}

func newSubscriptions() *subscriptions {
	return &subscriptions{changes: memo.New[changeKey, subscriptionChange](1024), intern: map[internKey]weak.Pointer[subscription]{}}
}

func (s *subscriptions) of(wildcard bool, n names, bytes int) *subscription {
	return s.interned(&subscription{wildcard: wildcard, names: n, bytes: bytes})
}

// initial is the subscription of a client that has given no names yet.
func (s *subscriptions) initial(t resource.Type) *subscription {
	return s.interned(&subscription{wildcard: t.Wildcard(), whole: t == resource.NameTable})
}

func (s *subscriptions) interned(sub *subscription) *subscription {
	k := internKey{sub.names.Hash(), sub.wildcard, sub.whole}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.intern[k]; ok {
		if known := p.Value(); known != nil {
			return known
		}
	}
	s.intern[k] = weak.Make(sub)
	return sub
}

func (s *subscriptions) forget() {
	s.changes.Forget()
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, p := range s.intern {
		if p.Value() == nil {
			delete(s.intern, k)
		}
	}
}

// apply returns the effect of q on prev, which is nil if the stream has not asked for the type yet. legacy is set if the
// client has never given names: an empty list then means the wildcard.
func (s *subscriptions) apply(prev *subscription, q *Request, digest omap.Hash, t resource.Type, legacy bool) subscriptionChange {
	compute := func() subscriptionChange {
		if q.Variant == Delta {
			return s.delta(prev, q, t, legacy)
		}
		return s.replace(prev, q, t, legacy)
	}
	if q.Subscribes+q.Drops > maxShared {
		return compute()
	}
	return s.changes.Get(changeKey{prev, digest, t, q.Variant, legacy}, compute)
}

// replace applies a State-of-the-World request: its list of names is the new subscription.
func (s *subscriptions) replace(prev *subscription, q *Request, t resource.Type, legacy bool) subscriptionChange {
	list, wildcard := decode(q.Subscribed(), q.Subscribes, t)
	bytes := 0
	for n := range list.All() {
		bytes += len(n)
	}
	if q.Subscribes == 0 && legacy {
		wildcard = t.Wildcard()
	}
	if list.Len() > maxNames || bytes > maxNameBytes {
		return subscriptionChange{tooMany: true}
	}
	d := subscriptionChange{sub: s.of(wildcard, list, bytes)}
	if q.Subscribes == 0 && legacy {
		d.sub = s.initial(t)
	}
	if prev == nil {
		return d // The first response contains everything.
	}
	d.all = wildcard && !prev.wildcard
	if prev.wildcard {
		return d // With the wildcard the client has all names already.
	}
	var added []omap.Change[omap.Name, omap.Unit]
	for c := range omap.Diff(prev.names, list) {
		if c.HasNew {
			added = append(added, omap.Put(c.Key, omap.Unit{}))
		}
	}
	d.forced = omap.With(names{}, added...)
	return d
}

// delta applies a delta request, which adds and removes names. A name or a wildcard that is subscribed again is answered
// again, because the client may have dropped the resource. A name that is unsubscribed while there is a wildcard is
// answered, too, because the wildcard may cover it.
func (s *subscriptions) delta(prev *subscription, q *Request, t resource.Type, legacy bool) subscriptionChange {
	first := prev == nil
	if first {
		if legacy && q.Subscribes+q.Drops == 0 {
			return subscriptionChange{sub: s.initial(t)}
		}
		prev = &subscription{wildcard: legacy && q.Subscribes == 0 && t.Wildcard()}
	}
	add, addAll := decode(q.Subscribed(), q.Subscribes, t)
	drop, dropAll := decode(q.Dropped(), q.Drops, t)
	wildcard := (prev.wildcard || addAll) && !dropAll

	var sum, kept, left []omap.Change[omap.Name, omap.Unit]
	bytes := prev.bytes
	for n := range add.All() {
		if !prev.names.Has(n) {
			bytes += len(n)
		}
		sum = append(sum, omap.Put(n, omap.Unit{}))
	}
	for n := range drop.All() {
		known := prev.names.Has(n) || add.Has(n)
		if known {
			bytes -= len(n)
		}
		sum, kept = append(sum, omap.Del[omap.Name, omap.Unit](n)), append(kept, omap.Del[omap.Name, omap.Unit](n))
		if known && wildcard {
			left = append(left, omap.Put(n, omap.Unit{}))
		}
	}
	all := omap.With(prev.names, sum...)
	if all.Len() > maxNames || bytes > maxNameBytes {
		return subscriptionChange{tooMany: true}
	}
	return subscriptionChange{
		sub:     s.of(wildcard, all, bytes),
		forced:  omap.With(omap.With(add, kept...), left...),
		dropped: drop,
		all:     wildcard && !first && (addAll || !prev.wildcard),
	}
}

// decode turns a list of names into a set. The star is never part of the set: it means the wildcard, and is ignored for
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
	return omap.With(names{}, puts...), wildcard
}
