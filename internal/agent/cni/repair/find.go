package repair

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// errNoProcess means that no process of a pod runs at the moment, so that its network namespace cannot be entered.
var errNoProcess = errors.New("no process of the pod runs at present")

// find opens the network namespace of a pod by one of its processes. proc is where the file system proc of the host is mounted. The names of
// cgroups of a pod have its UID, with either - or _.
func find(proc, uid string) (*os.File, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("the processes of the host: %w", err)
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		groups, err := os.ReadFile(filepath.Join(proc, e.Name(), "cgroup"))
		if err != nil { // the process has ended
			continue
		}
		if text := string(groups); strings.Contains(text, uid) || strings.Contains(text, strings.ReplaceAll(uid, "-", "_")) {
			f, err := os.Open(filepath.Join(proc, e.Name(), "ns", "net"))
			if errors.Is(err, os.ErrPermission) {
				return nil, fmt.Errorf("the network namespace of the pod: %w; the host agent needs the capabilities SYS_PTRACE and SYS_ADMIN", err)
			}
			if err == nil {
				return f, nil
			}
		}
	}
	return nil, errNoProcess
}
