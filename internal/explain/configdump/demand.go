package configdump

import (
	"maps"
	"slices"
	"strings"
)

// demandCluster is a cluster that only proxies with hosts on demand have.
const demandCluster = "hosts-on-demand"

// outbound begins the names of the clusters of services.
const outbound = "outbound|"

// Comparable returns the parts of two dumps that can be compared: one with the wanted resources, and one with the present ones. A proxy with hosts on demand keeps the clusters of
// hosts to which nothing leads any more, until it connects again, so they are left out, and so are their endpoints.
func Comparable(wanted, has *Dump) (w, h *Dump) {
	if !slices.ContainsFunc(has.Entries[Clusters], func(e Entry) bool { return e.Name == demandCluster }) {
		return wanted, has
	}
	h = has
	for _, k := range []Kind{Clusters, Endpoints} {
		h = h.without(k, func(e Entry) bool {
			return strings.HasPrefix(e.Name, outbound) && !slices.ContainsFunc(wanted.Entries[k], func(o Entry) bool { return o.Name == e.Name })
		})
	}
	return wanted, h
}

// without is the dump without some entries.
func (d *Dump) without(k Kind, drop func(Entry) bool) *Dump {
	c := *d
	c.Entries = maps.Clone(d.Entries)
	c.Entries[k] = slices.DeleteFunc(slices.Clone(d.Entries[k]), drop)
	return &c
}
