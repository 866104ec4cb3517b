package file

import (
	"slices"
	"testing"
	"time"
)

func TestPending(t *testing.T) {
	begin := time.Unix(1000, 0)
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	p := newPending(5*time.Millisecond, 50*time.Millisecond)
	next := func(want int) {
		t.Helper()
		got, ok := p.next()
		if !ok || !got.Equal(at(want)) {
			t.Fatalf("next look at %v %v, want at %d ms", got.Sub(begin), ok, want)
		}
	}
	due := func(now int, want ...string) {
		t.Helper()
		if got := p.due(at(now)); !slices.Equal(got, want) {
			t.Fatalf("at %d ms: %q, want %q", now, got, want)
		}
	}
	if _, ok := p.next(); ok || !p.idle() {
		t.Fatal("something is pending at first")
	}
	// Events within the quiet time of each other are one round.
	p.add("b", at(0))
	next(5)
	p.add("a", at(3))
	next(8)
	due(7)
	due(8, "a", "b")
	if _, ok := p.next(); ok || !p.idle() {
		t.Fatal("something is pending after the round")
	}
	// A round without an end is cut; paths with a recent event wait for the next one.
	for ms := 0; ms <= 48; ms += 3 {
		p.add("early", at(100))
		p.add("late", at(100+ms))
	}
	p.paths["early"] = touch{first: at(100), last: at(100)}
	next(150)
	due(150, "early")
	next(153)
	due(152)
	due(153, "late")
	// A path that never becomes quiet is examined nevertheless.
	for ms := 0; ms <= 500; ms += 2 {
		p.add("busy", at(200+ms))
		if ms < 500 {
			due(200 + ms)
		}
	}
	due(701, "busy")
	// A postponed path is due at its time, or when it changes.
	p.postpone("x", at(850))
	p.postpone("y", at(900))
	next(850)
	p.add("y", at(801))
	p.postpone("y", at(1000)) // it happens already
	next(806)
	due(806, "y")
	next(850)
	due(850, "x")
}
