package query_test

import (
	"fmt"
	"slices"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

type service struct {
	port  int
	owner string
}

// cluster is an output of a collection: it has a name and a content hash.
type cluster struct {
	host string
	port int
}

func (c cluster) OutputName() string     { return c.host }
func (c cluster) ContentHash() omap.Hash { return omap.Sum(fmt.Append(nil, c.host, c.port)) }
func (c cluster) Size() int              { return 0 }

func Example() {
	// The rows: a table of services, and an index that lists their hosts in one group.
	db := store.New()
	services := store.NewTable[string](db, "services", func(a, b service) bool { return a == b })
	hosts := store.NewIndex(services, "hosts", func(host string, _ service, add func(group string, host omap.Name)) {
		add("all", omap.Name(host))
	})

	// The queries: "port" reads one row, "cluster" reads one port, and "clusters" has one element per host.
	g := query.New(db, query.Options{Strict: true})
	port := query.Define(g, "port", func(a, b int) bool { return a == b }, func(r *query.Reader, host string) (int, bool) {
		s, ok := services.Get(r, host)
		return s.port, ok
	})
	one := query.Define(g, "cluster", slices.Equal[[]cluster], func(r *query.Reader, host string) ([]cluster, bool) {
		p, ok := port.Get(r, host)
		return []cluster{{host, p}}, ok
	})
	clusters := query.Each(g, "clusters",
		func(r *query.Reader, group string) omap.Map[omap.Name, omap.Unit] { return hosts.Group(r, group) },
		one, func(_ string, host omap.Name) string { return string(host) })

	// A root makes the cells exist. The first build runs in slices.
	g.Commit(func(tx *store.Txn) {
		services.Set(tx, "details", service{9080, "ann"})
		services.Set(tx, "reviews", service{9080, "bob"})
	})
	release := clusters.Observe("all", func(m omap.Map[omap.Name, cluster]) {
		for _, c := range m.All() {
			fmt.Println("  published", c.host, c.port)
		}
	})
	for g.Slice(100) {
	}
	fmt.Println("first build:", g.Cells())

	// A new owner changes the row, so "port" runs. Its result is equal, so nothing else runs.
	g.Commit(func(tx *store.Txn) { services.Set(tx, "reviews", service{9080, "eve"}) })
	fmt.Println("another owner:", g.Cost())

	// A new port runs the cells of this service and the collection, but not the cells of the other service.
	g.Commit(func(tx *store.Txn) { services.Set(tx, "reviews", service{9090, "eve"}) })
	fmt.Println("another port:", g.Cost())

	// Without a root the cells are freed.
	release()
	for g.Slice(100) {
	}
	fmt.Println("no root:", g.Cells())

	// Output:
	//   published details 9080
	//   published reviews 9080
	// first build: map[cluster:2 clusters:1 port:2]
	// another owner: map[port:1]
	//   published details 9080
	//   published reviews 9090
	// another port: map[cluster:1 clusters:1 port:1]
	// no root: map[]
}
