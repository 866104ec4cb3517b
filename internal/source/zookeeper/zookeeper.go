// Package zookeeper reads services of ZooKeeper: interfaces of Dubbo, whose providers are nodes with a URL, and applications of Dubbo and
// Spring Cloud, whose instances are nodes that Curator writes.
//
// Invariants:
//   - Each node is watched before its content is used, and also if it does not exist yet. A node that vanishes is no error.
//   - A connection that was lost ends the session. The next one lists all again.
//   - A node that may not be read keeps its last content.
//
// Goroutines: the client's own, and some that read nodes. Run waits for them.
package zookeeper

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pilotmesh/pilot/internal/source/registries"
)

// parallel is how many nodes are read at once.
const parallel = 32

// dialTimeout is how long a connection may take, with its handshake.
const dialTimeout = 5 * time.Second

// reader reads one ZooKeeper.
type reader struct {
	entry  registries.Entry
	access registries.Access
	log    *slog.Logger
}

// New returns a reader of a ZooKeeper. It is a registries.Factory.
func New(e registries.Entry, a registries.Access, log *slog.Logger) (registries.Reader, error) {
	return &reader{entry: e, access: a, log: log}, nil
}

// Run implements registries.Reader.
func (r *reader) Run(ctx context.Context, to registries.Listener) {
	pause := registries.NewBackoff()
	m := newMirror(r.entry)
	for {
		next, err := r.session(ctx, to, m, pause)
		m = next
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, zk.ErrAuthFailed):
			to.Refused(fmt.Errorf("the server refuses the user in zkDigest: %w", err))
		default:
			to.Lost(err)
		}
		if !pause.Wait(ctx) {
			return
		}
	}
}

// quiet is a logger of the client that discards its messages: what matters is in errors.
type quiet struct{}

// Printf implements zk.Logger.
func (quiet) Printf(string, ...any) {}

// session connects, lists all and follows the changes until the connection is lost. was is the mirror of the session before. It returns the
// mirror that it has read itself.
func (r *reader) session(ctx context.Context, to registries.Listener, was *mirror, pause *registries.Backoff) (*mirror, error) {
	s := &session{changed: map[string]bool{}, wake: make(chan struct{}, 1), lost: make(chan error, 1), up: make(chan struct{}, 1)}
	conn, events, err := zk.Connect(r.entry.Addresses, r.entry.ZKSessionTimeout,
		zk.WithEventCallback(s.event), zk.WithLogInfo(false), zk.WithLogger(quiet{}), zk.WithDialer(r.dial))
	if err != nil {
		return was, err
	}
	defer func() {
		conn.Close()
		for range events { // it is closed when the goroutines of the client have ended
		}
	}()
	if err := s.connect(ctx, r.entry.ZKSessionTimeout); err != nil {
		return was, err
	}
	if digest := r.access.Auth[registries.ZKDigest]; digest != "" {
		if err := conn.AddAuth("digest", []byte(digest)); err != nil {
			return was, err
		}
	}
	m := newMirror(r.entry)
	m.inherit(was)
	touched := map[string]bool{}
	if err := r.read(ctx, conn, m, m.roots(), touched); err != nil {
		return was, err
	}
	to.Remark(m.remarks())
	to.List(m.services(touched), true)
	pause.Reset()
	return m, s.follow(ctx, func(paths []string) error {
		touched := map[string]bool{}
		var nodes []node
		for _, at := range paths {
			if n, ok := m.nodes[at]; ok {
				nodes = append(nodes, n)
			}
		}
		denied := len(m.denied)
		err := r.read(ctx, conn, m, nodes, touched)
		if len(m.denied) != denied {
			to.Remark(m.remarks())
		}
		if some := m.services(touched); len(some) > 0 && err == nil {
			to.Change(some)
		}
		return err
	})
}

// dial connects to a server, over TLS if the entry has it.
func (r *reader) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	d := &net.Dialer{Timeout: min(timeout, dialTimeout)}
	if r.access.TLS == nil {
		return d.Dial(network, address)
	}
	return (&tls.Dialer{NetDialer: d, Config: r.access.TLS}).DialContext(context.Background(), network, address)
}

// session is a connection of the client.
type session struct {
	mu      sync.Mutex
	changed map[string]bool // nodes whose watch has fired
	wake    chan struct{}
	up      chan struct{}
	lost    chan error
}

// event takes what the client reports. It must not block.
func (s *session) event(e zk.Event) {
	if e.Type != zk.EventSession {
		s.mu.Lock()
		s.changed[e.Path] = true
		s.mu.Unlock()
		signal(s.wake)
		return
	}
	switch e.State {
	case zk.StateHasSession:
		signal(s.up)
	case zk.StateDisconnected:
		s.lose(errors.New("the connection is lost"))
	case zk.StateExpired:
		s.lose(errors.New("the session has expired"))
	case zk.StateAuthFailed:
		s.lose(zk.ErrAuthFailed)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *session) lose(err error) {
	select {
	case s.lost <- err:
	default:
	}
}

// connect waits for the session.
func (s *session) connect(ctx context.Context, timeout time.Duration) error {
	timer := time.NewTimer(max(timeout, dialTimeout))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.up:
		return nil
	case err := <-s.lost:
		if errors.Is(err, zk.ErrAuthFailed) {
			return err
		}
		return errors.New("no server takes the connection")
	case <-timer.C:
		return errors.New("no server answers in time")
	}
}

// follow calls change with the nodes that have changed, until the connection is lost.
func (s *session) follow(ctx context.Context, change func(paths []string) error) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-s.lost:
			return err
		case <-s.wake:
		}
		s.mu.Lock()
		paths := slices.Sorted(maps.Keys(s.changed))
		clear(s.changed)
		s.mu.Unlock()
		if err := change(paths); err != nil {
			return err
		}
	}
}

// read reads nodes, and the nodes that follow from them, some at a time.
func (r *reader) read(ctx context.Context, conn *zk.Conn, m *mirror, nodes []node, touched map[string]bool) error {
	for len(nodes) > 0 {
		out, errs := make([]content, len(nodes)), make([]error, len(nodes))
		next := make(chan int, len(nodes))
		for i := range nodes {
			next <- i
		}
		close(next)
		var running sync.WaitGroup
		for range min(parallel, len(nodes)) {
			running.Go(func() {
				for i := range next {
					if ctx.Err() == nil {
						out[i], errs[i] = readNode(conn, nodes[i])
					}
				}
			})
		}
		running.Wait()
		if err := errors.Join(append(errs, ctx.Err())...); err != nil {
			return err
		}
		var more []node
		for i, n := range nodes {
			more = append(more, m.put(n, out[i], touched)...)
		}
		nodes = more
	}
	return nil
}

// readNode reads a node and watches it. If it does not exist, its creation is watched.
func readNode(conn *zk.Conn, n node) (is content, err error) {
	for range 10 {
		if n.role == member || n.role == metadata {
			is.data, _, _, err = conn.GetW(n.path)
		} else {
			is.children, _, _, err = conn.ChildrenW(n.path)
		}
		switch {
		case err == nil:
			is.exists = true
			return is, nil
		case errors.Is(err, zk.ErrNoAuth):
			return content{denied: true}, nil
		case !errors.Is(err, zk.ErrNoNode):
			return content{}, fmt.Errorf("%s: %w", n.path, err)
		}
		if n.role == member {
			return content{}, nil // its parent is watched
		}
		there, _, _, err := conn.ExistsW(n.path)
		switch {
		case errors.Is(err, zk.ErrNoAuth):
			return content{denied: true}, nil
		case err != nil:
			return content{}, fmt.Errorf("%s: %w", n.path, err)
		case !there:
			return content{}, nil
		}
	}
	return content{}, fmt.Errorf("%s: it comes and goes too fast to be read", n.path)
}
