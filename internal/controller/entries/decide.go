package entries

import (
	"errors"
	"fmt"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/view/registration"
)

// ErrChanged means that an entry has changed between reading and writing it. The step is decided again.
var ErrChanged = errors.New("the entry has changed since it was read")

var errForeign = errors.New("there is a WorkloadEntry of this name that no control plane has made; rename it or the WorkloadGroup")

// Action is the kind of a step.
type Action uint8

// The actions.
const (
	Nothing Action = iota
	// Create makes the entry.
	Create
	// Adopt notes in the entry that its proxy is connected to this replica.
	Adopt
	// Disconnect notes that its proxy is connected to no replica.
	Disconnect
	// Delete deletes the entry.
	Delete
	// SetHealth writes the health of the workload to the status.
	SetHealth
	// Refuse does nothing, because the entry is not the control plane's.
	Refuse
)

// String names the action.
func (a Action) String() string {
	return [...]string{"nothing", "create", "adopt", "disconnect", "delete", "set health", "refuse"}[a]
}

// Step is the action to take on an entry, with its data.
type Step struct {
	Action Action
	// Entry is the content of the new entry, for Create.
	Entry *registration.Entry
	// Registered is the registration to write to the entry, for Create, Adopt and Disconnect.
	Registered state.Registered
	// Health is the health to write to its status, for SetHealth.
	Health connected.Health
	// At is when the entry must be looked at again if the action is Nothing; zero if that is not necessary.
	At time.Time
}

// circumstances has the inputs of a step besides the facts.
type circumstances struct {
	// Self names this replica, and Start is when it started.
	Self  string
	Start time.Time
	// Leading is since when this replica is the leader; zero if it is not. IsPod is true if it is a pod.
	Leading time.Time
	IsPod   bool
	Grace   time.Duration
	Orphan  time.Duration
	// Seen is since when this replica has seen the entry as the facts have it. Times that another replica has written are not compared
	// with Now, because the clocks of two machines may differ by more than the grace.
	Seen time.Time
	Now  time.Time
}

// nextStep returns the next step about an entry.
func nextStep(f registration.Facts, live Live, s circumstances) Step {
	connected := !f.Connected.IsZero()
	switch {
	case !live.Exists && f.Entry != nil:
		return Step{Action: Create, Entry: f.Entry, Registered: state.Registered{Group: f.Entry.Group.Name, Controller: s.Self, Connected: f.Connected}}
	case !live.Exists:
		return Step{}
	case live.Registered.Group == "" && f.Entry != nil:
		return Step{Action: Refuse}
	case live.Registered.Group == "":
		return Step{}
	case connected:
		return keep(f, live.Registered, s)
	}
	return leave(f, live.Registered, s)
}

// keep returns the next step about an entry whose proxy is connected to this replica.
func keep(f registration.Facts, is state.Registered, s circumstances) Step {
	mine := is.Controller == s.Self && is.Connected.Equal(f.Connected)
	switch {
	case f.Entry == nil:
		return Step{} // its group is missing now, which is no reason to take an endpoint away
	case is.Disconnected.IsZero() && is.Connected.After(f.Connected):
		return Step{} // the proxy has connected to another replica, and this one will notice
	case !mine || !is.Disconnected.IsZero():
		is.Controller, is.Connected, is.Disconnected = s.Self, f.Connected, time.Time{}
		return Step{Action: Adopt, Registered: is}
	case f.Health.State != connected.HealthUnknown && f.Health.State != is.Health:
		return Step{Action: SetHealth, Health: f.Health}
	}
	return Step{}
}

// leave returns the next step about an entry whose proxy is not connected to this replica.
func leave(f registration.Facts, is state.Registered, s circumstances) Step {
	own := is.Controller == s.Self
	leading := !s.Leading.IsZero()
	switch {
	case !is.Disconnected.IsZero() && own:
		return s.after(is.Disconnected.Add(s.Grace), Step{Action: Delete})
	case !is.Disconnected.IsZero() && leading && is.Disconnected.Equal(f.Registered.Disconnected):
		// Its replica deletes it first, if there is still one.
		return s.after(s.Seen.Add(2*s.Grace+s.Orphan), Step{Action: Delete})
	case !is.Disconnected.IsZero():
		return Step{}
	}
	is.Controller = s.Self
	gone := Step{Action: Disconnect, Registered: is}
	gone.Registered.Disconnected = s.Now.UTC()
	switch {
	case own && !is.Connected.Before(s.Start):
		return gone
	case own: // of this replica before its restart
		return s.after(s.Start.Add(s.Orphan), gone)
	case leading && s.IsPod && f.Gone:
		return s.after(s.Leading.Add(s.Orphan), gone)
	}
	return Step{}
}

// after returns a step if it is time for it, and otherwise when it will be.
func (s circumstances) after(at time.Time, step Step) Step {
	if s.Now.Before(at) {
		return Step{At: at}
	}
	return step
}

// reasonOf returns why an entry cannot be written; empty if it can, or may soon be.
func reasonOf(k api.Key, err error) string {
	if err == nil || errors.Is(err, ErrChanged) {
		return ""
	}
	return fmt.Sprintf("WorkloadEntry %s/%s cannot be written: %v", k.Namespace, k.Name, err)
}
