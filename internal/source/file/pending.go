package file

import (
	"slices"
	"time"
)

// pending collects the paths that something happened to until it is time to look at them. What happens together is
// looked at together: a round ends when nothing has happened for the quiet time, or when it has lasted for maxWait. A
// path at which something happened within the quiet time stays for the next round even then, because somebody is
// likely still writing there: a file that git is just about to replace is not a deleted one.
type pending struct {
	quiet, maxWait time.Duration

	paths       map[string]touch
	first, last time.Time // of the round; zero without one
}

// touch is what happened to one path.
type touch struct {
	first, last time.Time
	after       time.Time // if set: look then, not before, although nothing happens any more
}

// busyLimit is how many times maxWait a path is left alone that never gets quiet.
const busyLimit = 10

func newPending(quiet, maxWait time.Duration) *pending {
	return &pending{quiet: quiet, maxWait: maxWait, paths: map[string]touch{}}
}

// add notes that something happened to path.
func (p *pending) add(path string, now time.Time) {
	t, ok := p.paths[path]
	if !ok || !t.after.IsZero() {
		t = touch{first: now}
	}
	t.last = now
	p.paths[path] = t
	if p.first.IsZero() {
		p.first = now
	}
	p.last = now
}

// postpone asks to look at path at a certain time, unless something happens to it before.
func (p *pending) postpone(path string, after time.Time) {
	if t, ok := p.paths[path]; ok && t.after.IsZero() {
		return
	}
	p.paths[path] = touch{after: after}
}

// has reports whether path waits to be looked at.
func (p *pending) has(path string) bool {
	_, ok := p.paths[path]
	return ok
}

// next returns when due may have something; false if nothing is pending.
func (p *pending) next() (at time.Time, ok bool) {
	if !p.first.IsZero() {
		at, ok = p.roundEnd(), true
	}
	for _, t := range p.paths {
		if !t.after.IsZero() && (!ok || t.after.Before(at)) {
			at, ok = t.after, true
		}
	}
	return at, ok
}

func (p *pending) roundEnd() time.Time {
	end, latest := p.last.Add(p.quiet), p.first.Add(p.maxWait)
	if latest.Before(end) {
		return latest
	}
	return end
}

// due takes out the paths to look at now, in order.
func (p *pending) due(now time.Time) []string {
	var out []string
	ended := !p.first.IsZero() && !now.Before(p.roundEnd())
	busy := false
	for path, t := range p.paths {
		switch {
		case !t.after.IsZero():
			if now.Before(t.after) {
				continue
			}
		case !ended:
			continue
		case now.Sub(t.last) < p.quiet && now.Sub(t.first) < busyLimit*p.maxWait:
			busy = true
			continue
		}
		out = append(out, path)
	}
	for _, path := range out {
		delete(p.paths, path)
	}
	if ended {
		p.first = time.Time{}
		if busy {
			p.first = now
		}
	}
	slices.Sort(out)
	return out
}

// idle reports whether nothing happened that was not looked at.
func (p *pending) idle() bool { return p.first.IsZero() }
