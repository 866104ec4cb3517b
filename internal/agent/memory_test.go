package agent

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMemoryLimit(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  uint64
	}{
		{"none", nil, math.MaxUint64},
		{"version 2, unlimited", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, math.MaxUint64},
		{"version 2", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "100\n"}, 100},
		{"version 2, a group", map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "70\n"}, 70},
		{"version 1", map[string]string{"proc/self/cgroup": "5:cpu:/\n4:memory:/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "60\n"}, 60},
	} {
		root := t.TempDir()
		for name, text := range c.files {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := memoryLimit(root); got != c.want {
			t.Errorf("%s: %d", c.name, got)
		}
	}
}

func TestMemoryHint(t *testing.T) {
	for _, c := range []struct {
		limit uint64
		hot   bool
		want  string
	}{
		{math.MaxUint64, true, ""},
		{64 << 20, false, ""},
		{63 << 20, false, "is 63 MiB, but Envoy needs 64 MiB at least; raise it"},
		{100 << 20, true, "is 100 MiB, but Envoy needs 128 MiB at least, because two run during a hot restart; raise it"},
	} {
		if got := memoryHint(c.limit, c.hot); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestHeapLimit: the limit is the container's memory without the agent's share, and there is none if that is too little for Envoy.
func TestHeapLimit(t *testing.T) {
	for limit, want := range map[uint64]uint64{
		math.MaxUint64: 0, 1 << 62: 0, 127 << 20: 0, 128 << 20: 64 << 20, 1 << 30: 960 << 20,
	} {
		if got := heapLimit(limit); got != want {
			t.Errorf("%d MiB: %d MiB, want %d MiB", limit>>20, got>>20, want>>20)
		}
	}
}
