package secret

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// keepUnwanted is how long a secret is kept after the last stream has stopped requesting it. An Envoy that crashed, or a cluster that is
// replaced, requests it again soon, and the file may have become unreadable by then.
const keepUnwanted = 10 * time.Minute

// Board is the list of the requested secrets. Only the goroutine of Run changes it; other goroutines read views.
type Board struct {
	log     *slog.Logger
	changes chan func(map[string]Entry)
	view    atomic.Pointer[View]
	ended   chan struct{} // closed when Run has returned
}

// View is an immutable copy of the board.
type View struct {
	// Entries are the secrets by name.
	Entries map[string]Entry
	// Next is closed when there is a newer view.
	Next <-chan struct{}

	next chan struct{}
}

// NewBoard returns an empty board.
func NewBoard(log *slog.Logger) *Board {
	b := &Board{log: log, changes: make(chan func(map[string]Entry)), ended: make(chan struct{})}
	b.publish(nil)
	return b
}

// Run applies changes to the board until ctx is cancelled. It must be called only once.
func (b *Board) Run(ctx context.Context) error {
	defer close(b.ended)
	for {
		select {
		case <-ctx.Done():
			return nil
		case change := <-b.changes:
			entries := maps.Clone(b.View().Entries)
			if entries == nil {
				entries = map[string]Entry{}
			}
			change(entries)
			expire(entries, time.Now())
			b.publish(entries)
		}
	}
}

// expire deletes the entries that no stream has asked for longer than keepUnwanted.
func expire(entries map[string]Entry, now time.Time) {
	maps.DeleteFunc(entries, func(_ string, e Entry) bool {
		return !e.unwanted.IsZero() && now.Sub(e.unwanted) > keepUnwanted
	})
}

func (b *Board) publish(entries map[string]Entry) {
	next := make(chan struct{})
	if old := b.view.Swap(&View{Entries: entries, Next: next, next: next}); old != nil {
		close(old.next)
	}
}

// View returns the present content of the board.
func (b *Board) View() *View { return b.view.Load() }

// Secrets describes the secrets, in the order of their names.
func (b *Board) Secrets() []Status {
	entries := b.View().Entries
	list := make([]Status, 0, len(entries))
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		list = append(list, entries[name].status())
	}
	return list
}

// do passes a change to Run. It does nothing if Run has returned.
func (b *Board) do(change func(map[string]Entry)) {
	select {
	case b.changes <- change:
	case <-b.ended:
	}
}

// want records that a stream now asks for the names in more and no longer for those in less.
func (b *Board) want(more, less []string) {
	if len(more) == 0 && len(less) == 0 {
		return
	}
	now := time.Now()
	b.do(func(entries map[string]Entry) {
		for _, name := range more {
			e, known := entries[name]
			if !known {
				e = Entry{Name: name, State: StateWaiting, Since: now}
				if _, err := parse(name); err != nil {
					e = b.update(e, Answer{Problem: err.Error()}, now)
				}
			}
			e.Streams++
			e.unwanted = time.Time{}
			entries[name] = e
		}
		for _, name := range less {
			if e, known := entries[name]; known {
				if e.Streams--; e.Streams == 0 {
					e.unwanted = now
				}
				entries[name] = e
			}
		}
	})
}

// Post stores a provider's answer about a secret. It has no effect if no stream has asked for the secret.
func (b *Board) Post(name string, a Answer) {
	now := time.Now()
	b.do(func(entries map[string]Entry) {
		if e, wanted := entries[name]; wanted {
			entries[name] = b.update(e, a, now)
		}
	})
}

// update combines an answer with the present entry and logs the result.
func (b *Board) update(e Entry, a Answer, now time.Time) Entry {
	old := e
	switch {
	case a.Good() && a.version == old.version:
		e.State, e.Answer = StateServed, a
	case a.Good():
		e.State, e.Answer, e.Refusal, e.Since = StateServed, a, "", now
	case old.Good():
		e.State, e.Problem = StateKept, a.Problem
	default:
		e.State, e.Answer = StateMissing, a
	}
	if e.State != old.State {
		e.Since = now
	}
	log := b.log.With("secret", e.Name)
	switch {
	case e.Problem != "" && (e.Problem != old.Problem || e.State != old.State):
		if e.State == StateKept {
			log.Warn("the newest version of a secret cannot be used; Envoy keeps the last good one", "problem", e.Problem)
		} else {
			log.Warn("a secret is not available; connections that need it fail", "problem", e.Problem)
		}
	case e.State == StateServed && e.version != old.version:
		if !e.Expires.IsZero() {
			log = log.With("expires", e.Expires)
		}
		log.Info("serving a secret", "version", e.version, "files", e.Files)
	case e.State == StateServed && old.State != StateServed:
		log.Info("a secret is good again", "version", e.version)
	}
	if e.Remark != "" && e.Remark != old.Remark {
		log.Warn("a part of a secret is not used", "remark", e.Remark)
	}
	return e
}

// refuse records that Envoy has rejected a version of a secret.
func (b *Board) refuse(name, version, reason string) {
	b.do(func(entries map[string]Entry) {
		if e, known := entries[name]; known && e.version == version {
			e.Refusal = reason
			entries[name] = e
			b.log.Warn("Envoy rejects a secret and keeps the last accepted version; replace the secret", "secret", name,
				"version", version, "reason", reason)
		}
	})
}
