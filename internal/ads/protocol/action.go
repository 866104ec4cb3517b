package protocol

import (
	"time"

	"github.com/pilotmesh/pilot/internal/ads/protocol/reject"
	"github.com/pilotmesh/pilot/internal/ads/protocol/response"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Event is something that happened to a stream. Exactly one field besides At is set.
type Event struct {
	// At is the time of the event. The core has no other clock.
	At time.Time
	// Request is a request that the client sent.
	Request *Request
	// State is the class state that was published last.
	State *resource.State
	// Sent says that the shell has written the message of the last Send action.
	Sent bool
	// Lingered says that the time of the Linger action has passed.
	Lingered bool
	// Waited says that the time of the Wait action has passed.
	Waited bool
	// Denied are virtual hosts of a Want action that the client does not get: all streams of the client have as many as they may have.
	Denied []string
	// Answers belong to names that Want actions listed. A later answer to a name replaces an earlier one.
	Answers []Answer
}

// Kind says what the shell must do with an Action.
type Kind uint8

// The kinds of actions. The shell carries out Send, Connect, Close, Linger, Wait and Want; the others are reports.
const (
	// Send writes Message and then Nonce. The shell answers with Event.Sent; the core emits no other Send before that.
	Send Kind = iota
	// Connect passes on Node, the encoded node of the first request. The shell may publish states from now on.
	Connect
	// Close ends the stream. Refusal is the reason and Text explains it.
	Close
	// Acked says that the client acknowledged State for Type.
	Acked
	// Rejected says that the client sent a NACK for a response of Type. Text is the client's reason. If Type is answered
	// per proxy, Names are the resources of that response.
	Rejected
	// Recovered says that the client accepted new answers to Names of Type after it had rejected earlier ones.
	Recovered
	// Pinned says that the core holds back the content in Pins from this stream.
	Pinned
	// Expired says that a request of Type carried a stale nonce.
	Expired
	// Unknown says that a request asked for a type that the server does not serve. Text is its URL.
	Unknown
	// Linger starts a short timer that the shell answers with Event.Lingered. See linger.
	Linger
	// Wait starts a timer of length For that the shell answers with Event.Waited. Only one Wait runs at a time.
	Wait
	// Want says that the client subscribed to Names of Type and unsubscribed from Dropped. The shell answers with
	// Event.Answers, now and whenever an answer changes. Text is a trouble with what the client asks for; empty if there is none.
	Want
	// Health says that the agent of the client reports the health of its application. Healthy is that health, and Text says why it is not healthy.
	Health
	// Applied says that the agent of the client reports the resources that its Envoy has received and does not use yet: Warming, which is
	// empty if Envoy uses everything; and its draining connections: Draining. The report replaces the one before.
	Applied
)

// Refusal says why the server closes a stream.
type Refusal uint8

const (
	// Malformed means that the client broke the protocol.
	Malformed Refusal = iota
	// TooMuch means that the client asked for more than one stream may have.
	TooMuch
)

// String names the reason.
func (r Refusal) String() string {
	if r == TooMuch {
		return "TooMuch"
	}
	return "Malformed"
}

// Action is an instruction or a report to the shell. Kind says which fields are set.
type Action struct {
	Kind    Kind
	Type    resource.Type
	Message *response.Message
	Nonce   string
	Node    []byte
	Refusal Refusal
	Text    string
	State   *resource.State
	Pins    []reject.Pin
	For     time.Duration
	Names   []string
	Dropped []string
	Healthy bool
	Warming []Warming
	Draining
}
