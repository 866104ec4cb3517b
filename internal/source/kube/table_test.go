package kube

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// numbers returns a table of plain contents, with objects from the first to the last number.
func numbers(first, last int) *table {
	t := &table{what: "things", rows: map[name]content{}, merge: func(old, is content) content {
		if *old.(*int) == *is.(*int) {
			return old
		}
		return is
	}}
	t.replace(things(first, last), time.Now(), time.Second)
	return t
}

// things is a list of objects.
func things(first, last int) (items []item) {
	for i := first; i <= last; i++ {
		items = append(items, item{name{"shop", fmt.Sprintf("t%03d", i)}, new(int)})
	}
	return items
}

func removed(changes []change) (n int) {
	for _, c := range changes {
		if c.new == nil {
			n++
		}
	}
	return n
}

func TestReplace(t *testing.T) {
	x := numbers(1, 10)
	items := things(2, 12)
	other := 7
	items[0].content = &other
	slices.Reverse(items)
	changes := x.replace(items, time.Now(), time.Second)
	var got []string
	for _, c := range changes {
		got = append(got, fmt.Sprint(c.name.name, " ", c.old != nil, " ", c.new != nil))
	}
	if want := []string{"t001 true false", "t002 true true", "t011 false true", "t012 false true"}; !slices.Equal(got, want) {
		t.Errorf("changes %v", got)
	}
	if changes := x.replace(items, time.Now(), time.Second); len(changes) > 0 {
		t.Errorf("the same list changes %v", changes)
	}
	if c, ok := x.set(name{"shop", "t003"}, nil); !ok || c.new != nil || len(x.rows) != 10 {
		t.Errorf("removal: %+v, %v", c, ok)
	}
	if _, ok := x.set(name{"shop", "t003"}, nil); ok {
		t.Error("removed twice")
	}
}

func TestDoubtfulLists(t *testing.T) {
	const doubt = 5 * time.Second
	now := time.Now()
	for _, c := range []struct {
		name         string
		known, left  int
		wantDoubtful bool
	}{
		{"half of many", 20, 10, false},
		{"more than half of many", 20, 9, true},
		{"most of few", 19, 1, false},
		{"all of few", 3, 0, true},
		{"all of two", 2, 0, false},
		{"all of many", 50, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := numbers(1, c.known)
			gone := removed(x.replace(things(1, c.left), now, doubt))
			_, doubted := x.doubts(doubt)
			if doubted != c.wantDoubtful || gone > 0 == c.wantDoubtful {
				t.Fatalf("doubted %v, removed %d", doubted, gone)
			}
			if !doubted {
				return
			}
			if n := removed(x.replace(things(1, c.left), now.Add(doubt-1), doubt)); n > 0 {
				t.Errorf("removed %d too early", n)
			}
			if n := removed(x.replace(things(1, c.left), now.Add(doubt), doubt)); n != c.known-c.left {
				t.Errorf("removed %d of %d", n, c.known-c.left)
			}
			if _, doubted := x.doubts(doubt); doubted {
				t.Error("still doubted")
			}
		})
	}
}

// TestDoubtResolved checks that objects that reappear are not removed, and that watches are believed.
func TestDoubtResolved(t *testing.T) {
	const doubt = 5 * time.Second
	now := time.Now()
	x := numbers(1, 30)
	x.replace(things(1, 5), now, doubt)
	if len(x.missing) != 25 {
		t.Fatalf("%d are missing", len(x.missing))
	}
	x.set(name{"shop", "t010"}, new(int))
	if _, ok := x.set(name{"shop", "t011"}, nil); !ok || len(x.missing) != 23 {
		t.Errorf("%d are missing", len(x.missing))
	}
	// The second list has them again, but not one object that the first list had.
	if n := removed(x.replace(things(2, 30), now.Add(doubt), doubt)); n != 1 || len(x.missing) > 0 || len(x.rows) != 29 {
		t.Errorf("removed %d, %d are missing, %d rows", n, len(x.missing), len(x.rows))
	}
	// A first list is never doubted, nor is one of a table that was cleared.
	x.clear()
	if n := len(x.replace(things(1, 1), now, doubt)); n != 1 {
		t.Errorf("%d changes", n)
	}
}
