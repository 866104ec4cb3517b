package registries

import (
	"slices"
	"time"
)

// listener passes what a reader reports to the room of its registry.
type listener struct {
	s          *Source
	r          *room
	generation int
}

// update runs do under the lock, unless the reader was replaced, and passes on what follows.
func (l *listener) update(do func() []string) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.generation == l.r.generation {
		l.s.update(l.r, do)
	}
}

// update changes a room, and passes on what follows. do returns the names of the services that may have changed. The lock is held.
func (s *Source) update(r *room, do func() []string) {
	if s.closed {
		return
	}
	was := r.state()
	events, problems := r.convert(do(), s.o.Domain)
	if is := r.state(); is != was {
		s.o.Log.Info("registry", "registry", r.entry.Name, "state", is, "was", was, "error", r.problem)
	}
	s.send(events, append(problems, r.reportState()...))
}

// List implements Listener.
func (l *listener) List(all Services, sure bool) {
	l.update(func() []string {
		r := l.r
		holding := len(r.held) > 0 && !sure
		names, hold := r.list(all, sure)
		switch {
		case hold && holding && r.until != nil: // the protection that began with the first such list continues
		case hold:
			if r.until != nil {
				r.until.Stop()
			}
			r.until = time.AfterFunc(*r.entry.Protection.Hold, func() { l.s.release(r) })
		case r.until != nil:
			r.until.Stop()
			r.until = nil
		}
		return names
	})
}

// release ends the protection of a registry, unless it was removed.
func (s *Source) release(r *room) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.rooms, r) {
		s.update(r, func() []string {
			r.until = nil
			if r.objects != nil {
				s.sendObjects(r, r.objects.release())
			}
			return r.release()
		})
	}
}

// Change implements Listener.
func (l *listener) Change(some Services) { l.update(func() []string { return l.r.change(some) }) }

// Lost implements Listener.
func (l *listener) Lost(err error) {
	l.update(func() []string {
		l.r.problem, l.r.refused = err.Error(), false
		return nil
	})
}

// Refused implements Listener.
func (l *listener) Refused(err error) {
	l.update(func() []string {
		l.r.problem, l.r.refused = err.Error(), true
		return nil
	})
}

// Remark implements Listener.
func (l *listener) Remark(remarks []Remark) {
	l.update(func() []string {
		l.r.remarks = remarks
		return nil
	})
}

// Objects implements Listener.
func (l *listener) Objects(c ObjectChange) {
	l.update(func() []string {
		r := l.r
		events, holds := r.objects.change(c, r.entry.Protection, r.trusted)
		l.s.sendObjects(r, events)
		switch {
		case holds && r.until == nil:
			r.until = time.AfterFunc(*r.entry.Protection.Hold, func() { l.s.release(r) })
		case len(r.objects.held) == 0 && r.until != nil:
			r.until.Stop()
			r.until = nil
		}
		r.read()
		return nil
	})
}

// Listed implements Listener.
func (l *listener) Listed() {
	l.update(func() []string {
		l.r.listed, l.r.trusted = true, false
		l.r.read()
		return nil
	})
}

// waited lets the control plane become ready without the registry.
func (l *listener) waited() {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.r.waited = true; !l.s.closed {
		l.s.send(nil, nil)
	}
}
