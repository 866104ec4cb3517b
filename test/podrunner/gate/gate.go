// Package gate cuts a node's connection to the API server on request: a node that is unreachable, for tests of what the
// rest of the cluster makes of it.
package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// ErrShut is what requests fail with that are under way when the gate is shut.
var ErrShut = errors.New("the node is cut off (a test asked for it)")

// Gate lets requests pass while it is open, as it is at first. While it is shut they get no answer, as from a network that
// is gone: they wait until it opens again, or until their callers lose patience.
type Gate struct {
	mu     sync.Mutex
	ctx    context.Context // ends when the gate is shut
	cancel context.CancelCauseFunc
	opened chan struct{} // closed when the gate opens
}

// New returns an open gate.
func New() *Gate {
	g := &Gate{opened: make(chan struct{})}
	g.ctx, g.cancel = context.WithCancelCause(context.Background())
	close(g.opened)
	return g
}

// Open lets requests pass again, including waiting ones.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() != nil {
		g.ctx, g.cancel = context.WithCancelCause(context.Background())
		close(g.opened)
	}
}

// Shut fails the requests that are under way, and holds others.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() == nil {
		g.cancel(ErrShut)
		g.opened = make(chan struct{})
	}
}

// pass waits until the gate is open and returns what ends when it is shut.
func (g *Gate) pass(ctx context.Context) (context.Context, error) {
	for {
		g.mu.Lock()
		open, opened := g.ctx, g.opened
		g.mu.Unlock()
		if open.Err() == nil {
			return open, nil
		}
		select {
		case <-opened:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrShut, context.Cause(ctx))
		}
	}
}

// IsShut reports whether requests are held.
func (g *Gate) IsShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ctx.Err() != nil
}

// Wrap puts the gate before a transport.
func (g *Gate) Wrap(next http.RoundTripper) http.RoundTripper { return &transport{g, next} }

type transport struct {
	gate *Gate
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	open, err := t.gate.pass(request.Context())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(request.Context())
	stop := context.AfterFunc(open, func() { cancel(ErrShut) })
	end := func() { stop(); cancel(nil) }
	response, err := t.next.RoundTrip(request.WithContext(ctx))
	if err != nil {
		end()
		return nil, err
	}
	response.Body = &body{response.Body, end}
	return response, nil
}

// body ends the request's context with the answer.
type body struct {
	io.ReadCloser
	end func()
}

func (b *body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
