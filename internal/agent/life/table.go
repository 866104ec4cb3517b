package life

// State is a state of the Machine.
type State uint8

// The states.
const (
	// Idle: no process was started yet.
	Idle State = iota
	// Starting: the process runs and is not ready yet.
	Starting
	// Ready: Envoy is ready.
	Ready
	// Replacing: another process was started with a changed configuration and is not ready yet. The present one serves.
	Replacing
	// Retiring: the new process serves. The old one completes its requests and exits.
	Retiring
	// Holding: the new process has failed, and the old one continues to serve. It has given up its admin interface for the new one, so it
	// cannot be queried. Another attempt follows, unless too many have failed.
	Holding
	// Leaving: Envoy serves but asks clients to use other endpoints. The end is expected but was not requested yet.
	Leaving
	// BackingOff: Envoy has crashed and will be restarted.
	BackingOff
	// Checking: the end was requested before Envoy was known to be ready. A probe checks whether it is ready by now.
	Checking
	// Draining: the end was requested, and running requests may complete.
	Draining
	// Exiting: the process was asked to exit, or killed.
	Exiting
	// Stopped: Envoy has exited and is not restarted.
	Stopped

	states = iota
)

// String returns the name of the state.
func (s State) String() string {
	return [states]string{"idle", "starting", "ready", "replacing", "retiring", "holding", "leaving", "backing off", "checking", "draining", "exiting", "stopped"}[s]
}

// input is the classification of an event, given the counters of the machine.
type input uint8

const (
	begin     input = iota // Run was called
	up                     // the probe found Envoy ready
	down                   // the probe found Envoy not ready
	exited                 // the process exited with success, because another process asked it to
	crashed                // the process failed and will be restarted
	exhausted              // the process failed and will not be restarted, because it failed too often or cannot be started
	leave                  // the caller asked to drain clients
	end                    // the caller asked to stop Envoy
	alarm                  // the timer of the state fired
	busy                   // there are connections
	drained                // there are no connections, or their number is unknown
	change                 // there is a configuration that Envoy does not run with
	late                   // the probe found the new process not ready, for too long
	failed                 // the new process ended before it was ready
	hopeless               // the same, and there is no other configuration to try
	gone                   // one of two processes ended, and the other one counts

	inputs = iota
)

func (i input) String() string {
	return [inputs]string{"begin", "up", "down", "exited", "crashed", "exhausted", "leave", "end", "alarm", "busy", "drained",
		"change", "late", "failed", "hopeless", "gone"}[i]
}

// step is a part of a transition. Steps that take time report their results by events.
type step uint8

const (
	doStart     step = iota // start a process
	doReplace               // start a process that takes the listeners over from the present one
	doProbe                 // check whether it is ready
	doWarn                  // ask clients to use other endpoints, and continue to listen
	doDrain                 // ask clients to use other endpoints, and stop listening at the end
	doCount                 // count the connections
	doTerminate             // ask all processes to exit
	doKill                  // kill all processes
	doKillNew               // kill the newer of two processes
	doKillOld               // kill the older of two processes, if there are two

	// Each of these sets the timer of the new state. A transition without one of them stops the timer.
	setProbe
	setWatch
	setRetire
	setBackoff
	setDrain
	setRecount
	setKill

	// Each of these sets the result of Run.
	resultDone
	resultCrashed
	resultAborted
)

// transition is one row of the table: in a state, upon an input, the machine goes to a state and performs steps.
type transition struct {
	in   State
	upon input
	to   State
	do   []step
}

// table is the complete state machine. An input that is not listed for a state has no effect, because it comes too late or too
// early; a test lists all of these.
var table = []transition{
	{Idle, begin, Starting, []step{doStart, setProbe}},
	{Idle, end, Stopped, []step{resultDone}},

	{Starting, alarm, Starting, []step{doProbe}},
	{Starting, down, Starting, []step{setProbe}},
	{Starting, up, Ready, []step{setWatch}},
	{Starting, exited, Stopped, []step{resultDone}},
	{Starting, crashed, BackingOff, []step{setBackoff}},
	{Starting, exhausted, Stopped, []step{resultCrashed}},
	{Starting, end, Checking, []step{doProbe}},

	{Ready, alarm, Ready, []step{doProbe}}, // nothing follows from the answer, but it is logged
	{Ready, up, Ready, []step{setWatch}},
	{Ready, down, Ready, []step{setWatch}},
	{Ready, exited, Stopped, []step{resultDone}},
	{Ready, crashed, BackingOff, []step{setBackoff}},
	{Ready, exhausted, Stopped, []step{resultCrashed}},
	{Ready, leave, Leaving, []step{doWarn}},
	{Ready, end, Draining, []step{doDrain, setDrain}},
	{Ready, change, Replacing, []step{doReplace, setProbe}},

	{Replacing, alarm, Replacing, []step{doProbe}},
	{Replacing, down, Replacing, []step{setProbe}},
	{Replacing, late, Replacing, []step{doKillNew}},
	{Replacing, up, Retiring, []step{setRetire}},
	{Replacing, failed, Holding, []step{setBackoff}},
	{Replacing, hopeless, Holding, nil},
	{Replacing, gone, Starting, []step{setProbe}}, // the old process has ended, so the new one is the only one
	{Replacing, end, Draining, []step{doDrain, setDrain}},

	{Holding, alarm, Replacing, []step{doReplace, setProbe}},
	{Holding, change, Replacing, []step{doReplace, setProbe}},
	{Holding, exited, Stopped, []step{resultDone}},
	{Holding, crashed, BackingOff, []step{setBackoff}},
	{Holding, exhausted, Stopped, []step{resultCrashed}},
	{Holding, end, Draining, []step{setDrain}},

	{Retiring, gone, Ready, []step{setWatch}},
	{Retiring, alarm, Retiring, []step{doKillOld}}, // the new process has not asked the old one to exit, or the old one hangs
	{Retiring, exited, Stopped, []step{doKillOld, resultDone}},
	{Retiring, crashed, BackingOff, []step{doKillOld, setBackoff}},
	{Retiring, exhausted, Stopped, []step{doKillOld, resultCrashed}},
	{Retiring, leave, Leaving, []step{doWarn}},
	{Retiring, end, Draining, []step{doDrain, setDrain}},

	{Leaving, exited, Stopped, []step{doKillOld, resultDone}},
	{Leaving, crashed, BackingOff, []step{doKillOld, setBackoff}},
	{Leaving, exhausted, Stopped, []step{doKillOld, resultCrashed}},
	{Leaving, end, Draining, []step{setDrain}},

	{BackingOff, alarm, Starting, []step{doStart, setProbe}},
	{BackingOff, end, Stopped, []step{resultDone}},

	{Checking, up, Draining, []step{doDrain, setDrain}},
	{Checking, down, Exiting, []step{doTerminate, setKill}}, // Envoy is not ready, so there are no requests to wait for
	{Checking, exited, Stopped, []step{resultDone}},
	{Checking, crashed, Stopped, []step{resultDone}},
	{Checking, exhausted, Stopped, []step{resultDone}},
	{Checking, end, Exiting, []step{doKill, resultAborted}},

	{Draining, alarm, Draining, []step{doCount}}, // only with Policy.UntilIdle
	{Draining, busy, Draining, []step{setRecount}},
	{Draining, drained, Exiting, []step{doTerminate, setKill}},
	{Draining, exited, Stopped, []step{resultDone}},
	{Draining, crashed, Stopped, []step{resultDone}},
	{Draining, exhausted, Stopped, []step{resultDone}},
	{Draining, end, Exiting, []step{doKill, resultAborted}},

	{Exiting, exited, Stopped, []step{resultDone}},
	{Exiting, crashed, Stopped, []step{resultDone}},
	{Exiting, exhausted, Stopped, []step{resultDone}},
	{Exiting, alarm, Exiting, []step{doKill}},
	{Exiting, end, Exiting, []step{doKill, resultAborted}},
}
