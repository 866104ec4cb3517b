package local

import (
	"strings"
	"testing"
)

func TestShift(t *testing.T) {
	s := &Stage{Offset: 10000}
	const text = "{address: 127.1.0.1, ports: {http: 9011}, labels: {version: v1}} number: 9040, weight: 100, 90111"
	if got, want := s.Shift(text), strings.NewReplacer("9011}", "19011}", "9040", "19040").Replace(text); got != want {
		t.Errorf("got %s", got)
	}
}
