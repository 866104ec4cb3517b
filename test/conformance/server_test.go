package conformance

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/conformance/client"
	"github.com/pilotmesh/pilot/test/testbed"
)

// patience is how long anything may take that takes milliseconds on an idle machine.
const patience = 20 * time.Second

// server is a control plane and its directory of configuration.
type server struct {
	*testbed.Discovery
	t       *testing.T
	staging string // where files are written before they are moved into place
	checker *client.Checker
}

// newServer prepares a control plane that ends with the test. It has no configuration yet.
func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{t: t, checker: client.NewChecker()}
	dir := t.TempDir()
	s.prepare(dir)
	s.staging = filepath.Join(dir, "staging")
	if err := os.Mkdir(s.staging, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.Discovery != nil {
			s.Stop()
		}
	})
	return s
}

func (s *server) prepare(dir string) {
	s.t.Helper()
	d, err := testbed.NewDiscovery(binary, dir)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Discovery = d
}

// start runs the control plane until it says that it is ready. Between finding ports and listening on them another program may take one: then others
// are tried.
func (s *server) start() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	for try := 1; ; try++ {
		err := s.Start(ctx)
		if err == nil {
			return
		}
		if try == 3 || !strings.Contains(err.Error(), "address already in use") {
			s.t.Fatal(err)
		}
		s.prepare(filepath.Dir(s.ConfigDir))
	}
}

// put writes a file of configuration, whole at once. name may have directories in it.
func (s *server) put(name string, documents ...string) {
	s.t.Helper()
	s.write(name, strings.Join(documents, "---\n"))
}

func (s *server) write(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.ConfigDir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.stage(text), path); err != nil {
		s.t.Fatal(err)
	}
}

// stage writes a file that is not in the directory of configuration yet, and returns its path.
func (s *server) stage(documents ...string) string {
	s.t.Helper()
	f, err := os.CreateTemp(s.staging, "*.yaml")
	if err == nil {
		_, err = f.WriteString(strings.Join(documents, "---\n"))
	}
	if err != nil {
		s.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		s.t.Fatal(err)
	}
	return f.Name()
}

func (s *server) remove(name string) {
	s.t.Helper()
	if err := os.Remove(filepath.Join(s.ConfigDir, name)); err != nil {
		s.t.Fatal(err)
	}
}

// signal sends a signal to the process and waits for its end, at most as long as it may take.
func (s *server) signal(sig syscall.Signal, limit time.Duration) time.Duration {
	s.t.Helper()
	begin := time.Now()
	if err := syscall.Kill(s.PID(), sig); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := testbed.Until(ctx, "pilot-discovery to end", func(context.Context) error {
		if s.Alive() == nil {
			return fmt.Errorf("it is still running; its log ends:\n%s", s.Log())
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return time.Since(begin)
}

// memory is a figure of /proc/PID/status in bytes: VmRSS is what the process holds, VmHWM the most it ever held.
func (s *server) memory(field string) int64 {
	s.t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", s.PID()))
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), field+":"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			return kb << 10
		}
	}
	s.t.Fatalf("/proc/%d/status has no %s", s.PID(), field)
	return 0
}

// metric reads a metric of the process.
func (s *server) metric(name string) float64 {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	v, err := s.Metric(ctx, name)
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}
