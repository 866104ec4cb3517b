package file

import (
	"slices"
	"time"
)

// pending collects paths with events until they are to be examined. Paths whose events happen together are examined together, in
// a round: a round ends when no event has happened for the quiet time, or when it has lasted for maxWait. In the latter case a
// path with an event within the quiet time is left for the next round, because a program is probably still writing. For example,
// a file that git is about to replace must not be regarded as removed.
type pending struct {
	quiet, maxWait time.Duration

	paths       map[string]touch
	first, last time.Time // times of the first and last event of the round; zero if there is no round
}

// touch holds the events of one path.
type touch struct {
	first, last time.Time
	after       time.Time // if set: examine the path at this time, not before, although there are no further events
}

// busyLimit is the factor of maxWait after which a path with continuous events is examined anyway.
const busyLimit = 10

func newPending(quiet, maxWait time.Duration) *pending {
	return &pending{quiet: quiet, maxWait: maxWait, paths: map[string]touch{}}
}

// add records an event.
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

// postpone requests that path is examined at a certain time, unless an event happens before.
func (p *pending) postpone(path string, after time.Time) {
	if t, ok := p.paths[path]; ok && t.after.IsZero() {
		return
	}
	p.paths[path] = touch{after: after}
}

// has reports whether there were events of path that were not examined yet.
func (p *pending) has(path string) bool {
	t, ok := p.paths[path]
	return ok && t.after.IsZero()
}

// next returns the time at which due has to be called, or false if nothing is pending.
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

// due removes and returns the paths that are to be examined now, in order.
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

// idle reports whether there is no round.
func (p *pending) idle() bool { return p.first.IsZero() }
