// Package schedule decides when controllers act outside of the program. Fetches fetches wanted keys, again after a while, and again after failures.
// Writes writes the wanted values that differ from the ones that the outside is known to have. Both rest on an Agenda: keys with work, each with its
// time. A controller keeps only its policy: how one key is fetched or written, and what follows from the result.
//
// Invariants: a failure of one key delays no other key. Pauses after failures come from package retry. A value belongs to one goroutine, which calls its
// methods; it also calls the functions of the controller, except for Fetches.Fetch.
//
// Goroutines: Fetches.Run starts one for each fetch that runs, at most Places, and waits for them. There are no others.
package schedule

import (
	"cmp"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/pilotmesh/pilot/internal/run/retry"
)

// idle is the time until the next look if nothing is due before.
const idle = time.Hour

// Pauses are the pauses after failures: about First after a first one, then twice as long each time, up to about Longest.
type Pauses struct{ First, Longest time.Duration }

// Agenda has the times at which something is to be done about keys.
type Agenda[K comparable] struct {
	// Compare orders keys that are due at the same time.
	Compare func(a, b K) int
	Pauses

	items map[K]*item
}

// item is a key with something to be done.
type item struct {
	since, next time.Time                   // next is zero while the key is taken
	pauses      *backoff.ExponentialBackOff // nil before the first pause
}

func (a *Agenda[K]) of(k K) *item {
	one := a.items[k]
	if one == nil {
		if a.items == nil {
			a.items = map[K]*item{}
		}
		one = &item{}
		a.items[k] = one
	}
	return one
}

// Touch makes a key due now, as if it were new.
func (a *Agenda[K]) Touch(k K) {
	now := time.Now()
	*a.of(k) = item{since: now, next: now}
}

// Drop removes a key.
func (a *Agenda[K]) Drop(k K) { delete(a.items, k) }

// Take returns keys that are due, at most so many, in the order of their times. A taken key is due again only after Touch, At or Retry.
func (a *Agenda[K]) Take(most int) (list []K) {
	now := time.Now()
	for k, one := range a.items {
		if !one.next.IsZero() && !one.next.After(now) {
			list = append(list, k)
		}
	}
	slices.SortFunc(list, func(x, y K) int { return cmp.Or(a.items[x].next.Compare(a.items[y].next), a.Compare(x, y)) })
	list = list[:min(len(list), most)]
	for _, k := range list {
		a.items[k].next = time.Time{}
	}
	return list
}

// Since returns the time of the last Touch of a key.
func (a *Agenda[K]) Since(k K) time.Time { return a.of(k).since }

// At makes a key due at a time. The pauses begin again.
func (a *Agenda[K]) At(k K, next time.Time) {
	one := a.of(k)
	one.next, one.pauses = next, nil
}

// Retry makes a key due after the next pause, which is at most so long.
func (a *Agenda[K]) Retry(k K, most time.Duration) {
	one := a.of(k)
	if one.pauses == nil {
		one.pauses = retry.Pauses(a.First, a.Longest)
	}
	one.next = time.Now().Add(min(one.pauses.NextBackOff(), most))
}

// Wait returns the time until the next key is due.
func (a *Agenda[K]) Wait() time.Duration {
	wait := idle
	for _, one := range a.items {
		if !one.next.IsZero() {
			wait = min(wait, time.Until(one.next))
		}
	}
	return max(wait, 0)
}
