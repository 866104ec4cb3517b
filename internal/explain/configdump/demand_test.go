package configdump

import (
	"slices"
	"testing"
)

// TestComparable: a proxy with hosts on demand may have clusters that it has asked for and that nothing refers to any more. Nothing else may differ.
func TestComparable(t *testing.T) {
	entries := func(names ...string) (list []Entry) {
		for _, n := range names {
			list = append(list, Entry{Name: n, State: active, Body: map[string]any{"name": n}})
		}
		return list
	}
	wanted := &Dump{Entries: map[Kind][]Entry{Clusters: entries(demandCluster, "outbound|80||a", "outbound|80||b"), Routes: entries("80", "http_proxy")}}
	has := &Dump{Entries: map[Kind][]Entry{Clusters: entries(demandCluster, "outbound|80||a", "outbound|80||gone", "gone"), Routes: entries("80")}}
	names := func(k Kind, w, h *Dump) (list []string) {
		for _, d := range Diff(k, w.Entries[k], h.Entries[k]) {
			list = append(list, d.Name)
		}
		slices.Sort(list)
		return list
	}
	w, h := Comparable(wanted, has)
	if list := names(Clusters, w, h); !slices.Equal(list, []string{"gone", "outbound|80||b"}) {
		t.Errorf("clusters: %v", list)
	}
	if list := names(Routes, w, h); !slices.Equal(list, []string{"http_proxy"}) {
		t.Errorf("route configurations: %v", list)
	}
	has.Entries[Clusters] = entries("outbound|80||a", "outbound|80||gone")
	w, h = Comparable(wanted, has)
	if list := names(Clusters, w, h); len(list) != 3 {
		t.Errorf("a proxy with all hosts: %v", list)
	}
}
