package backend

import (
	"fmt"
	"testing"
)

func TestLookup(t *testing.T) {
	for name, want := range map[string]string{"10-78-4-4.ip.exam.": "[10.78.4.4] true", "multi-2.exam.": "[10.77.200.1 10.77.200.2] true", "nx.exam.": "[] false", "multi-2x.exam.": "[] false"} {
		a, ok := lookup(name)
		if got := fmt.Sprint(a, ok); got != want {
			t.Errorf("lookup(%s) = %s, want %s", name, got, want)
		}
	}
}
