package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Event is what happened to a pod.
type Event interface{ event() }

type (
	// Changed brings the object as the API server has it now.
	Changed struct{ Pod *v1.Pod }
	// Removed says that the API server has no such pod any more: no status is needed.
	Removed struct{}
	// VolumesReady says that containers can be given their volumes.
	VolumesReady struct{}
	// SandboxUp brings the addresses of the pod.
	SandboxUp struct{ IPs []string }
	// SandboxFailed says why there is no sandbox; another is asked for later.
	SandboxFailed struct{ Message string }
	// SandboxDown says that nothing of the pod is left on the machine but its logs.
	SandboxDown struct{}
	// Started says that a container's program runs.
	Started struct {
		Container
		ID, Image, ImageID string
	}
	// StartFailed says why a container could not be made.
	StartFailed struct {
		Container
		Failure
	}
	// Exited says how a container ended.
	Exited struct {
		Container
		Code, Signal int
		OOM          bool
		Message      string
	}
	// Hooked says how a hook ended.
	Hooked struct {
		Container
		Hook Hook
		Err  string
	}
	// Probed is one result of a probe.
	Probed struct {
		Container
		Probe  Probe
		OK     bool
		Output string
	}
	// Retry says that something a container waits for may be there now.
	Retry struct{}
	// Due says that the time a Wake asked for has come.
	Due struct{}
)

func (Changed) event()       {}
func (Removed) event()       {}
func (VolumesReady) event()  {}
func (SandboxUp) event()     {}
func (SandboxFailed) event() {}
func (SandboxDown) event()   {}
func (Started) event()       {}
func (StartFailed) event()   {}
func (Exited) event()        {}
func (Hooked) event()        {}
func (Probed) event()        {}
func (Retry) event()         {}
func (Due) event()           {}

// Container is one life of a container. Events of an earlier life are ignored.
type Container struct {
	Name string
	Life int
}

// Hook is a handler of a container's life.
type Hook string

// The hooks.
const (
	PostStart Hook = "PostStart"
	PreStop   Hook = "PreStop"
)

// Probe is a question that is asked a container again and again.
type Probe string

// The probes.
const (
	Startup   Probe = "Startup"
	Liveness  Probe = "Liveness"
	Readiness Probe = "Readiness"
)

// Failure is why a container could not be made.
type Failure struct {
	Cause   Cause
	Message string
}

// Cause sorts failures by the kubelet's names for them, and by the possible remedy.
type Cause string

// The causes.
const (
	NoImage     Cause = "ErrImagePull"
	NeverImage  Cause = "ErrImageNeverPull"
	BadImage    Cause = "InvalidImageName"
	BadConfig   Cause = "CreateContainerConfigError" // a Secret that is not there, a user that may not be
	NotCreated  Cause = "CreateContainerError"
	NotRunnable Cause = "RunContainerError" // no such command: counts as a life
)

// Action is a step that the worker takes for a pod.
type Action interface{ action() }

type (
	// MountVolumes asks for the volumes until there is a VolumesReady.
	MountVolumes struct{}
	// MakeSandbox asks for namespaces and addresses.
	MakeSandbox struct{}
	// DropSandbox asks to remove namespaces, volumes and roots, and answers with SandboxDown.
	DropSandbox struct{}
	// Start asks for a container. The answer is Started or StartFailed.
	Start struct{ Container }
	// Stop asks a container to end, or, with Now, ends it.
	Stop struct {
		Container
		Now bool
	}
	// Run runs a hook, at most until then. The answer is Hooked.
	Run struct {
		Container
		Hook  Hook
		Until time.Time
	}
	// Ask begins a probe, Leave ends one.
	Ask struct {
		Container
		Probe Probe
	}
	// Leave ends a probe.
	Leave struct {
		Container
		Probe Probe
	}
	// Wake asks for a Due at that time, instead of any asked for before.
	Wake struct{ At time.Time }
	// Record makes an Event object.
	Record struct {
		Container string // whose it is; empty for the pod's
		Warning   bool
		Reason    string
		Message   string
	}
	// Finish asks to write the last status and, unless Forget, to delete the object. There are no actions after it.
	Finish struct{ Forget bool }
)

func (MountVolumes) action() {}
func (MakeSandbox) action()  {}
func (DropSandbox) action()  {}
func (Start) action()        {}
func (Stop) action()         {}
func (Run) action()          {}
func (Ask) action()          {}
func (Leave) action()        {}
func (Wake) action()         {}
func (Record) action()       {}
func (Finish) action()       {}
