// Package subscribe owns what a stream asks for of a type: immutable subscriptions, shared by all streams with equal ones, and the effects of requests on
// them. It starts no goroutines.
package subscribe

import (
	"sync"
	"weak"

	"github.com/pilotmesh/pilot/internal/ads/protocol/memo"
	"github.com/pilotmesh/pilot/internal/ads/request"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// A stream may subscribe to maxNames names of a type, of MaxNameBytes together. It is enough for a mesh of 100,000 services.
const (
	maxNames     = 400_000
	MaxNameBytes = 64 << 20
)

// Star is the name of the wildcard, for the types that have one.
const Star = "*"

// maxShared is the largest number of names in a request whose result is cached. A flood of larger requests must not fill
// the memory.
const maxShared = 20_000

// Names is a set of names.
type Names = omap.Map[omap.Name, omap.Unit]

// Subscription is what a stream asks for of one type. It is immutable, and streams with equal subscriptions share it, so
// that names need no memory per stream.
type Subscription struct {
	// Wildcard is set if the stream asks for all resources.
	Wildcard bool
	// Whole is set if a client asked for names as Istio's agents do: it gave no names and no star. It gets everything as one resource.
	// Such a subscription is a wildcard, too.
	Whole bool
	// Names are asked for by name, with or without the wildcard. Bytes is their size together.
	Names Names
	Bytes int
}

// Has reports whether the subscription covers a name.
func (s *Subscription) Has(name string) bool {
	return s.Wildcard || s.Names.Has(omap.Name(name))
}

// Change is the effect of a request on the subscription of its stream.
type Change struct {
	// Sub is the new subscription; nil if TooMany is set.
	Sub *Subscription
	// Forced names must be answered, with the resource or with "does not exist", even if the client should have them.
	Forced Names
	// Dropped names need no answer any more.
	Dropped Names
	// All is set if the client asks for everything, either again or for the first time after the first request.
	All bool
	// TooMany is set if the subscription would exceed maxNames or MaxNameBytes.
	TooMany bool
}

type changeKey struct {
	prev    *Subscription
	digest  omap.Hash
	typ     resource.Type
	variant request.Variant
	legacy  bool
}

// Shared interns subscriptions by content and caches the effects of requests. When many equal clients connect, each
// request is decoded once.
type Shared struct {
	changes *memo.Memo[changeKey, Change]

	mu     sync.Mutex
	intern map[internKey]weak.Pointer[Subscription]
}

type internKey struct {
	names           omap.Hash
	wildcard, whole bool
}

// New returns a Shared without content.
func New() *Shared {
	return &Shared{changes: memo.New[changeKey, Change](1024), intern: map[internKey]weak.Pointer[Subscription]{}}
}

// Of is the subscription to names, which have a number of bytes together, with or without the wildcard.
func (s *Shared) Of(wildcard bool, n Names, bytes int) *Subscription {
	return s.interned(&Subscription{Wildcard: wildcard, Names: n, Bytes: bytes})
}

// initial is the subscription of a client that has given no names yet.
func (s *Shared) initial(t resource.Type) *Subscription {
	return s.interned(&Subscription{Wildcard: t.Wildcard(), Whole: t == resource.NameTable})
}

func (s *Shared) interned(sub *Subscription) *Subscription {
	k := internKey{sub.Names.Hash(), sub.Wildcard, sub.Whole}
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

// Len is the number of cached effects.
func (s *Shared) Len() int { return s.changes.Len() }

// Forget drops what no stream has used since the call before the last one.
func (s *Shared) Forget() {
	s.changes.Forget()
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, p := range s.intern {
		if p.Value() == nil {
			delete(s.intern, k)
		}
	}
}

// Apply returns the effect of q on prev, which is nil if the stream has not asked for the type yet. legacy is set if the
// client has never given names: an empty list then means the wildcard.
func (s *Shared) Apply(prev *Subscription, q *request.Request, digest omap.Hash, t resource.Type, legacy bool) Change {
	compute := func() Change {
		if q.Variant == request.Delta {
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
func (s *Shared) replace(prev *Subscription, q *request.Request, t resource.Type, legacy bool) Change {
	list, wildcard := decode(q.Subscribed(), q.Subscribes, t)
	bytes := 0
	for n := range list.All() {
		bytes += len(n)
	}
	if q.Subscribes == 0 && legacy {
		wildcard = t.Wildcard()
	}
	if list.Len() > maxNames || bytes > MaxNameBytes {
		return Change{TooMany: true}
	}
	d := Change{Sub: s.Of(wildcard, list, bytes)}
	if q.Subscribes == 0 && legacy {
		d.Sub = s.initial(t)
	}
	if prev == nil {
		return d // The first response contains everything.
	}
	d.All = wildcard && !prev.Wildcard
	if prev.Wildcard {
		return d // With the wildcard the client has all names already.
	}
	var added []omap.Change[omap.Name, omap.Unit]
	for c := range omap.Diff(prev.Names, list) {
		if c.HasNew {
			added = append(added, omap.Put(c.Key, omap.Unit{}))
		}
	}
	d.Forced = omap.With(Names{}, added...)
	return d
}

// delta applies a delta request, which adds and removes names. A name or a wildcard that is subscribed again is answered
// again, because the client may have dropped the resource. A name that is unsubscribed while there is a wildcard is
// answered, too, because the wildcard may cover it.
func (s *Shared) delta(prev *Subscription, q *request.Request, t resource.Type, legacy bool) Change {
	first := prev == nil
	if first {
		if legacy && q.Subscribes+q.Drops == 0 {
			return Change{Sub: s.initial(t)}
		}
		prev = &Subscription{Wildcard: legacy && q.Subscribes == 0 && t.Wildcard()}
	}
	add, addAll := decode(q.Subscribed(), q.Subscribes, t)
	drop, dropAll := decode(q.Dropped(), q.Drops, t)
	wildcard := (prev.Wildcard || addAll) && !dropAll

	var sum, kept, left []omap.Change[omap.Name, omap.Unit]
	bytes := prev.Bytes
	for n := range add.All() {
		if !prev.Names.Has(n) {
			bytes += len(n)
		}
		sum = append(sum, omap.Put(n, omap.Unit{}))
	}
	for n := range drop.All() {
		known := prev.Names.Has(n) || add.Has(n)
		if known {
			bytes -= len(n)
		}
		sum, kept = append(sum, omap.Del[omap.Name, omap.Unit](n)), append(kept, omap.Del[omap.Name, omap.Unit](n))
		if known && wildcard {
			left = append(left, omap.Put(n, omap.Unit{}))
		}
	}
	all := omap.With(prev.Names, sum...)
	if all.Len() > maxNames || bytes > MaxNameBytes {
		return Change{TooMany: true}
	}
	return Change{
		Sub:     s.Of(wildcard, all, bytes),
		Forced:  omap.With(omap.With(add, kept...), left...),
		Dropped: drop,
		All:     wildcard && !first && (addAll || !prev.Wildcard),
	}
}

// decode turns a list of names into a set. The star is never part of the set: it means the wildcard, and is ignored for
// types that have none.
func decode(list func(func([]byte) bool), count int, t resource.Type) (set Names, wildcard bool) {
	puts := make([]omap.Change[omap.Name, omap.Unit], 0, count)
	for n := range list {
		if string(n) == Star {
			wildcard = t.Wildcard()
			continue
		}
		puts = append(puts, omap.Put(omap.Name(n), omap.Unit{}))
	}
	return omap.With(Names{}, puts...), wildcard
}
