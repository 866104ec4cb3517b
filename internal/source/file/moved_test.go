package file_test

import (
	"os"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/internal/source/file"
)

// TestMovedAndRewritten moves a file and writes the new one slowly, as a copying editor does: its object is never removed.
func TestMovedAndRewritten(t *testing.T) {
	for name, to := range map[string]string{"beside": "c.yaml", "into another directory": "sub/c.yaml"} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				if rewriteSlowly(t, to) {
					return
				}
			}
			t.Fatal("the machine is too busy to write a file without long pauses")
		})
	}
}

// rewriteSlowly reports whether it wrote without a pause that lets the file look finished.
func rewriteSlowly(t *testing.T, to string) bool {
	o := file.Options{Quiet: 100 * time.Millisecond, MaxWait: 120 * time.Millisecond}
	w := openWith(t, o, map[string]string{"a.yaml": entries("a"), "b.yaml": entries("b")})
	must(t, os.MkdirAll(w.path("sub"), 0o755))
	must(t, os.Rename(w.path("a.yaml"), w.path(to)))
	f, err := os.OpenFile(w.path(to), os.O_WRONLY|os.O_TRUNC, 0)
	must(t, err)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var pause time.Duration
	last := time.Now()
	for end := last.Add(3 * o.MaxWait); time.Now().Before(end); <-tick.C {
		_, err = f.WriteString("# not done yet\n")
		must(t, err)
		pause, last = max(pause, time.Since(last)), time.Now()
	}
	_, err = f.WriteString(entry("a", "192.0.2.9"))
	must(t, err)
	must(t, f.Close())
	if max(pause, time.Since(last)) > o.Quiet/2 {
		return false
	}
	w.until("a is edited", w.address("a", "192.0.2.9"))
	if n := w.events[key("a")]; n != 2 {
		t.Errorf("a came, and changed %d times, want once", n-1)
	}
	return true
}

// TestMovedAndCut moves a file and cuts the new one, whose content comes later.
func TestMovedAndCut(t *testing.T) {
	w := openWith(t, file.Options{MaxWait: time.Minute}, map[string]string{"a.yaml": entries("a"), "b.yaml": entries("b")})
	must(t, os.Rename(w.path("a.yaml"), w.path("c.yaml")))
	must(t, os.Truncate(w.path("c.yaml"), 0))
	write(t, w.path("b.yaml"), entry("b", "192.0.2.7"))
	w.until("b is edited", w.address("b", "192.0.2.7"))
	write(t, w.path("c.yaml"), entry("a", "192.0.2.9"))
	w.until("a is edited", w.address("a", "192.0.2.9"))
	if n := w.events[key("a")]; n != 2 {
		t.Errorf("a came, and changed %d times, want once", n-1)
	}
}

// TestCutAndGone: objects whose file is empty or gone are held only for a while.
func TestCutAndGone(t *testing.T) {
	w := openWith(t, file.Options{MaxWait: 100 * time.Millisecond}, map[string]string{"a.yaml": entries("a"), "b.yaml": entries("b")})
	must(t, os.Remove(w.path("a.yaml")))
	must(t, os.Truncate(w.path("b.yaml"), 0))
	w.until("both are gone", w.has())
}
