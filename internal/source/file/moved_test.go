package file_test

import (
	"os"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/internal/source/file"
)

// TestMovedAndRewritten moves a file and writes the new one slowly, as a copying editor does: its object is never gone.
func TestMovedAndRewritten(t *testing.T) {
	for name, to := range map[string]string{"beside": "c.yaml", "into another directory": "sub/c.yaml"} {
		t.Run(name, func(t *testing.T) {
			o := file.Options{Quiet: 50 * time.Millisecond, MaxWait: 100 * time.Millisecond}
			w := openWith(t, o, map[string]string{"a.yaml": entries("a"), "b.yaml": entries("b")})
			must(t, os.MkdirAll(w.path("sub"), 0o755))
			must(t, os.Rename(w.path("a.yaml"), w.path(to)))
			f, err := os.OpenFile(w.path(to), os.O_WRONLY|os.O_TRUNC, 0)
			must(t, err)
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for end := time.Now().Add(3 * o.MaxWait); time.Now().Before(end); <-tick.C {
				_, err = f.WriteString("# not done yet\n")
				must(t, err)
			}
			_, err = f.WriteString(entry("a", "192.0.2.9"))
			must(t, err)
			must(t, f.Close())
			w.until("a is edited", w.address("a", "192.0.2.9"))
			if n := w.events[key("a")]; n != 2 {
				t.Errorf("a came, and changed %d times, want once", n-1)
			}
		})
	}
}

// TestMovedAndCut moves a file and cuts the new one, whose content comes later.
func TestMovedAndCut(t *testing.T) {
	w := openWith(t, file.Options{MaxWait: 2 * time.Second}, map[string]string{"a.yaml": entries("a"), "b.yaml": entries("b")})
	must(t, os.Rename(w.path("a.yaml"), w.path("c.yaml")))
	must(t, os.Truncate(w.path("c.yaml"), 0))
	write(t, w.path("b.yaml"), entry("b", "192.0.2.7"))
	w.until("b is edited", w.address("b", "192.0.2.7"))
	write(t, w.path("c.yaml"), entry("a", "192.0.2.9"))
	w.until("a is edited", w.address("a", "192.0.2.9"))
	if n := w.events[key("a")]; n != 2 {
		t.Errorf("a came, and changed %d times, want once", n-1)
	}
	// What is gone for good is held only for a while.
	must(t, os.Remove(w.path("c.yaml")))
	must(t, os.Truncate(w.path("b.yaml"), 0))
	w.until("both are gone", w.has())
}
