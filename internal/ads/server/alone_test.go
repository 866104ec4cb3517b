package server

import (
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
)

// TestAloneFor: aloneFor returns the positive duration that an agent reports, and 0 for every other value.
func TestAloneFor(t *testing.T) {
	for text, want := range map[string]time.Duration{"1m2.5s": time.Minute + 2500*time.Millisecond, "": 0, "-1s": 0, "long": 0} {
		if got := aloneFor(metadata.NewIncomingContext(t.Context(), metadata.Pairs(aloneHeader, text))); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if got := aloneFor(t.Context()); got != 0 {
		t.Errorf("without metadata: %v", got)
	}
}
