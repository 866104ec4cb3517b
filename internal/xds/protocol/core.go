package protocol

import (
	"strconv"
	"time"

	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/store"
	"github.com/pilotmesh/pilot/internal/xds/request"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Variant is one of the two protocol variants of ADS.
type Variant = request.Variant

// The variants.
const (
	StateOfTheWorld = request.StateOfTheWorld
	Delta           = request.Delta
)

// Request is a scanned request.
type Request = request.Request

// Shared is what streams have in common: interned subscriptions, and the results of moves and of pinning while
// several streams stand at the same point. It is safe for concurrent use.
type Shared struct {
	controlPlane  string
	subscriptions *subscriptions
	moves         *memo[moveKey, *transition]
	pinned        *memo[pinnedKey, *resource.State]
	pending       *memo[pendingKey, *pending]
	resumed       *memo[resumeKey, resumption]
}

// NewShared returns what the streams of one server share. controlPlane is the identifier put into responses.
func NewShared(controlPlane string) *Shared {
	return &Shared{
		controlPlane:  controlPlane,
		subscriptions: newSubscriptions(),
		moves:         newMemo[moveKey, *transition](512),
		pinned:        newMemo[pinnedKey, *resource.State](256),
		pending:       newMemo[pendingKey, *pending](256),
		resumed:       newMemo[resumeKey, resumption](256),
	}
}

// Forget drops what was not asked for since the last call but one. It is to be called every second or so: results
// hold old states alive.
func (s *Shared) Forget() {
	s.subscriptions.forget()
	s.moves.forget()
	s.pinned.forget()
	s.pending.forget()
	s.resumed.forget()
}

// Event is something that happened to a stream: exactly one field beside At is set.
type Event struct {
	// At is when it happened. The core has no other clock.
	At      time.Time
	Request *Request
	State   *resource.State
	// Sent: the message of the last Send action was written.
	Sent bool
	// Lingered: some time has passed since the Linger action.
	Lingered bool
	// Waited: the time of the Wait action has passed.
	Waited bool
	// Answers to what Want actions asked for; a later one to the same name replaces an earlier one.
	Answers []Answer
}

// Kind says what an Action asks for.
type Kind uint8

// The kinds of actions. Send, Connect and Close are to be carried out; the others are reports.
const (
	Send     Kind = iota // write Message, then Nonce; answer with Event.Sent. No other Send comes before that
	Connect              // Node is the encoded node of the first request; states may be published from now on
	Close                // end the stream for the reason Refusal; Text explains it
	Acked                // the client acknowledged State for Type
	Rejected             // the client refused a response of Type; Text is its reason, Names what it was about if Type is answered proxy by proxy
	Cleared              // the client accepted new answers to Names of Type, of which it had refused earlier ones
	Pinned               // Pins were added: this content is held back from the stream
	Expired              // a request of Type carried a nonce that is not the last one
	Unknown              // a request for a type that is not served
	Linger               // answer with Event.Lingered after a moment
	Wait                 // answer with Event.Waited after For. No other Wait comes before that
	Want                 // the client asks for Names of Type, and no longer for Dropped; answer with Event.Answers, now and on each change
)

// Refusal says why a stream is closed.
type Refusal uint8

// The reasons.
const (
	// Malformed: the client broke the protocol.
	Malformed Refusal = iota
	// TooMuch: the client asked for more than one stream may have.
	TooMuch
)

// String names the reason.
func (r Refusal) String() string {
	if r == TooMuch {
		return "TooMuch"
	}
	return "Malformed"
}

// Action is what the shell is asked to do.
type Action struct {
	Kind    Kind
	Type    resource.Type
	Message *Message
	Nonce   string
	Node    []byte
	Refusal Refusal
	Text    string
	State   *resource.State
	Pins    []Pin
	For     time.Duration
	Names   []string
	Dropped []string
}

// point is a state and its place in the order in which the stream came to know states. Content may return, so a
// state alone does not say whether it is older or newer.
type point struct {
	state *resource.State
	seq   uint64
	// partial: the state is what a client said it has of one type; it says nothing about the others.
	partial bool
}

// cursor is where a stream stands in one type.
type cursor struct {
	sub    *subscription // nil: the client has not asked for the type
	digest omap.Hash     // of the last list of names (State-of-the-World)
	named  bool          // names were given once: an empty list is no wildcard any more

	at        point     // what the client has, as far as it was sent
	owed      resources // no longer in that state, but not taken away from the client yet
	owedSince uint64
	clusters  *resource.State // assignments only: the cluster state they were computed against
	held      omap.Hash       // the sum over what the client holds, under heldSub (State-of-the-World)
	heldSub   *subscription

	// What a request asked for and no response has answered.
	forced names
	doubt  names // of these, those of which nobody knows what the client has
	all    bool
	first  bool
	resume *Request // its initial_resource_versions wait for the first state

	flight  *flight
	nonce   uint64 // of the last response
	refused string // the reason of the last NACK, until the next ACK
	strikes int    // NACKs since the last ACK
	failed  int    // NACKs that did not say what is bad, since the content changed last
	trials  []trial
	// accepted: a response was acknowledged since the last trial began.
	accepted bool
	tried    []pinKey // by it
}

// cursorPlace is the part of a cursor that a rejected response takes back.
type cursorPlace struct {
	at        point
	owed      resources
	owedSince uint64
	clusters  *resource.State
	held      omap.Hash
	heldSub   *subscription
}

func (c *cursor) place() cursorPlace {
	return cursorPlace{c.at, c.owed, c.owedSince, c.clusters, c.held, c.heldSub}
}

func (c *cursor) restore(p cursorPlace) {
	c.at, c.owed, c.owedSince, c.clusters, c.held, c.heldSub = p.at, p.owed, p.owedSince, p.clusters, p.held, p.heldSub
}

// acked is the last state the client acknowledged.
func (c *cursor) acked() point {
	if c.flight != nil {
		return c.flight.before().at
	}
	return c.at
}

// requested reports whether a request waits for an answer.
func (c *cursor) requested() bool { return c.first || c.all || c.forced.Len() > 0 }

// Core is the protocol state of one stream. It is not safe for concurrent use.
type Core struct {
	shared    *Shared
	variant   Variant
	connected bool
	closed    bool
	busy      bool    // a message is being written
	writing   *cursor // of the type whose message that is; nil for a type that is answered proxy by proxy
	waiting   bool    // a Wait is running

	clock  int64 // when the last event happened, in nanoseconds
	waited int64 // when the last Wait ended: how long acknowledgements have stayed away is judged then
	// endpointsAsked is when the client asked for assignments first.
	endpointsAsked int64
	due            int64 // until when something is held back by an acknowledgement; 0: nothing is

	now     point // the state published last
	view    point // now as this stream may see it: with its pins
	cleared point // the state with the clusters that listeners and routes may refer to
	// crossing is the last nonce of endpoints when clusters were acknowledged last (State-of-the-World).
	crossing uint64
	pins     *pinSet
	masked   maskedView // what pinning made of now
	pending  *pending   // how far listeners and routes may go while clusters are not acknowledged; nil if they all are

	cursors [resource.Types]cursor
	wants   *wants // nil: nothing was asked for by name
	nonces  uint64
	linger  linger
}

// linger is about a client that came back: its next requests, on their way already, will say which routes it has, and
// those are replaced before clusters that are gone are taken away. Only time can tell that it has no routes.
type linger uint8

const (
	unneeded linger = iota
	wanted
	running
	over
)

// NewCore returns the core of a new stream.
func NewCore(shared *Shared, variant Variant) *Core {
	return &Core{shared: shared, variant: variant}
}

// Step takes one event and appends what is to be done about it.
func (c *Core) Step(e Event, out []Action) []Action {
	if c.closed {
		return out
	}
	if !e.At.IsZero() {
		c.clock = e.At.UnixNano()
	}
	switch {
	case e.Request != nil:
		out = c.request(e.Request, out)
	case e.State != nil:
		c.publish(e.State)
	case e.Sent:
		c.sent()
	case e.Lingered:
		c.linger = over
	case e.Waited:
		c.waiting, c.waited = false, c.clock
	case e.Answers != nil:
		c.wants.take(e.Answers)
	}
	if c.closed {
		return out
	}
	if c.linger == wanted {
		c.linger = running
		out = append(out, Action{Kind: Linger})
	}
	return c.next(out)
}

func (c *Core) publish(s *resource.State) {
	if s == c.now.state {
		return
	}
	initial := c.now.state == nil
	for t := range c.cursors {
		if !s.Types[t].Same(c.now.state.Layers(resource.Type(t))) {
			// What was rejected too often gets another chance.
			cur := &c.cursors[t]
			cur.strikes, cur.failed = min(cur.strikes, maxStrikes-1), 0
		}
	}
	c.now = point{state: s, seq: c.now.seq + 1}
	c.look()
	if !initial {
		return
	}
	for t := range c.cursors {
		if q := c.cursors[t].resume; q != nil {
			c.resume(resource.Type(t), q)
		}
	}
}

// look takes the view anew, after a new state or a new pin.
func (c *Core) look() {
	c.view = c.mask(c.now)
}

func (c *Core) close(why Refusal, text string, out []Action) []Action {
	c.closed = true
	return append(out, Action{Kind: Close, Refusal: why, Text: text})
}

// nonceSuffix keeps the nonces of the types apart.
const nonceSuffix = "celrxs"

// formatNonce makes the n-th nonce of the stream, for type t.
func formatNonce(n uint64, t resource.Type) string {
	b := strconv.AppendUint(make([]byte, 0, 8), n, 10)
	return string(append(b, nonceSuffix[t]))
}

// parseNonce is 0 for everything that is not a nonce for t.
func parseNonce(b []byte, t resource.Type) uint64 {
	if len(b) < 2 || b[len(b)-1] != nonceSuffix[t] || b[0] < '1' || b[0] > '9' {
		return 0
	}
	n, err := strconv.ParseUint(string(b[:len(b)-1]), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Settled is the revision up to which the client has acknowledged everything it asked for; ok is false if it has not
// asked for anything or has no state yet.
func (c *Core) Settled() (rev store.Revision, ok bool) {
	for i := range c.cursors {
		cur := &c.cursors[i]
		if cur.sub == nil {
			continue
		}
		at := cur.acked().state
		if at == nil {
			return 0, false
		}
		if !ok || at.Revision < rev {
			rev, ok = at.Revision, true
		}
	}
	return rev, ok
}
