package file_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/internal/source/file"
)

// BenchmarkEdit measures from the write of a file to the arrival of its batch, beside other files and documents.
func BenchmarkEdit(b *testing.B) {
	for _, c := range []struct{ files, documents int }{{1, 1}, {1000, 1}, {10000, 1}, {1, 1000}} {
		b.Run(fmt.Sprintf("files=%d/documents=%d", c.files, c.documents), func(b *testing.B) {
			dir := b.TempDir()
			var rest string
			for d := range c.documents - 1 {
				rest += "---\n" + entry(fmt.Sprintf("d%d", d), "192.0.2.1")
			}
			for f := range c.files {
				write(b, filepath.Join(dir, fmt.Sprintf("f%d.yaml", f)), entry(fmt.Sprintf("f%d", f), "192.0.2.1")+rest)
				rest = ""
			}
			rest = ""
			for d := range c.documents - 1 {
				rest += "---\n" + entry(fmt.Sprintf("d%d", d), "192.0.2.1")
			}
			w := start(b, file.Options{Dir: dir})
			began := time.Now()
			w.until("synced", func() bool { return w.last.Synced })
			first := time.Since(began)
			for i := 0; b.Loop(); i++ {
				address := fmt.Sprintf("192.0.%d.%d", 3+i/250%250, 1+i%250)
				write(b, filepath.Join(dir, "f0.yaml"), entry("f0", address)+rest)
				w.until("edited", w.address("f0", address))
			}
			b.ReportMetric(float64(first.Milliseconds()), "ms/first-list")
		})
	}
}
