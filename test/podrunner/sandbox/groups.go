package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits bound a container where the machine's cgroups (version 2) can do it. Zero is no limit.
type Limits struct {
	Memory   int64 // bytes
	MilliCPU int64
}

// groups are the cgroups of a node's containers. Without controllers, as on machines that have those in version 1, they
// still freeze and kill. A nil *groups makes nil *group values, which do nothing.
type groups struct {
	dir         string
	controllers map[string]bool
}

// group is one container's.
type group struct {
	dir  string
	file *os.File
}

// openGroups makes the node's cgroup, after killing what an earlier life left in it.
func openGroups(name string) (*groups, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(before); strings.HasPrefix(after, "cgroup2 ") && len(fields) > 4 {
			return newGroups(filepath.Join(fields[4], name))
		}
	}
	return nil, nil
}

func newGroups(dir string) (*groups, error) {
	g := &groups{dir: dir, controllers: make(map[string]bool)}
	g.close()
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
			return nil, nil // inside a container that may not: then there are no limits
		}
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	available, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	for _, controller := range strings.Fields(string(available)) {
		if err := writeGroup(dir, "cgroup.subtree_control", "+"+controller); err == nil {
			g.controllers[controller] = true
		}
	}
	return g, nil
}

// close kills the remaining processes and removes the groups.
func (g *groups) close() {
	_ = writeGroup(g.dir, "cgroup.kill", "1")
	inside, _ := os.ReadDir(g.dir)
	for _, entry := range inside {
		if entry.IsDir() {
			_ = os.Remove(filepath.Join(g.dir, entry.Name()))
		}
	}
	_ = os.Remove(g.dir)
}

func (g *groups) make(id string, limits Limits) (*group, error) {
	if g == nil {
		return nil, nil
	}
	dir := filepath.Join(g.dir, id)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	if limits.Memory > 0 && g.controllers["memory"] {
		if err := writeGroup(dir, "memory.max", strconv.FormatInt(limits.Memory, 10)); err != nil {
			return nil, err
		}
	}
	if limits.MilliCPU > 0 && g.controllers["cpu"] {
		const period = 100_000 // microseconds
		if err := writeGroup(dir, "cpu.max", fmt.Sprintf("%d %d", max(1000, limits.MilliCPU*period/1000), period)); err != nil {
			return nil, err
		}
	}
	file, err := os.OpenFile(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	return &group{dir: dir, file: file}, nil
}

func (g *group) fd() int {
	if g == nil {
		return -1
	}
	return int(g.file.Fd())
}

func (g *group) kill() {
	if g != nil {
		_ = writeGroup(g.dir, "cgroup.kill", "1") // kernels before 5.14 have no such file, and only hostPID needs it
	}
}

func (g *group) freeze(on bool) error {
	value := "0"
	if on {
		value = "1"
	}
	return writeGroup(g.dir, "cgroup.freeze", value)
}

// oom reports whether the kernel killed for memory here.
func (g *group) oom() bool {
	if g == nil {
		return false
	}
	events, err := os.ReadFile(filepath.Join(g.dir, "memory.events"))
	if err != nil {
		return false // no controller
	}
	for line := range strings.Lines(string(events)) {
		if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strings.TrimSpace(count) != "0"
		}
	}
	return false
}

func (g *group) remove() error {
	if g == nil {
		return nil
	}
	return errors.Join(g.file.Close(), os.Remove(g.dir))
}

func writeGroup(dir, file, value string) error {
	if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0o644); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	return nil
}
