package secret

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// linger is how long a secret is kept that no stream asks for: an Envoy that crashed, or a cluster that is replaced,
// asks again soon, and a file may have become unreadable meanwhile.
const linger = 10 * time.Minute

// Board is the list of the secrets that are wanted. Its loop is the only one that changes it; all others read views.
type Board struct {
	log     *slog.Logger
	changes chan func(map[string]Entry)
	view    atomic.Pointer[View]
	ended   chan struct{} // closed when the loop has ended
}

// View is the board at one moment. It does not change.
type View struct {
	// Entries are the secrets by name.
	Entries map[string]Entry
	// Next is closed when there is a newer view.
	Next <-chan struct{}

	next chan struct{}
}

// NewBoard returns a board on which nothing is wanted.
func NewBoard(log *slog.Logger) *Board {
	b := &Board{log: log, changes: make(chan func(map[string]Entry)), ended: make(chan struct{})}
	b.publish(nil)
	return b
}

// Run keeps the board until ctx is cancelled. It runs once.
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

// expire lets go of what nobody has wanted for long.
func expire(entries map[string]Entry, now time.Time) {
	maps.DeleteFunc(entries, func(_ string, e Entry) bool {
		return !e.unwanted.IsZero() && now.Sub(e.unwanted) > linger
	})
}

func (b *Board) publish(entries map[string]Entry) {
	next := make(chan struct{})
	if old := b.view.Swap(&View{Entries: entries, Next: next, next: next}); old != nil {
		close(old.next)
	}
}

// View is the board as it is now.
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

// do has the loop make a change. It does nothing once the loop has ended.
func (b *Board) do(change func(map[string]Entry)) {
	select {
	case b.changes <- change:
	case <-b.ended:
	}
}

// want says that a stream asks for more, and no longer for less.
func (b *Board) want(more, less []string) {
	if len(more) == 0 && len(less) == 0 {
		return
	}
	now := time.Now()
	b.do(func(entries map[string]Entry) {
		for _, name := range more {
			e, known := entries[name]
			if !known {
				e = Entry{Name: name, State: Waiting, Since: now}
				if _, err := parse(name); err != nil {
					e = b.judge(e, Answer{Problem: err.Error()}, now)
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

// Post takes a provider's answer about a secret. What is not wanted is not kept.
func (b *Board) Post(name string, a Answer) {
	now := time.Now()
	b.do(func(entries map[string]Entry) {
		if e, wanted := entries[name]; wanted {
			entries[name] = b.judge(e, a, now)
		}
	})
}

// judge lays an answer beside what there is, and tells the operator what that means.
func (b *Board) judge(e Entry, a Answer, now time.Time) Entry {
	old := e
	switch {
	case a.Good() && a.version == old.version:
		e.State, e.Answer = Served, a
	case a.Good():
		e.State, e.Answer, e.Refusal, e.Since = Served, a, "", now
	case old.Good():
		e.State, e.Problem = Kept, a.Problem
	default:
		e.State, e.Answer = Missing, a
	}
	if e.State != old.State {
		e.Since = now
	}
	log := b.log.With("secret", e.Name)
	switch {
	case e.Problem != "" && (e.Problem != old.Problem || e.State != old.State):
		if e.State == Kept {
			log.Warn("a newer secret is not good; Envoy keeps the last good one", "problem", e.Problem)
		} else {
			log.Warn("a secret cannot be had; connections that need it fail", "problem", e.Problem)
		}
	case e.State == Served && e.version != old.version:
		if !e.Expires.IsZero() {
			log = log.With("expires", e.Expires)
		}
		log.Info("serving a secret", "version", e.version, "files", e.Files)
	case e.State == Served && old.State != Served:
		log.Info("a secret is good again", "version", e.version)
	}
	if e.Remark != "" && e.Remark != old.Remark {
		log.Warn("a part of a secret is left out", "remark", e.Remark)
	}
	return e
}

// refuse notes that Envoy has rejected a version of a secret.
func (b *Board) refuse(name, version, reason string) {
	b.do(func(entries map[string]Entry) {
		if e, known := entries[name]; known && e.version == version {
			e.Refusal = reason
			entries[name] = e
			b.log.Warn("Envoy rejects a secret and keeps what it had; give it one it takes", "secret", name,
				"version", version, "reason", reason)
		}
	})
}
