package server

import (
	"testing"

	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// BenchmarkUpdate is what publishing a state costs the loop per stream.
func BenchmarkUpdate(b *testing.B) {
	srv := New(nil, Options{})
	streams := make([]*Stream, 10_000)
	for i := range streams {
		streams[i] = &Stream{server: srv}
	}
	states := []*resource.State{{}, {}}
	buf := make([]*Stream, 0, 10_000)
	b.ReportAllocs()
	for i := range b.N {
		s := streams[i%len(streams)]
		s.Update(states[i&1])
		if i%len(streams) == len(streams)-1 {
			b.StopTimer()
			for _, s := range srv.slow.take(buf) {
				s.queued.Store(false)
			}
			b.StartTimer()
		}
	}
}
