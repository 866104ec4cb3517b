package main

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/ads/server"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/security/identity"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/xds/class"
	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/internal/xds/secret"
)

// sourceName is the one source of a plane.
const sourceName = "bench"

// plane is a control plane in this process: tables, graph, loop and, if it serves, streams. Objects come in as the
// batches a source would hand over: nothing is read from files or parsed.
type plane struct {
	loop *loop.Loop
	addr string // empty if it does not serve

	streams *server.Server // nil if it does not serve
	rpc     *grpc.Server
	cancel  context.CancelFunc
	group   sync.WaitGroup

	present map[api.Key]*api.Object // the present objects of the source

	mu      sync.Mutex
	commits []loop.Commit
	states  *stateLog     // who holds which states; nil if not recorded
	stall   time.Duration // the write timeout; 0: the server's default
	// caller is who all clients are; zero if they have not shown it. The plane has Secrets then.
	caller identity.Caller
}

// newPlane starts a control plane that has read the world.
func newPlane(w *world, options ...func(*plane)) (*plane, error) {
	tables := state.New(state.Options{Sources: []string{sourceName}})
	graph := query.New(tables.DB, query.Options{Workers: runtime.GOMAXPROCS(0)})
	p := &plane{present: make(map[api.Key]*api.Object)}
	for _, o := range options {
		o(p)
	}
	var providers []class.Provider
	if !p.caller.IsZero() {
		secrets := secret.Define(graph, tables, secret.Options{Folder: true})
		providers = append(providers, class.Provider{Type: resource.Secret, Find: secrets.Find, PullSecret: secrets.PullSecret})
	}
	p.loop = loop.New(tables, graph, class.Define(graph, tables, providers...), loop.Settings{Sources: []string{sourceName}, Observe: p.committed})
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	p.group.Go(func() { _ = p.loop.Run(ctx) }) // it ends with ctx, and only then
	p.apply(edit{set: w.all})
	select {
	case <-p.loop.Synced():
		return p, nil
	case <-time.After(patience):
		p.close()
		return nil, fmt.Errorf("the world of %d services was not committed within %v", w.services, patience)
	}
}

// serve starts a control plane with its streams.
func serve(w *world, settings ...func(*plane)) (*plane, error) {
	p, err := newPlane(w, settings...)
	if err != nil {
		return nil, err
	}
	var served server.Mesh = p.loop
	if p.states != nil {
		served = logged{p.loop, p.states}
	}
	options := server.Options{WriteTimeout: p.stall}
	if !p.caller.IsZero() {
		options.Admit = func(context.Context) (identity.Caller, error) { return p.caller, nil }
	}
	p.streams = server.New(served, options)
	p.rpc = grpc.NewServer(p.streams.GRPC()...)
	p.streams.Register(p.rpc)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.close()
		return nil, err
	}
	p.addr = listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	stop := p.cancel
	p.cancel = func() { cancel(); stop() }
	p.group.Go(func() { _ = p.streams.Run(ctx) })
	p.group.Go(func() { _ = p.rpc.Serve(listener) }) // it ends with Stop
	return p, nil
}

// close ends the control plane at once, as a crash would.
func (p *plane) close() {
	if p.rpc != nil {
		p.rpc.Stop()
	}
	p.cancel()
	p.group.Wait()
}

// logged is a server.Mesh that records, by namespace, the states that streams were given.
type logged struct {
	*loop.Loop
	states *stateLog
}

// Connect implements server.Mesh.
func (l logged) Connect(_ context.Context, n *corev3.Node, s *server.Stream) (server.Attachment, error) {
	parsed, err := proxy.Parse(proxy.Node{ID: n.GetId(), Metadata: n.GetMetadata()})
	if err != nil {
		return nil, err
	}
	return l.Attach(parsed, l.states.watch(parsed.Namespace, s))
}

func (p *plane) committed(c loop.Commit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.commits = append(p.commits, c)
}

// takeCommits returns the commits since the last call, once everything queued so far is committed.
func (p *plane) takeCommits() ([]loop.Commit, error) {
	for range 2 { // the loop speaks of a commit after all that was asked together with it was answered
		if err := p.inspect(func(*loop.View) {}); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.commits
	p.commits = nil
	return list, nil
}

func (p *plane) inspect(fn func(*loop.View)) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return p.loop.Inspect(ctx, fn)
}

// apply hands one change over.
func (p *plane) apply(e edit) {
	for _, o := range e.set {
		p.present[o.Key] = o
	}
	for _, k := range e.del {
		delete(p.present, k)
	}
	p.loop.Apply(source.Batch{Source: sourceName, Events: e.events(), Synced: true})
}

// observe hands new values of Kubernetes over.
func (p *plane) observe(values map[api.Key]kube.Value) {
	b := source.Batch{Source: sourceName, Synced: true}
	for k, v := range values {
		b.Events = append(b.Events, source.Event{Key: k, Value: v})
	}
	p.loop.Apply(b)
}

// rewritten is everything the source has, read again from a file with other line numbers.
func (p *plane) rewritten() (edit, error) {
	var e edit
	for _, o := range p.present {
		again := *o
		again.Spec = proto.Clone(o.Spec)
		again.Position = api.Position{File: "mesh.yaml", Line: o.Position.Line + 7}
		sealed, err := again.Seal()
		if err != nil {
			return edit{}, err
		}
		e.set = append(e.set, sealed)
	}
	return e, nil
}

// silentWatcher is the stand-in for a stream in a plane without streams.
type silentWatcher struct{ ready func() }

// Update takes a state and drops it.
func (w silentWatcher) Update(*resource.State) { w.ready() }

func (silentWatcher) Answer([]protocol.Answer) {}

// join connects one proxy without a stream in each of the namespaces and waits until their states are built.
func (p *plane) join(namespaces ...int) error {
	built := newLatch(len(namespaces))
	for _, n := range namespaces {
		parsed, err := proxy.Parse(proxy.Node{ID: node(n, 0, n).GetId(), Metadata: node(n, 0, n).GetMetadata()})
		if err != nil {
			return err
		}
		var once sync.Once
		if _, err := p.loop.Attach(parsed, silentWatcher{func() { once.Do(built.done) }}); err != nil {
			return err
		}
	}
	select {
	case <-built.open:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%d classes were not built within %v", len(namespaces), patience)
	}
}
