package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Answer is what a client does with a response.
type Answer uint8

// The answers. Hold is to send no answer, though the content is stored.
const (
	Ack Answer = iota
	Hold
	Nack
)

// Options say who a client is and how it behaves.
type Options struct {
	Address string
	Variant Variant
	Node    *corev3.Node
	Checker *Checker

	// Follow: assignments and routes are asked for as clusters and listeners name them, as Envoy does.
	Follow bool
	// Policy says how to answer a response; nil acknowledges.
	Policy func(*Response) Answer
	// Refuses makes a client that rejects responses for single resources, as Envoy does: the others it takes.
	Refuses func(*Resource) bool
	// EveryNode: every request carries the node, not only the first.
	EveryNode bool
	// Deaf clients never read what the server sends.
	Deaf bool
	// Dial and Call are handed to gRPC.
	Dial []grpc.DialOption
	Call []grpc.CallOption
}

// Client is one ADS stream and what its client knows.
type Client struct {
	Options
	// Log has every response processed, in order.
	Log []*Response
	// Faults are what the server did that it may never do.
	Faults []Fault

	cancel  context.CancelFunc
	conn    *grpc.ClientConn
	stream  grpc.ClientStream
	inbox   *inbox
	greeted bool // the node was sent
	nonces  map[string]bool
	types   [Types]typeState
	warming map[string]bool // clusters that changed and wait for their assignment
}

// typeState is what a client knows of one type.
type typeState struct {
	asked  bool
	legacy bool            // asked for by an empty first request, and no names were given since
	names  []string        // asked for now, maybe the star, in the order of asking
	now    map[string]bool // the same as a set
	ever   map[string]bool // asked for at some time, or said to be there from an earlier stream
	held   map[string]*Resource
	had    map[string]bool // held at some time

	nonce    string // of the last response
	accepted string // version of the last response that was acknowledged
}

// Open begins a stream. Nothing is sent on it yet.
func Open(ctx context.Context, o Options) (*Client, error) {
	dial := append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{}), grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30)),
	}, o.Dial...)
	conn, err := grpc.NewClient(o.Address, dial...)
	if err != nil {
		return nil, err
	}
	c := &Client{Options: o, conn: conn, inbox: newInbox(), nonces: map[string]bool{}, warming: map[string]bool{}}
	if c.Checker == nil {
		c.Checker = NewChecker()
	}
	for i := range c.types {
		c.types[i] = typeState{now: map[string]bool{}, ever: map[string]bool{}, held: map[string]*Resource{}, had: map[string]bool{}}
	}
	ctx, c.cancel = context.WithCancel(ctx)
	c.stream, err = conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, o.Variant.Method(), o.Call...)
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("opening a stream to %s: %w", o.Address, err)
	}
	if o.Deaf {
		close(c.inbox.done)
	} else {
		go c.receive()
	}
	return c, nil
}

// Close drops the stream and its connection.
func (c *Client) Close() {
	c.cancel()
	_ = c.conn.Close() // it is closed in any case
	if c.stream != nil {
		<-c.inbox.done
	}
}

// CloseSend ends the client's side of the stream only.
func (c *Client) CloseSend() error { return c.stream.CloseSend() }

func (c *Client) receive() {
	defer close(c.inbox.done)
	for {
		var raw []byte
		if err := c.stream.RecvMsg(&raw); err != nil {
			c.inbox.end(err)
			return
		}
		c.inbox.add(raw)
	}
}

// inbox is an unbounded queue between the receiving goroutine and the client's owner.
type inbox struct {
	wake chan struct{} // holds a token while there is something new
	done chan struct{} // closed when the receiving goroutine has ended

	mu   sync.Mutex
	list [][]byte
	err  error
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1), done: make(chan struct{})} }

func (b *inbox) add(raw []byte) {
	b.mu.Lock()
	b.list = append(b.list, raw)
	b.mu.Unlock()
	b.signal()
}

func (b *inbox) end(err error) {
	b.mu.Lock()
	b.err = err
	b.mu.Unlock()
	b.signal()
}

func (b *inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// take returns the next message, or the error the stream ended with; neither if there is nothing.
func (b *inbox) take() ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.list) > 0 {
		raw := b.list[0]
		b.list = b.list[1:]
		return raw, nil
	}
	return nil, b.err
}

// ErrEnded is what an error is that says that the server has ended the stream.
var ErrEnded = errors.New("the stream has ended")

// Next waits for the next response, takes it in and answers it.
func (c *Client) Next(ctx context.Context) (*Response, error) {
	for {
		raw, err := c.inbox.take()
		switch {
		case raw != nil:
			return c.take(raw)
		case err != nil:
			c.inbox.signal() // for the next call
			return nil, fmt.Errorf("%w: %w", ErrEnded, err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.inbox.wake:
		}
	}
}

// Poll processes the responses that have arrived already.
func (c *Client) Poll() error {
	for {
		raw, err := c.inbox.take()
		switch {
		case raw != nil:
			if _, err := c.take(raw); err != nil {
				return err
			}
		case err != nil:
			return fmt.Errorf("%w: %w", ErrEnded, err)
		default:
			return nil
		}
	}
}

// Await processes responses until the condition holds.
func (c *Client) Await(ctx context.Context, cond func() bool) error {
	for !cond() {
		if _, err := c.Next(ctx); err != nil {
			return err
		}
	}
	return nil
}

// End processes responses until the server ends the stream, and returns the error it ends with: io.EOF if there is none.
func (c *Client) End(ctx context.Context) (error, error) {
	for {
		_, err := c.Next(ctx)
		switch {
		case errors.Is(err, ErrEnded):
			c.inbox.mu.Lock()
			defer c.inbox.mu.Unlock()
			return c.inbox.err, nil
		case err != nil:
			return nil, err
		}
	}
}

// Send sends a request as it is, with the node if it is the first one and has none.
func (c *Client) Send(r Request) error {
	if (!c.greeted || c.EveryNode) && r.Node == nil {
		r.Node = c.Node
	}
	c.greeted = true
	raw, err := r.Encode(c.Variant)
	if err != nil {
		return err
	}
	return c.SendRaw(raw)
}

// SendRaw sends bytes as a message.
func (c *Client) SendRaw(raw []byte) error {
	err := c.stream.SendMsg(raw)
	if errors.Is(err, io.EOF) { // the reason is for the receiver
		return fmt.Errorf("sending: %w", ErrEnded)
	}
	return err
}

// Held is what the client has of a type, by name.
func (c *Client) Held(t Type) map[string]*Resource { return c.types[t].held }

// Get is one resource the client has, nil if it does not have it.
func (c *Client) Get(t Type, name string) *Resource { return c.types[t].held[name] }

// Names lists what the client has of a type.
func (c *Client) Names(t Type) []string { return slices.Sorted(maps.Keys(c.types[t].held)) }

// Asked lists the names asked for; asked is false if the type was not asked for yet.
func (c *Client) Asked(t Type) (names []string, asked bool) {
	return slices.Clone(c.types[t].names), c.types[t].asked
}

// Covers reports whether the subscription covers a name: it is asked for, or everything is.
func (c *Client) Covers(t Type, name string) bool {
	s := &c.types[t]
	return s.now[name] || t.Wildcard() && s.asked && (s.now[Star] || s.legacy)
}

// Versions are the versions of what the client has of a type.
func (c *Client) Versions(t Type) map[string]string {
	v := map[string]string{}
	for n, r := range c.types[t].held {
		v[n] = r.Version
	}
	return v
}

// Accepted is the version_info the client acknowledged last (State-of-the-World).
func (c *Client) Accepted(t Type) string { return c.types[t].accepted }

// Nonce is the nonce of the last response of a type.
func (c *Client) Nonce(t Type) string { return c.types[t].nonce }
