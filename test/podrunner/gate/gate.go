// Package gate cuts a node's connection to the API server on request: a node that is unreachable, for tests of what the
// rest of the cluster makes of it.
package gate

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
)

// ErrShut is what requests fail with while the gate is shut.
var ErrShut = errors.New("the node is cut off (a test asked for it)")

// Gate lets requests pass while it is open, as it is at first.
type Gate struct {
	mu     sync.Mutex
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// New returns an open gate.
func New() *Gate {
	g := new(Gate)
	g.Open()
	return g
}

// Open lets requests pass again.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx == nil || g.ctx.Err() != nil {
		g.ctx, g.cancel = context.WithCancelCause(context.Background())
	}
}

// Shut fails all requests, also those under way.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cancel(ErrShut)
}

// IsShut says whether requests fail.
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
	t.gate.mu.Lock()
	open := t.gate.ctx
	t.gate.mu.Unlock()
	if open.Err() != nil {
		return nil, ErrShut
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
