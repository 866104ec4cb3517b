package install

import (
	"context"
	"strings"
	"testing"
)

// TestUntil: when the time is over in the middle of a look, the error has the state of the look before.
func TestUntil(t *testing.T) {
	c := &Cluster{Say: func(string, bool) {}}
	ctx, cancel := context.WithTimeout(t.Context(), 2*lookAgain)
	defer cancel()
	looks := 0
	err := c.until(ctx, "a thing", func() (bool, string, error) {
		if looks++; looks == 1 {
			return false, "0 of 1 replicas are available", nil
		}
		<-ctx.Done()
		return false, "it was deleted", ctx.Err()
	})
	if err == nil || !strings.Contains(err.Error(), "took too long: 0 of 1 replicas are available;") {
		t.Errorf("got %v", err)
	}
}
