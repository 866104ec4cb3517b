package main

import (
	"context"
	"log/slog"
	"runtime"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/pilotmesh/pilot/internal/admin"
	"github.com/pilotmesh/pilot/internal/config"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/source/file"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/xds/class"
	"github.com/pilotmesh/pilot/internal/xds/push"
	"github.com/pilotmesh/pilot/internal/xds/server"
)

// drain is how long running requests for pages may take when the program stops.
const drain = time.Second

// wire creates the parts of the control plane and adds them in the order in which they start: HTTP pages, the push loop, the
// sources, and xDS once the sources have listed everything and the result is committed. They stop in reverse order.
func wire(s *config.Settings, log *slog.Logger) *run.Group {
	sources := []source.Source{file.New(file.Options{Dir: s.ConfigDir, MeshConfig: s.MeshConfig, Log: log})}
	names := make([]string, len(sources))
	for i, one := range sources {
		names[i] = one.Name()
	}

	// Metrics, log and pages.
	build := run.ReadBuild()
	metrics, commits, board, ready := admin.NewMetrics(build), new(admin.Commits), admin.NewBoard(), new(admin.Readiness)
	committed := make(chan struct{}, 1)
	log.Info("starting", "version", build.Version, "revision", build.Revision, "config_dir", s.ConfigDir,
		"mesh_config", s.MeshConfig, "http_addr", s.HTTPAddr, "monitoring_addr", s.MonitoringAddr, "grpc_addr", s.GRPCAddr)

	// The state, and the loop that owns it.
	tables := state.New(state.Options{Domain: s.Domain, ClusterID: s.ClusterID, Sources: names})
	graph := query.New(tables.DB, query.Options{Workers: workers(s)})
	loop := push.New(tables, graph, class.Define(graph, tables), push.Settings{
		Sources: names, MinInterval: s.MinCommitInterval, Log: log,
		Observe: func(c push.Commit) {
			metrics.Commit(c)
			commits.Observe(c)
			logCommit(log, c)
			select {
			case committed <- struct{}{}:
			default: // the previous commit is still being processed; that will include this one
			}
		},
	})

	xds := server.New(loop, server.Options{
		ControlPlane: "pilot-discovery " + build.Version, WriteTimeout: s.WriteTimeout, MaxReceive: s.MaxRecvMsgSize,
		Observer: metrics, Log: log,
	})
	pages := admin.New(admin.Options{
		Build: build, Mesh: loop, Streams: xds, Ready: ready, Metrics: metrics, Commits: commits, Board: board,
		Profile: s.Profile, Remote: s.DebugRemote, Log: log,
	})
	metrics.Watch(loop, xds, board)

	g := run.New(log, s.ShutdownDuration)
	addPages(g, s, pages, log)
	g.Add(run.Actor{Name: "loop", Run: loop.Run})
	g.Add(run.Actor{Name: "problems", Run: func(ctx context.Context) error {
		return board.Follow(ctx, loop, committed, func(news []admin.Problem) { logProblems(log, news) })
	}})
	for _, one := range sources {
		addSource(g, one, metrics.Counting(loop), ready)
	}
	g.Add(run.Actor{Name: "first commit", Ready: loop.Synced(), Run: wait})
	g.Add(run.Actor{Name: "streams", Run: xds.Run})
	serving := ready.Missing("proxies cannot connect yet")
	if s.GRPCAddr != "" {
		g.Add(run.ListenGRPC("xDS (--grpcAddr)", s.GRPCAddr, grpcServer(xds, s), xds.Drain, s.ShutdownDuration/2))
	}
	g.Add(run.Actor{Name: "ready", Run: func(ctx context.Context) error {
		serving()
		log.Info("ready", "grpc_addr", s.GRPCAddr)
		<-ctx.Done()
		ready.Missing("the control plane is stopping")
		return nil
	}})
	return g
}

// addPages adds the listeners of the HTTP pages that have an address.
func addPages(g *run.Group, s *config.Settings, pages *admin.Pages, log *slog.Logger) {
	if s.HTTPAddr != "" {
		g.Add(run.ListenHTTP("pages (--httpAddr)", s.HTTPAddr, pages.Handler(), drain, log))
	}
	if s.MonitoringAddr != "" {
		g.Add(run.ListenHTTP("pages (--monitoringAddr)", s.MonitoringAddr, pages.Handler(), drain, log))
	}
}

// addSource adds a source, without which the program is not ready.
func addSource(g *run.Group, one source.Source, sink source.Sink, ready *admin.Readiness) {
	listed := ready.Missing("source " + one.Name() + " has not been read")
	g.Add(run.Actor{Name: "source " + one.Name(), Run: func(ctx context.Context) error {
		return one.Run(ctx, listing{sink, listed})
	}})
}

// grpcServer returns the xDS server without TLS.
func grpcServer(xds *server.Server, s *config.Settings) *grpc.Server {
	g := grpc.NewServer(append(xds.GRPC(), grpc.KeepaliveParams(keepalive.ServerParameters{
		Time: s.KeepaliveInterval, Timeout: s.KeepaliveTimeout,
		MaxConnectionAge: s.KeepaliveMaxServerConnectionAge, MaxConnectionAgeGrace: s.KeepaliveTimeout,
	}))...)
	xds.Register(g)
	reflection.Register(g)
	return g
}

// wait is the function of an actor that does nothing.
func wait(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// listing calls listed when its source has listed everything.
type listing struct {
	source.Sink
	listed func()
}

func (l listing) Apply(b source.Batch) {
	if b.Synced {
		l.listed()
	}
	l.Sink.Apply(b)
}

func workers(s *config.Settings) int {
	if s.Workers > 0 {
		return s.Workers
	}
	return runtime.GOMAXPROCS(0)
}
