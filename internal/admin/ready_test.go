package admin

import (
	"slices"
	"testing"
)

// TestWaiting: a reason names its first cause, and goes when it is done.
func TestWaiting(t *testing.T) {
	r := &Readiness{}
	w := r.Waiting("a is not read")
	want := func(reasons ...string) {
		t.Helper()
		if got := r.Reasons(); !slices.Equal(got, reasons) {
			t.Errorf("%q, want %q", got, reasons)
		}
	}
	want("a is not read")
	w.Hindered("x", false)
	w.Hindered("x", false)
	w.Hindered("y", false)
	want("a is not read: x")
	w.Hindered("x", true)
	want("a is not read: y")
	w.Hindered("z", true)
	w.Hindered("y", true)
	want("a is not read")
	w.Hindered("late", false)
	w.Done()
	w.Done()
	w.Hindered("later", false)
	want()
}
