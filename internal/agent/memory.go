package agent

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// envoyMemory is the memory that Envoy needs with a small configuration, in bytes.
const envoyMemory = 64 << 20

// memoryHint returns a warning if a memory limit is too low for Envoy; empty if it is not.
func memoryHint(limit uint64, hotRestart bool) string {
	need := uint64(envoyMemory)
	why := ""
	if hotRestart {
		need *= 2
		why = ", because two run during a hot restart"
	}
	if limit >= need {
		return ""
	}
	return fmt.Sprintf("the memory limit of this container is %d MiB, but Envoy needs %d MiB at least%s; raise it, or the kernel will kill Envoy",
		limit>>20, need>>20, why)
}

// agentMemory is the memory that the agent needs, and Envoy besides its heap, in the same container, in bytes.
const agentMemory = 64 << 20

// noMemoryLimit is the lowest limit that control groups report where there is no limit.
const noMemoryLimit = 1 << 62

// heapLimit returns the size of Envoy's heap at which the memory limit of the container is reached; 0 if there is no limit, or one that is
// too low for Envoy anyhow.
func heapLimit(memory uint64) uint64 {
	if memory >= noMemoryLimit || memory < agentMemory+envoyMemory {
		return 0
	}
	return memory - agentMemory
}

// memoryLimit returns the memory limit of this process in bytes, as the control groups below a root directory say. Without a limit it is
// the largest number.
func memoryLimit(root string) uint64 {
	limit := uint64(math.MaxUint64)
	groups, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return limit
	}
	read := func(path string) {
		text, err := os.ReadFile(filepath.Join(root, "sys/fs/cgroup", path))
		if err != nil {
			return // another layout
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
			limit = min(limit, n)
		}
	}
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(fields) < 3:
		case fields[1] == "": // version 2; a container sees its own group as the root
			read(filepath.Join(fields[2], "memory.max"))
			read("memory.max")
		case fields[1] == "memory":
			read(filepath.Join("memory", fields[2], "memory.limit_in_bytes"))
			read("memory/memory.limit_in_bytes")
		}
	}
	return limit
}
