package life

// State is where in its life an Envoy is.
type State uint8

// The states.
const (
	// Idle: nothing was started yet.
	Idle State = iota
	// Starting: the process runs and does not serve yet.
	Starting
	// Ready: it serves.
	Ready
	// Leaving: it serves, but asks clients to go elsewhere; the end is near, but has not been asked for.
	Leaving
	// BackingOff: it has crashed and will be started again.
	BackingOff
	// Checking: the end was asked for before it was seen to serve; it may do by now.
	Checking
	// Draining: the end was asked for; requests under way may finish.
	Draining
	// Exiting: the process was told to end.
	Exiting
	// Gone: it has ended for good.
	Gone

	states = iota
)

// String names the state.
func (s State) String() string {
	return [states]string{"idle", "starting", "ready", "leaving", "backing off", "checking", "draining", "exiting", "gone"}[s]
}

// input is what the machine makes of an event, given its counters.
type input uint8

const (
	begin   input = iota // Run was called
	up                   // it answers that it is ready
	down                 // it does not
	left                 // the process ended by itself, with success: somebody told it to
	crashed              // the process ended by itself, and will be made good
	spent                // the process ended by itself once too often, or cannot be started at all
	leave                // somebody asked for clients to be sent elsewhere
	end                  // somebody asked for the end
	alarm                // the timer of the state went off
	busy                 // there are connections
	quiet                // there are none, or nobody can tell

	inputs = iota
)

func (i input) String() string {
	return [inputs]string{"begin", "up", "down", "left", "crashed", "spent", "leave", "end", "alarm", "busy", "quiet"}[i]
}

// step is what a transition does. Steps that take time report by events.
type step uint8

const (
	doStart     step = iota // start a process
	doProbe                 // ask whether it is ready
	doWarn                  // ask it to send clients elsewhere and go on
	doDrain                 // ask it to send clients elsewhere, and to take no more in the end
	doCount                 // ask it for its connections
	doTerminate             // tell it to end
	doKill                  // end it

	// Each sets the one timer, which belongs to the state: a transition without any switches it off.
	setProbe
	setBackoff
	setDrain
	setLook
	setKill

	// Each is the verdict on the whole life.
	sayDone
	sayCrashed
	sayCutShort
)

// transition is one row: in a state, upon an input, go to a state and do something.
type transition struct {
	in   State
	upon input
	to   State
	do   []step
}

// table is the life of an Envoy. What does not stand here changes nothing: it came too late or too early (the test names
// all of it).
var table = []transition{
	{Idle, begin, Starting, []step{doStart, setProbe}},
	{Idle, end, Gone, []step{sayDone}},

	{Starting, alarm, Starting, []step{doProbe}},
	{Starting, down, Starting, []step{setProbe}},
	{Starting, up, Ready, nil},
	{Starting, left, Gone, []step{sayDone}},
	{Starting, crashed, BackingOff, []step{setBackoff}},
	{Starting, spent, Gone, []step{sayCrashed}},
	{Starting, end, Checking, []step{doProbe}},

	{Ready, left, Gone, []step{sayDone}},
	{Ready, crashed, BackingOff, []step{setBackoff}},
	{Ready, spent, Gone, []step{sayCrashed}},
	{Ready, leave, Leaving, []step{doWarn}},
	{Ready, end, Draining, []step{doDrain, setDrain}},

	{Leaving, left, Gone, []step{sayDone}},
	{Leaving, crashed, BackingOff, []step{setBackoff}},
	{Leaving, spent, Gone, []step{sayCrashed}},
	{Leaving, end, Draining, []step{setDrain}},

	{BackingOff, alarm, Starting, []step{doStart, setProbe}},
	{BackingOff, end, Gone, []step{sayDone}},

	{Checking, up, Draining, []step{doDrain, setDrain}},
	{Checking, down, Exiting, []step{doTerminate, setKill}}, // it serves nobody: nothing to wait for
	{Checking, left, Gone, []step{sayDone}},
	{Checking, crashed, Gone, []step{sayDone}},
	{Checking, spent, Gone, []step{sayDone}},
	{Checking, end, Exiting, []step{doKill, sayCutShort}},

	{Draining, alarm, Draining, []step{doCount}}, // only where the end of all connections is waited for
	{Draining, busy, Draining, []step{setLook}},
	{Draining, quiet, Exiting, []step{doTerminate, setKill}},
	{Draining, left, Gone, []step{sayDone}},
	{Draining, crashed, Gone, []step{sayDone}},
	{Draining, spent, Gone, []step{sayDone}},
	{Draining, end, Exiting, []step{doKill, sayCutShort}},

	{Exiting, left, Gone, []step{sayDone}},
	{Exiting, crashed, Gone, []step{sayDone}},
	{Exiting, spent, Gone, []step{sayDone}},
	{Exiting, alarm, Exiting, []step{doKill}},
	{Exiting, end, Exiting, []step{doKill, sayCutShort}},
}
