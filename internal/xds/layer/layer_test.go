package layer

import (
	"slices"
	"testing"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// entry is a result in a test: "name=content", or "name hidden".
type entry struct {
	name, content string
	hidden        bool
}

func (e entry) OutputName() string { return e.name }
func (e entry) Size() int          { return 0 }

func (e entry) ContentHash() omap.Hash {
	if e.hidden {
		return omap.Sum([]byte("hidden")) // the same for all names, as in xds/resource
	}
	return omap.Sum([]byte(e.content))
}

func (e entry) String() string {
	if e.hidden {
		return e.name + " hidden"
	}
	return e.name + "=" + e.content
}

func hide(name string) entry { return entry{name: name, hidden: true} }

func texts(list []entry) []string {
	var out []string
	for _, e := range list {
		out = append(out, e.String())
	}
	return out
}

var (
	a1, a2 = entry{name: "a", content: "1"}, entry{name: "a", content: "2"}
	b1     = entry{name: "b", content: "1"}
)

func TestEqual(t *testing.T) {
	for name, c := range map[string]struct {
		a, b []entry
		want bool
	}{
		"the same":                    {[]entry{a1, b1}, []entry{a1, b1}, true},
		"another content":             {[]entry{a1}, []entry{a2}, false},
		"another name":                {[]entry{a1}, []entry{b1}, false},
		"hidden under another name":   {[]entry{hide("a")}, []entry{hide("b")}, false},
		"one more":                    {[]entry{a1}, []entry{a1, b1}, false},
		"nothing, and an empty list":  {nil, []entry{}, true},
		"the same in another order":   {[]entry{a1, b1}, []entry{b1, a1}, false},
		"hidden, and something there": {[]entry{hide("a")}, []entry{a1}, false},
	} {
		if got := Equal(c.a, c.b); got != c.want {
			t.Errorf("%s: Equal is %v", name, got)
		}
	}
}

// An overlay hides what only the base view has. It must not change the list that it was given, which others share.
func TestHideMissing(t *testing.T) {
	list := make([]entry, 1, 4)
	list[0] = a2
	got := texts(HideMissing(list, []entry{a1, b1}, hide))
	if want := []string{"a=2", "b hidden"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if extra := list[:2][1]; extra != (entry{}) {
		t.Errorf("the caller's list was extended in place by %v", extra)
	}
	if got := HideMissing(list, nil, hide); len(got) != 1 {
		t.Errorf("over an empty base: %q", texts(got))
	}
}

// A client layer holds only the results that differ from the results of other clients.
func TestDifferences(t *testing.T) {
	for name, c := range map[string]struct {
		list, others []entry
		want         []string
	}{
		"the same":            {[]entry{a1, b1}, []entry{a1, b1}, nil},
		"changed":             {[]entry{a2, b1}, []entry{a1, b1}, []string{"a=2"}},
		"only for the client": {[]entry{a1, b1}, []entry{a1}, []string{"b=1"}},
		"only for others":     {[]entry{a1}, []entry{a1, b1}, []string{"b hidden"}},
	} {
		if got := texts(differences(c.list, c.others, hide)); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// In an overlay, a host that looks as in the base view has no entries; another one has all of its own, and hides the rest. A
// set of a Sidecar has the entries of all of its hosts, and there is no base beneath it to hide.
func TestLayerEntries(t *testing.T) {
	at := func(v service.HostView) []entry {
		if v.Viewer == "n" {
			return []entry{a2}
		}
		return []entry{a1, b1}
	}
	for name, c := range map[string]struct {
		overlay bool
		viewer  string
		want    []string
	}{
		"an overlay, as in the base view":    {true, "", nil},
		"an overlay, different":              {true, "n", []string{"a=2", "b hidden"}},
		"a Sidecar's set, as in the base":    {false, "", []string{"a=1", "b=1"}},
		"a Sidecar's set, where it differs ": {false, "n", []string{"a=2"}},
	} {
		list, ok := layerEntries(c.overlay, service.HostView{Host: "h", Viewer: c.viewer}, at, hide)
		if got := texts(list); !slices.Equal(got, c.want) || ok != (len(c.want) > 0) {
			t.Errorf("%s: got %q (%v), want %q", name, got, ok, c.want)
		}
	}
}
