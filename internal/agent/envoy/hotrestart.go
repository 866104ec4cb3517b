package envoy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/agent/disk"
)

// HotRestart are the options of a process that can be replaced by a hot restart: another process takes its listeners over. The processes
// of such a family have one base id, and differ by their epochs.
type HotRestart struct {
	// Epoch is 0 for the first process of a family. Any other takes over from the one with the epoch before, its parent.
	Epoch int
	// BaseID is the base id of the family. The first process chooses it, so that families of several agents on one host do not collide, and
	// writes it to BaseIDFile.
	BaseID, BaseIDFile string
	// ParentShutdown is the time after which the process makes its parent exit.
	ParentShutdown time.Duration
}

func (h *HotRestart) args() []string {
	if h == nil {
		// Without shared memory any number of Envoys can run on one host.
		return []string{"--disable-hot-restart"}
	}
	args := []string{"--restart-epoch", strconv.Itoa(h.Epoch), "--parent-shutdown-time-s", strconv.Itoa(int(h.ParentShutdown.Round(time.Second).Seconds()))}
	if h.Epoch == 0 {
		return append(args, "--use-dynamic-base-id", "--base-id-path", h.BaseIDFile)
	}
	return append(args, "--base-id", h.BaseID)
}

// sharedMemoryDir is where POSIX shared memory is on Linux.
const sharedMemoryDir = "/dev/shm"

// CheckHotRestart returns an error if this host does not allow hot restarts, which need shared memory and abstract unix sockets.
func CheckHotRestart() error { return checkHotRestart(sharedMemoryDir) }

func checkHotRestart(dir string) error {
	const remedy = "or omit --hotRestart"
	f, err := os.CreateTemp(dir, "pilot-agent-")
	if err != nil {
		return fmt.Errorf("hot restart needs shared memory: %w; mount a tmpfs that this user can write to at %s (an emptyDir with medium Memory), %s", err, dir, remedy)
	}
	if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
		return fmt.Errorf("hot restart needs shared memory: %w", err)
	}
	s, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: "@" + filepath.Base(f.Name()), Net: "unixgram"})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		return fmt.Errorf("hot restart needs unix sockets: %w; allow abstract unix sockets in this container, %s", err, remedy)
	}
	return nil
}

// ReadBaseID reads the base id that the first process of a family has chosen.
func ReadBaseID(path string) (string, error) {
	text, err := disk.Read(path)
	if err != nil {
		return "", fmt.Errorf("the base id of Envoy: %w", err)
	}
	id := strings.TrimSpace(string(text))
	if _, err := strconv.ParseUint(id, 10, 32); err != nil {
		return "", fmt.Errorf("the base id of Envoy: %s: %q is not a number", path, id)
	}
	return id, nil
}

// The shared memory of a family, as all supported versions of Envoy lay it out. A flag says that a process is starting.
const (
	memorySize, memoryVersion = 104, 11
	versionAt, flagsAt        = 8, 96
)

// memory is the file with the shared memory of a family. Envoy leaves room for nine families more behind each base id.
func memory(dir, baseID string) string { return filepath.Join(dir, "envoy_shared_memory_"+baseID+"0") }

// ForgetStart lets another process of a family start. Envoy refuses to start while an earlier one has not completed its start, and one
// that failed never does. It must not be called while a process of the family starts.
func ForgetStart(baseID string) error { return forgetStart(memory(sharedMemoryDir, baseID)) }

func forgetStart(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("the shared memory of Envoy: %w", err)
	}
	defer f.Close()
	b := make([]byte, memorySize+1)
	n, _ := f.ReadAt(b, 0) // which shows whether the file is shorter
	if size, version := binary.NativeEndian.Uint64(b), binary.NativeEndian.Uint64(b[versionAt:]); n != memorySize || size != memorySize || version != memoryVersion {
		return fmt.Errorf("the shared memory of Envoy, %s, has an unknown layout: %d bytes, version %d.%d", path, n, version, size)
	}
	if _, err := f.WriteAt(make([]byte, memorySize-flagsAt), flagsAt); err != nil {
		return fmt.Errorf("the shared memory of Envoy: %w", err)
	}
	return nil
}

// RemoveMemory removes the shared memory of a family whose processes have all ended. Envoy leaves it behind. If a process uses the memory, it
// stays: another agent's Envoy may have chosen the same base id since.
func RemoveMemory(baseID string) error { return removeMemory(memory(sharedMemoryDir, baseID), "/proc") }

func removeMemory(path, proc string) error {
	if pid := user(path, proc); pid != "" {
		return fmt.Errorf("the shared memory of Envoy, %s, stays: process %s uses it", path, pid)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the shared memory of Envoy: %w", err)
	}
	return nil
}

// user returns the id of a process that has mapped a file; empty if there is none. Processes of other users are left out: the agent may
// neither see their memory nor remove it.
func user(path, proc string) string {
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	all, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "maps"))
	if err != nil {
		return ""
	}
	for _, maps := range all {
		text, err := os.ReadFile(maps)
		if err == nil && strings.Contains(string(text), " "+path+"\n") {
			return filepath.Base(filepath.Dir(maps))
		}
	}
	return ""
}
