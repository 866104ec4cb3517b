package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/testbed"
)

// TestFileToAcknowledged: three Envoys have every edit, and this is how long it took them, from the rename of the file
// on. They are asked every two milliseconds, so the figure is a little too high; `make bench` holds it to its bar.
func TestFileToAcknowledged(t *testing.T) {
	const edits = 30
	reviews := newService(t, "reviews", backend(t, "v1"), backend(t, "v2"))
	b := newBed(t, "services.yaml", reviews.entry()+reviews.subsets(), "routes.yaml", reviews.weights(100, 0))
	var envoys []*testbed.Envoy
	for i, sotw := range []bool{false, true, false} {
		envoys = append(envoys, b.envoy(testbed.Node{
			Name: fmt.Sprintf("client%d", i), Namespace: []string{"shop", "shop", "office"}[i], IP: fmt.Sprintf("127.1.0.%d", i+1), SotW: sotw,
		}))
	}
	b.answers(reviews, "v1", "/")
	var took []time.Duration
	for i := range edits {
		took = append(took, b.edit(envoys, reviews, 1+i))
	}
	slices.Sort(took)
	p50, p99 := took[len(took)/2], took[len(took)-1-len(took)/100]
	t.Logf("file write to acknowledged by %d Envoys, %d edits: p50 %s, p99 %s, max %s", len(envoys), edits,
		p50.Round(time.Millisecond/10), p99.Round(time.Millisecond/10), took[len(took)-1].Round(time.Millisecond/10))
}

// edit writes a weight and returns how long the last of the Envoys took to have it.
func (b *bed) edit(envoys []*testbed.Envoy, s service, weight int) time.Duration {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	match := fmt.Sprintf(`\b(rds|vhds)\.%d\.update_success$`, s.port)
	before := make([]int64, len(envoys))
	for i, e := range envoys {
		n, err := e.Sum(ctx, match)
		if err != nil {
			b.Fatal(err)
		}
		before[i] = n
	}
	at := b.write("routes.yaml", s.weights(100-weight, weight))
	var wg sync.WaitGroup
	took := make([]time.Duration, len(envoys))
	for i, e := range envoys {
		wg.Go(func() {
			var err error
			if took[i], err = e.AwaitUpdate(ctx, match, before[i], at); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	return slices.Max(took)
}
