package configdump

import (
	"maps"
	"slices"
	"strconv"
)

// demandCluster is a cluster that only proxies with hosts on demand have.
const demandCluster = "hosts-on-demand"

// Comparable returns the parts of two dumps that can be compared: one with the wanted resources, and one with the present ones. A proxy with hosts on demand has only the virtual
// hosts and clusters that its workload has used, so clusters and assignments that it does not have, and the route configurations of ports, are left out.
func Comparable(wanted, has *Dump) (w, h *Dump) {
	if !slices.ContainsFunc(has.Entries[Clusters], func(e Entry) bool { return e.Name == demandCluster }) {
		return wanted, has
	}
	had := func(k Kind) func(Entry) bool {
		return func(e Entry) bool {
			return !slices.ContainsFunc(has.Entries[k], func(o Entry) bool { return o.Name == e.Name })
		}
	}
	ofPort := func(e Entry) bool {
		_, err := strconv.ParseUint(e.Name, 10, 16)
		return err == nil
	}
	w = wanted.without(Clusters, had(Clusters)).without(Endpoints, had(Endpoints)).without(Routes, ofPort)
	return w, has.without(Routes, ofPort)
}

// without is the dump without some entries.
func (d *Dump) without(k Kind, drop func(Entry) bool) *Dump {
	c := *d
	c.Entries = maps.Clone(d.Entries)
	c.Entries[k] = slices.DeleteFunc(slices.Clone(d.Entries[k]), drop)
	return &c
}
