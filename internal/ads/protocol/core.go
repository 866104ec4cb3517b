package protocol

import (
	"strconv"

	"github.com/pilotmesh/pilot/internal/ads/protocol/claim"
	"github.com/pilotmesh/pilot/internal/ads/protocol/hold"
	"github.com/pilotmesh/pilot/internal/ads/protocol/memo"
	"github.com/pilotmesh/pilot/internal/ads/protocol/overlay"
	"github.com/pilotmesh/pilot/internal/ads/protocol/reject"
	"github.com/pilotmesh/pilot/internal/ads/protocol/subscribe"
	"github.com/pilotmesh/pilot/internal/ads/protocol/transition"
	"github.com/pilotmesh/pilot/internal/ads/request"
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

// Warming are resources that a client does not use yet.
type Warming = request.Warming

// Draining counts what a client drains.
type Draining = request.Draining

// Shared is what the streams of a server have in common: interned subscriptions, and the results of moves and of pinning
// while several streams have the same position. It is safe for concurrent use.
type Shared struct {
	controlPlane  string
	subscriptions *subscribe.Shared
	moves         *memo.Memo[transition.Key, *transition.Result]
	pinned        *memo.Memo[overlay.Key, *resource.State]
	pending       *memo.Memo[hold.Key, *hold.Pending]
	resumed       *memo.Memo[claim.Key, claim.Comparison]
	hidden        *memo.Memo[hiddenKey, *resource.State]
}

// NewShared returns what the streams of one server share. controlPlane is the identifier in responses.
func NewShared(controlPlane string) *Shared {
	return &Shared{
		controlPlane:  controlPlane,
		subscriptions: subscribe.New(),
		moves:         memo.New[transition.Key, *transition.Result](512),
		pinned:        memo.New[overlay.Key, *resource.State](256),
		pending:       memo.New[hold.Key, *hold.Pending](256),
		resumed:       memo.New[claim.Key, claim.Comparison](256),
		hidden:        memo.New[hiddenKey, *resource.State](256),
	}
}

// Forget drops results that no stream has used since the call before the last one. The caller must call it about every
// second, because results keep old states in memory.
func (s *Shared) Forget() {
	s.subscriptions.Forget()
	s.moves.Forget()
	s.pinned.Forget()
	s.pending.Forget()
	s.resumed.Forget()
	s.hidden.Forget()
}

// Core is the protocol state of one stream. It is not safe for concurrent use.
type Core struct {
	shared  *Shared
	variant Variant
	// connected is set when the first request, which carries the node, has arrived.
	connected bool
	// closed is set when the core has closed the stream. It ignores all events after that.
	closed  bool
	sending sending
	timer   timer
	linger  linger
	// published is the state that was published last.
	published point
	// view is the published state as this stream may see it: pins replace content that the client rejected.
	view    point
	pinning pinning
	bound   clusterBound

	cursors [resource.Types]cursor
	split   split
	demand  demand
	// wants holds the types that are answered per proxy; nil until the client asks for one of them.
	wants *wants
	// lastNonce is the number of the last response of any type; 0 before the first one.
	lastNonce uint64
}

// sending is the message that the shell is writing.
type sending struct {
	// active is set from the Send action until Event.Sent.
	active bool
	// cursor belongs to the type of the message; nil if that type is answered per proxy, or if no message is active.
	cursor *cursor
}

// pinning is what the client rejected and what its stream shows instead.
type pinning struct {
	// pins is nil if nothing is pinned.
	pins *reject.Set
	// last is the result for the last state, so that the same input gives the same pointer.
	last pinnedView
}

// clusterBound limits the clusters that listeners and routes may refer to.
type clusterBound struct {
	// usable is the state whose clusters listeners and routes may refer to. Its state is nil until there is one.
	usable point
	// edsNonceAtCDSAck is the EDS nonce at the time of the last CDS acknowledgement. It is used by State-of-the-World only.
	edsNonceAtCDSAck uint64
	// edsRequested is when the client first asked for assignments, in Unix nanoseconds; 0 before that.
	edsRequested int64
	// pending is the last result of pendingAt; nil if all clusters are acknowledged.
	pending *hold.Pending
}

// linger is the state of a short delay after a client reconnects with initial_resource_versions. Requests that are
// already on their way may say which routes the client has. These routes must be replaced before clusters are removed,
// and only time can show that the client has none.
type linger uint8

const (
	lingerUnneeded linger = iota
	lingerDue
	lingerRunning
	lingerOver
)

// NewCore returns the core of a new stream.
func NewCore(shared *Shared, variant Variant) *Core {
	return &Core{shared: shared, variant: variant}
}

// Step processes one event and appends the actions that follow from it to out.
func (c *Core) Step(e Event, out []Action) []Action {
	if c.closed {
		return out
	}
	if !e.At.IsZero() {
		c.timer.now = e.At.UnixNano()
	}
	switch {
	case e.Request != nil:
		out = c.request(e.Request, out)
	case e.State != nil:
		c.publish(e.State)
	case e.Sent:
		c.finishWrite()
	case e.Lingered:
		c.linger = lingerOver
	case e.Waited:
		c.timer.running, c.timer.fired = false, c.timer.now
	case e.Denied != nil:
		c.denyHosts(e.Denied)
	case e.Answers != nil:
		c.wants.addAnswers(e.Answers)
		c.demandClusters(e.Answers)
	}
	if c.closed {
		return out
	}
	if c.linger == lingerDue {
		c.linger = lingerRunning
		out = append(out, Action{Kind: Linger})
	}
	return c.next(out)
}

// publish makes a state the one that the client is to have.
func (c *Core) publish(s *resource.State) {
	if s == c.published.state {
		return
	}
	initial := c.published.state == nil
	for t := range c.cursors {
		if !s.Types[t].Same(c.published.state.Layers(resource.Type(t))) {
			c.cursors[t].rejections.ContentChanged()
		}
	}
	c.published = point{state: s, seq: c.published.seq + 1}
	c.updateView()
	c.widenClusters()
	if !initial {
		return
	}
	for t := range c.cursors {
		if q := c.cursors[t].open.resume; q != nil && !(t == int(resource.Route) && c.awaitsHostVersions()) {
			c.resume(resource.Type(t), q)
		}
	}
}

// updateView computes the view again. It must be called after a change of the published state, of the pins, or of what
// pinning depends on.
func (c *Core) updateView() {
	c.view = c.withPins(c.published)
}

// renumber gives the published state a new order number: a view under other pins counts as a new state.
func (c *Core) renumber() { c.published.seq++ }

func (c *Core) close(why Refusal, text string, out []Action) []Action {
	c.closed = true
	return append(out, Action{Kind: Close, Refusal: why, Text: text})
}

// nonceSuffix has one letter per type, so that nonces of different types differ.
const nonceSuffix = "celrnbxsv"

// formatNonce returns the nonce of the n-th response of the stream, which is of type t.
func formatNonce(n uint64, t resource.Type) string {
	b := strconv.AppendUint(make([]byte, 0, 8), n, 10)
	return string(append(b, nonceSuffix[t]))
}

// parseNonce returns the number of a nonce for t, or 0 for everything else.
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
