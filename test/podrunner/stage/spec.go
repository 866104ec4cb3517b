// Package stage is what happens in a process between its birth in new namespaces and the container's own program: mounts,
// the new root, identity and capabilities, exec. It runs in cmd/podrunner-init, a program of a few hundred kilobytes, so
// that starting a container does not load the test binary again.
//
// The parent decides everything and opens everything: what arrives here is a Spec and open file descriptors, among them
// mounts that hang nowhere yet. No path of the machine is looked up here, so no symbolic link in a volume can lead
// astray. The stage has one goroutine, on one thread, because identity and capabilities belong to threads.
package stage

import (
	"encoding/json"
	"fmt"
	"io"
)

// Descriptors that every stage is started with, after standard input, output and error.
const (
	SpecFD   = 3 // a Spec as JSON, to its end
	StatusFD = 4 // a StartError as JSON; closed unwritten once the program runs
	FirstFD  = 5 // the first of the descriptors that the Spec numbers
)

// Spec says what the process becomes.
type Spec struct {
	// Join is true for a process inside a container that runs already and has its root and mounts.
	Join bool `json:"join,omitempty"`
	// Root is the descriptor of the mount that becomes "/", and Base a directory of the machine to mount it on until then.
	Root int    `json:"root,omitempty"`
	Base string `json:"base,omitempty"`
	// ReadOnlyRoot forbids writing to the root, but not to the mounts on it.
	ReadOnlyRoot bool `json:"readOnlyRoot,omitempty"`
	// Privileged containers may write to /proc/sys and /sys.
	Privileged bool `json:"privileged,omitempty"`
	// HostDevices shows the machine's /dev instead of a small one.
	HostDevices bool    `json:"hostDevices,omitempty"`
	Mounts      []Mount `json:"mounts,omitempty"`

	Args []string `json:"args"`
	Env  []string `json:"env,omitempty"`
	Dir  string   `json:"dir,omitempty"`
	// Terminal makes standard input the controlling terminal.
	Terminal bool `json:"terminal,omitempty"`

	User         int    `json:"user"`
	Group        int    `json:"group"`
	Groups       []int  `json:"groups,omitempty"`
	Capabilities uint64 `json:"capabilities"` // bit n is capability n
	NoNewPrivs   bool   `json:"noNewPrivs,omitempty"`
	// DieWithParent has the kernel kill the process when the parent's thread ends.
	DieWithParent bool `json:"dieWithParent,omitempty"`
}

// Mount is a mount without a place, and the place it shall get.
type Mount struct {
	FD     int    `json:"fd"`
	Target string `json:"target"`
	File   bool   `json:"file,omitempty"` // the mount is not a directory
}

// StartError is why the program could not be run.
type StartError struct {
	// Command is true when the container is fine but its command is not: there is none of that name, or it is no program.
	Command bool   `json:"command,omitempty"`
	Message string `json:"message"`
}

func (f *StartError) Error() string { return f.Message }

// ReadStatus reads the stage's end of the story: nil when the program runs.
func ReadStatus(r io.Reader) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("read the stage's status: %w", err)
	}
	if len(text) == 0 {
		return nil
	}
	failure := new(StartError)
	if err := json.Unmarshal(text, failure); err != nil {
		return fmt.Errorf("read the stage's status %q: %w", text, err)
	}
	return failure
}
