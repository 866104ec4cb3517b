package fair

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// wants returns the wants in a text such as "a:1-3 b:1": numbers from one to another for each namespace.
func wants(text string) (list []Want[string]) {
	for _, field := range strings.Fields(text) {
		namespace, numbers, _ := strings.Cut(field, ":")
		first, last := 0, 0
		if n, _ := fmt.Sscanf(numbers, "%d-%d", &first, &last); n == 1 {
			last = first
		}
		for i := first; i <= last; i++ {
			list = append(list, Want[string]{namespace, fmt.Sprint(namespace, i)})
		}
	}
	return list
}

func TestGrant(t *testing.T) {
	for _, c := range []struct{ name, had, wants, want string }{
		{"enough for all", "", "a:1-3 b:1-2", "a1 a2 a3 b1 b2"},
		{"one namespace alone may have everything", "", "a:1-9", "a1 a2 a3 a4 a5 a6"},
		{"a newcomer gets its share, whatever others have", "z:1-6", "a:1-9 z:1-6", "a1 a2 z1 z2 z3 z4"},
		{"what was granted stays, within the share", "z:1-2", "a:1-9 b:1-9 z:1-2", "a1 a2 b1 b2 z1 z2"},
		{"beyond the share, what was granted goes before what is new", "z:1-4", "a:1-9 z:1-4", "a1 a2 z1 z2 z3 z4"},
		{"beyond the share, each gets as much as the others", "", "a:1-9 b:1-9", "a1 a2 a3 b1 b2 b3"},
		{"more namespaces than places, one after the other", "g:1", "a:1 b:1 c:1 d:1 e:1 f:1 g:1", "a1 b1 c1 d1 e1 g1"},
		{"a place that becomes free", "a:1-6", "a:2-9", "a2 a3 a4 a5 a6 a7"},
	} {
		had := map[string]bool{}
		for _, w := range wants(c.had) {
			had[w.Thing] = true
		}
		var got []string
		for thing := range Grant(wants(c.wants), Bounds{Total: 6, Share: 2}, func(k string) bool { return had[k] }) {
			got = append(got, thing)
		}
		slices.Sort(got)
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// TestGrantOfSeveral checks that a thing which several namespaces want counts once, and has the best place that one of them gives it.
func TestGrantOfSeveral(t *testing.T) {
	list := append(wants("a:1-5"), Want[string]{"b", "a5"}, Want[string]{"c", "a1"})
	got := Grant(list, Bounds{Total: 2, Share: 1}, func(string) bool { return false })
	if len(got) != 2 || !got["a1"] || !got["a5"] {
		t.Errorf("granted: %v", got)
	}
}

// TestRunning checks that namespaces which take all they may have leave a place for another one.
func TestRunning(t *testing.T) {
	var r Running
	free := 16
	start := func(namespace string) bool {
		ok := r.Start(namespace, free)
		if ok {
			free--
		}
		return ok
	}
	for i, want := range []int{8, 4, 2, 1, 1, 0} {
		namespace := fmt.Sprint(i)
		for start(namespace) {
			continue
		}
		if r.Of(namespace) != want {
			t.Errorf("namespace %d has %d places, want %d", i, r.Of(namespace), want)
		}
	}
	r.End("0")
	free++
	if start("0") || !start("5") || start("6") {
		t.Error("a place that becomes free is for a namespace without one, and once")
	}
	r.End("nobody")
	if r.Of("nobody") != 0 {
		t.Error("less than nothing is running")
	}
}
