package class_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// BenchmarkChange measures the time from a commit until all class states are ready.
func BenchmarkChange(b *testing.B) {
	for _, services := range []int{1000, 10000} {
		w, l := meshtest.New(b), meshtest.Large{Services: services}
		w.Put(l.Objects()...)
		heap := live()
		for _, p := range l.Proxies(b) {
			w.Connect(p)
		}
		sizes(b, w)
		cells := 0
		for _, n := range w.Graph.Cells() {
			cells += n
		}
		b.Logf("%d services: %d cells, %.1f per service, %d MB of heap beside rows", services, cells, float64(cells)/float64(services), (live()-heap)>>20)
		for _, c := range []struct {
			name string
			make func(i int) *api.Object
		}{
			{"endpoint", func(i int) *api.Object { return l.ServiceEntry(20, i%100+1) }},
			{"routes", func(i int) *api.Object { return l.VirtualService(20, i%100) }},
			{"routesPrivate", func(i int) *api.Object { return l.Private(3, 0, i%100) }},
			{"policy", func(i int) *api.Object { return l.DestinationRule(20, i%100+1, 2) }},
			{"sidecar", func(i int) *api.Object { return l.Sidecar(17, i%20+40) }},
		} {
			b.Run(fmt.Sprintf("%s/%d", c.name, services), func(b *testing.B) {
				for i := range b.N {
					batch := w.Batch(c.make(i))
					w.Graph.Commit(func(tx *store.Txn) { w.Tables.Apply(tx, batch) })
				}
			})
		}
	}
}

func live() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// sizes reports the average size of the resources that are sent, in bytes.
func sizes(b *testing.B, w *meshtest.World) {
	for _, s := range w.States() {
		for typ := range resource.Type(resource.Types) {
			n, bytes, pieces := 0, 0, 0
			for r := range s.Layers(typ).All() {
				n, bytes, pieces = n+1, bytes+r.Size(), pieces+r.Pieces().Len()
			}
			b.Logf("%v: %d resources, %d bytes each, %d bytes per piece", typ, n, bytes/max(n, 1), bytes/max(pieces, 1))
		}
		return
	}
}
