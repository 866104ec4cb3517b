package about

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/security/identity"
)

// busy is a loop that answers nobody.
type busy struct{}

// Inspect implements loop.Inspector.
func (busy) Inspect(ctx context.Context, _ func(*loop.View)) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestBusyLoop: a request for a certificate goes on without names after a moment, and its own time has not ended then.
func TestBusyLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		got := Pods{Mesh: busy{}}.About(ctx, identity.Caller{Pod: identity.Pod{Name: "reviews-1"}})
		if took := time.Since(began); got != "" || took > patience || ctx.Err() != nil {
			t.Errorf("%q after %v, %v", got, took, ctx.Err())
		}
	})
}
