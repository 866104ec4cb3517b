package configdump

import "testing"

// TestComparable: a proxy with hosts on demand may be without the resources that its workload has not used.
func TestComparable(t *testing.T) {
	entries := func(names ...string) (list []Entry) {
		for _, n := range names {
			list = append(list, Entry{Name: n, State: active, Body: map[string]any{"name": n}})
		}
		return list
	}
	wanted := &Dump{Entries: map[Kind][]Entry{Clusters: entries(demandCluster, "a", "b"), Routes: entries("80", "http_proxy")}}
	has := &Dump{Entries: map[Kind][]Entry{Clusters: entries(demandCluster, "a"), Routes: nil}}
	w, h := Comparable(wanted, has)
	if list := Diff(Clusters, w.Entries[Clusters], h.Entries[Clusters]); len(list) > 0 {
		t.Errorf("clusters: %v", list)
	}
	if list := Diff(Routes, w.Entries[Routes], h.Entries[Routes]); len(list) != 1 || list[0].Name != "http_proxy" {
		t.Errorf("route configurations: %v", list)
	}
	has.Entries[Clusters] = entries("a")
	w, h = Comparable(wanted, has)
	if list := Diff(Clusters, w.Entries[Clusters], h.Entries[Clusters]); len(list) != 2 {
		t.Errorf("a proxy with all hosts: %v", list)
	}
}
