package cluster_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/cluster"
)

// child is set in the environment of the process that TestKilled kills.
const child = "PILOT_CLUSTER_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(child) == "" {
		os.Exit(m.Run())
	}
	c, err := cluster.Start(context.Background(), cluster.Options{Binaries: programs()})
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	fmt.Println("started", c.Dir())
	panic("as a test might")
}

// TestKilled: a process that panics, and one that is killed outright, leave nothing behind.
func TestKilled(t *testing.T) {
	if programs().Etcd == "" {
		t.Skip("the programs of a cluster are not built: run `make tools-cluster`")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_ = cmd.Wait() // it panicked
	dir, ok := strings.CutPrefix(strings.TrimSpace(line), "started ")
	if err != nil || !ok {
		t.Fatalf("the child said %q, %v", line, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		left := remains(dir)
		if len(left) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("20 s after its end are still there: %v", left)
		}
	}
}

// remains are the data folder of a cluster, processes that have to do with it, and its devices.
func remains(dir string) []string {
	var left []string
	if _, err := os.Stat(dir); err == nil {
		left = append(left, dir)
	}
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range lines {
		if line, err := os.ReadFile(f); err == nil && strings.Contains(string(line), dir) {
			left = append(left, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return left
}

// TestClustersSideBySide: two clusters run at a time and know nothing of each other.
func TestClustersSideBySide(t *testing.T) {
	paths := programs()
	if paths.Etcd == "" {
		t.Skip("the programs of a cluster are not built: run `make tools-cluster`")
	}
	var hosts []string
	for range 2 {
		c, err := cluster.Start(t.Context(), cluster.Options{Binaries: paths})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}()
		hosts = append(hosts, c.Config().Host)
	}
	if hosts[0] == hosts[1] {
		t.Errorf("both are at %s", hosts[0])
	}
	for _, h := range hosts {
		conn, err := net.DialTimeout("tcp", strings.TrimPrefix(h, "https://"), 5*time.Second)
		if err != nil {
			t.Error(err)
			continue
		}
		conn.Close()
	}
}
