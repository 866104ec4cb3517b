package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/admin"
	"github.com/pilotmesh/pilot/internal/ads/arrivals"
	"github.com/pilotmesh/pilot/internal/ads/server"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/config"
	"github.com/pilotmesh/pilot/internal/config/logging"
	"github.com/pilotmesh/pilot/internal/controller/addresses"
	"github.com/pilotmesh/pilot/internal/controller/cluster"
	"github.com/pilotmesh/pilot/internal/controller/entries"
	"github.com/pilotmesh/pilot/internal/controller/ingress"
	"github.com/pilotmesh/pilot/internal/controller/status"
	"github.com/pilotmesh/pilot/internal/controller/untaint"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/run/statefile"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/source/file"
	"github.com/pilotmesh/pilot/internal/source/folder"
	"github.com/pilotmesh/pilot/internal/source/kept"
	"github.com/pilotmesh/pilot/internal/source/kube"
	"github.com/pilotmesh/pilot/internal/source/remote"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/xds/class"
	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/internal/xds/secret"
)

// drain is how long running requests for pages may take when the program stops.
const drain = time.Second

// wire creates the parts of the control plane and adds them in the order in which they start: HTTP pages, the push loop, the
// sources, and xDS once the sources have listed everything and the result is committed. They stop in reverse order.
func wire(s *config.Settings, log *slog.Logger) (*run.Group, error) {
	access, err := connect(s)
	if err != nil {
		return nil, err
	}
	visits, policies, pagesLog := arrivals.New(logging.For(log, logProxies)), &kept.Book{}, logging.For(log, logPages)
	sources, share, statuses, err := allSources(s, access, policies, log)
	if err != nil {
		return nil, err
	}

	// Metrics, log and pages.
	build, pages := run.ReadBuild(), (*admin.Pages)(nil)
	metrics, commits, board, ready := admin.NewMetrics(build), new(admin.Commits), admin.NewBoard(fieldsIn(sources)), new(admin.Readiness)
	committed := make(chan struct{}, 1) // keeps one signal
	logStart(log, s, build)
	secure, err := newSecure(s, access, metrics, logging.For(log, logCA))
	if err != nil {
		return nil, err
	}
	running := newLoop(s, namesOf(sources), secure, visits, log, func(c loop.Commit) {
		metrics.Commit(c)
		commits.Observe(c)
		visits.Committed(uint64(c.Revision))
		logCommit(logging.For(log, logConfig), c)
		notify(committed)
	})
	xds := server.New(running, server.Options{
		ControlPlane: "pilot-discovery " + build.Version, WriteTimeout: s.WriteTimeout, MaxReceive: s.MaxRecvMsgSize,
		Admit: secure.door.Admit, Pace: secure.door.Pace.Wait, Revoked: secure.keeper.Revoked, Observer: metrics, Log: logging.For(log, logProxies), Configuration: running.Configuration,
		Pages: func(ctx context.Context, q server.Page) ([]byte, error) { return pages.Answer(ctx, q) },
	})
	pages = admin.New(admin.Options{
		Build: build, Mesh: running, Streams: xds, Ready: ready, Metrics: metrics, Commits: commits, Board: board, Registries: statuses, Clusters: clustersIn(sources),
		Profile: s.Profile, Remote: s.DebugRemote, Namespaces: append(s.DebugNamespaces, s.Namespace), Hosts: servingNames(s), Log: pagesLog,
	})
	metrics.Watch(running, xds, board)
	metrics.WatchRegistries(statuses)

	g := run.New(log, s.ShutdownDuration)
	addPages(g, s, pages, pagesLog)
	g.Add(run.Actor{Name: "loop", Run: running.Run})
	addJournal(g, board, running, committed, visits, logging.For(log, logConfig))
	for _, one := range sources {
		addSource(g, one, share(metrics.Counting(running)), ready)
	}
	addLookups(g, s, running, log)
	if err := addPermissions(g, s, access, sources, running, logging.For(log, logKeys)); err != nil {
		return nil, err
	}
	if err := addFirstCommit(g, s, access, running, logging.For(log, logCA)); err != nil {
		return nil, err
	}
	serving := ready.Missing("proxies cannot connect yet")
	if err := addServers(g, s, access, running, xds, secure, policies, logging.For(log, logKube)); err != nil {
		return nil, err
	}
	g.Add(run.Actor{Name: "ready", Run: func(ctx context.Context) error { return serve(ctx, s, ready, serving, log) }})
	return g, nil
}

// addJournal adds the actors that log problems, and proxies that connect and disconnect.
func addJournal(g *run.Group, board *admin.Board, running *loop.Loop, committed <-chan struct{}, visits *arrivals.Log, log *slog.Logger) {
	g.Add(run.Actor{Name: "problems", Run: func(ctx context.Context) error {
		return board.Follow(ctx, running, committed, func(news admin.News) { logNews(log, news) })
	}})
	g.Add(run.Actor{Name: "visits", Run: visits.Run})
}

// notify signals a commit. A receiver that has not taken the previous signal yet will find both commits.
func notify(committed chan<- struct{}) {
	select {
	case committed <- struct{}{}:
	default:
	}
}

// serve reports that the control plane is ready, until it stops. serving withdraws the reason why it was not. From then on garbage
// is collected at the usual pace, so that the garbage of decoding the first lists does not double the memory of a large mesh.
func serve(ctx context.Context, s *config.Settings, ready *admin.Readiness, serving func(), log *slog.Logger) error {
	serving()
	run.PaceCollector(run.Rarely)
	log.Info("ready", "grpc_addr", s.GRPCAddr, "secure_grpc_addr", s.SecureGRPCAddr)
	<-ctx.Done()
	ready.Missing("the control plane is stopping")
	return nil
}

// addServers adds the streams of proxies, the servers for them, with and without TLS, and the actors that write to the cluster.
func addServers(g *run.Group, s *config.Settings, access *rest.Config, running *loop.Loop, xds *server.Server, secure *secure, policies *kept.Book, log *slog.Logger) error {
	g.Add(run.Actor{Name: "streams", Run: xds.Run})
	if s.GRPCAddr != "" {
		g.Add(run.ListenGRPC("xDS (--grpcAddr)", s.GRPCAddr, grpcServer(xds, s), xds.Drain, s.ShutdownDuration/2))
	}
	if s.SecureGRPCAddr != "" {
		secure.add(g, running, xds)
	}
	if writes(s) {
		return addWriters(g, s, access, running, xds, secure, policies, log)
	}
	return nil
}

// newLoop creates the state and the loop that owns it. observe is called with each commit.
func newLoop(s *config.Settings, sources []string, secure *secure, visits *arrivals.Log, log *slog.Logger, observe func(loop.Commit)) *loop.Loop {
	tables := state.New(state.Options{
		Domain: s.Domain, ClusterID: s.ClusterID, Sources: sources, Ranges: mesh.Ranges{IPv4: s.AllocateIPv4, IPv6: s.AllocateIPv6},
		ControlNamespace: controlNamespace(s), RegisterUnverified: s.CA.Unverified, KeyFetcher: s.KeyFetcher, Compliance: s.CA.Compliance, ScopeGateways: s.ScopeGateways,
		FilterGatewayClusters: s.FilterGatewayClusters, SidecarRemoteAddress: s.SidecarRemoteAddress, ServicesBesideIngress: s.ServicesBesideIngress,
		DualStack: s.DualStack, Unready: s.Unready,
		QUIC: s.QUIC, StripHostPort: s.StripHostPort, HTTP10: s.HTTP10, Sessions: s.Sessions, TraceSampling: &s.TraceSampling, Variable: os.LookupEnv,
	})
	graph := query.New(tables.DB, query.Options{Workers: workers(s)})
	secrets := secret.Define(graph, tables, secret.Options{Folder: s.CredentialsDir != "", Kubernetes: s.Kubernetes()})
	queries := class.Define(graph, tables, class.Provider{Type: resource.Secret, Find: secrets.Find, PullSecret: secrets.PullSecret})
	return loop.New(tables, graph, queries, loop.Settings{
		Sources: sources, MinInterval: s.MinCommitInterval, Log: log, Visits: visits, Refused: secure.refuse, OpenConfiguration: s.OpenConfiguration,
		Observe: func(c loop.Commit) {
			secure.trust.set(tables.PresentTrustDomains())
			secure.trust.setRoots(tables.PresentCACertificates(), tables.Security.PresentBundle)
			secure.hooks.setConfig(tables)
			observe(c)
		},
	})
}

// newSources creates the sources: files, a folder of Secrets, a Kubernetes cluster, and the remote clusters that its Secrets describe. share returns a
// sink that also passes the mesh configuration of a file to the Kubernetes source. policies receives the last good versions of policies of a cluster.
func newSources(s *config.Settings, access *rest.Config, policies *kept.Book, log *slog.Logger) (sources []source.Source, share func(source.Sink) source.Sink, err error) {
	if s.ConfigDir != "" || s.MeshConfig != "" || s.NetworksConfig != "" {
		o := file.Options{
			Dir: s.ConfigDir, MeshConfig: s.MeshConfig, NetworksConfig: s.NetworksConfig, Cluster: s.Kubernetes(),
			PolicyWait: s.PolicyWait, IgnoreRefused: s.IgnoreRefused, Log: logging.For(log, logConfig),
		}
		if !s.Kubernetes() {
			o.ClusterID = s.ClusterID
		}
		if s.ConfigDir != "" {
			path, err := filepath.Abs(s.ConfigDir)
			if err != nil {
				return nil, nil, fmt.Errorf("the path of --configDir: %w", err)
			}
			o.Kept = kept.Folder{Dir: statefile.Dir(s.CA.StateDir), Of: path}
		}
		sources = append(sources, file.New(o))
	}
	if s.CredentialsDir != "" {
		sources = append(sources, folder.New(s.CredentialsDir, logging.For(log, logConfig)))
	}
	if !s.Kubernetes() {
		return sources, func(to source.Sink) source.Sink { return to }, nil
	}
	log = logging.For(log, logKube)
	remotes := remote.New(remote.Options{
		Local: s.ClusterID, Timeout: s.RemoteClusterTimeout, Log: log,
		Source: kube.Options{Namespace: s.Namespace, Revision: s.Revision, QPS: s.KubernetesQPS, Burst: s.KubernetesBurst, Log: log},
	})
	if !writes(s) {
		policies = nil
	}
	local, err := kube.New(kube.Options{
		Policies: policies, IgnoreRefused: s.IgnoreRefused,
		Remote: remotes.Set, RemoteNamespace: s.RemoteNamespace,
		Config: access, Cluster: s.ClusterID, Namespace: s.Namespace, Revision: s.Revision, Configuration: s.ConfigDir == "",
		MeshConfigMap: s.MeshConfig == "", NetworksConfigMap: s.NetworksConfig == "", SharedMeshConfig: s.SharedMeshConfig,
		QPS: s.KubernetesQPS, Burst: s.KubernetesBurst, Log: log,
	})
	if err != nil {
		return nil, nil, err
	}
	return append(sources, local, remotes), func(to source.Sink) source.Sink { return kube.Sharing(to, local) }, nil
}

func namesOf(sources []source.Source) []string {
	names := make([]string, len(sources))
	for i, one := range sources {
		names[i] = one.Name()
	}
	return names
}

// fieldsIn returns a function that sets the positions of fields in the files of a source; nil if no source reads files.
func fieldsIn(sources []source.Source) func([]api.Problem) {
	for _, one := range sources {
		if files, ok := one.(*file.Source); ok {
			return files.Place
		}
	}
	return nil
}

// clustersIn returns a function that describes the remote clusters; nil if no source reads any.
func clustersIn(sources []source.Source) func() []source.Cluster {
	for _, one := range sources {
		if clusters, ok := one.(*remote.Clusters); ok {
			return clusters.Statuses
		}
	}
	return nil
}

// connect returns how to reach the API server; nil if no cluster is read.
func connect(s *config.Settings) (*rest.Config, error) {
	if !s.Kubernetes() {
		return nil, nil
	}
	return kube.Connect(s.Kubeconfig)
}

// writes reports whether the control plane writes to the cluster: statuses of the configuration that it reads there.
func writes(s *config.Settings) bool { return s.Kubernetes() && s.ConfigDir == "" }

// leaderLease is the name of the lease that the replicas of all revisions compete for: its holder writes statuses and allocates addresses.
const leaderLease = "pilot-discovery-leader"

// controlNamespace is the namespace of the control plane in the cluster that it writes to; empty if it registers no proxies there.
func controlNamespace(s *config.Settings) string {
	if !writes(s) || !s.Register {
		return ""
	}
	return s.Namespace
}

// addWriters adds the actors that write to the cluster: one that registers the proxies of this replica, and one for the work that
// only one replica may do.
func addWriters(g *run.Group, s *config.Settings, access *rest.Config, running *loop.Loop, xds *server.Server, secure *secure, policies *kept.Book, log *slog.Logger) error {
	target, err := cluster.NewStatuses(access)
	if err != nil {
		return err
	}
	self, err := replica(s)
	if err != nil {
		return err
	}
	keeper, err := cluster.NewPolicies(access, s.Namespace)
	if err != nil {
		return err
	}
	keeper.Map, keeper.Key, keeper.Book, keeper.Log = kube.KeptMap, kube.KeptKey, policies, log
	tasks := []func(context.Context){
		status.New(status.Options{Mesh: running, Streams: xds, Target: target, Log: log}).Run, keeper.Run,
		ingress.New(running, target, log).Run,
	}
	if s.SecureGRPCAddr != "" && !s.CA.Off {
		roots, err := secure.roots(access, running, log)
		if err != nil {
			return err
		}
		tasks = append(tasks, roots)
	}
	if s.Allocate {
		tasks = append(tasks, addresses.New(running, target, log).Run)
	}
	if s.Register {
		registered, err := cluster.NewEntries(access)
		if err != nil {
			return err
		}
		registrar := entries.New(entries.Options{
			Mesh: running, Target: registered, Sink: running, Self: self, Grace: s.RegistrationGrace, Log: log,
		})
		tasks = append(tasks, registrar.Lead)
		g.Add(actor("registration", registrar.Run))
	}
	if s.Untaint {
		if err := addUntaint(g, s, access, running, self, log); err != nil {
			return err
		}
	}
	work := func(ctx context.Context) {
		var running sync.WaitGroup
		for _, task := range tasks {
			running.Go(func() { task(ctx) })
		}
		running.Wait()
	}
	g.Add(elected("leader", s, access, cluster.Lease{Namespace: s.Namespace, Name: leaderLease, Identity: self, Log: log}, work))
	return nil
}

// elected returns an actor that works while this replica has a lease.
func elected(name string, s *config.Settings, access *rest.Config, lease cluster.Lease, work func(context.Context)) run.Actor {
	if !s.LeaderElection {
		return actor(name, work)
	}
	return run.Actor{Name: name, Run: func(ctx context.Context) error { return cluster.Lead(ctx, access, lease, work) }}
}

// untaintLease is the name of the lease for the work on nodes. It is not the leader's, because only some revisions may do this work.
const untaintLease = "pilot-discovery-untaint"

// addUntaint adds the actor that removes the taint of nodes with a ready agent of the CNI plugin.
func addUntaint(g *run.Group, s *config.Settings, access *rest.Config, running *loop.Loop, self string, log *slog.Logger) error {
	target, err := cluster.NewNodes(access)
	if err != nil {
		return err
	}
	writer := untaint.New(running, cmp.Or(s.PluginNamespace, s.Namespace), target, log)
	g.Add(elected("taints of nodes", s, access, cluster.Lease{Namespace: s.Namespace, Name: untaintLease, Identity: self, Log: log}, writer.Run))
	return nil
}

// replica names this one among all that write to the cluster.
func replica(s *config.Settings) (string, error) {
	if s.PodName != "" {
		return s.PodName, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("the name of this replica: %w; set POD_NAME", err)
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid()), nil
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
	why := ready.Waiting("source " + one.Name() + " has not been read")
	g.Add(run.Actor{Name: "source " + one.Name(), Run: func(ctx context.Context) error {
		return one.Run(ctx, listing{sink, one.Name(), why})
	}})
}

// grpcServer returns the xDS server without TLS.
func grpcServer(xds *server.Server, s *config.Settings) *grpc.Server {
	g := grpc.NewServer(append(xds.GRPC(), grpc.KeepaliveParams(keepalive.ServerParameters{
		Time: s.KeepaliveInterval, Timeout: s.KeepaliveTimeout,
		MaxConnectionAge: s.KeepaliveMaxServerConnectionAge, MaxConnectionAgeGrace: s.KeepaliveTimeout, MaxConnectionIdle: server.IdleTime,
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

// listing records when its source has listed everything, and until then the errors that prevent it. The source of remote clusters also passes
// on batches of other sources.
type listing struct {
	source.Sink
	of  string
	why *admin.Waiting
}

func (l listing) Apply(b source.Batch) {
	if b.Source == l.of {
		for _, e := range b.Problems {
			switch p := e.Problem; {
			case p.Severity != api.Error || p.Object.Name != "":
			case p.Object.Kind != "": // settings, without which no proxy is served
				l.why.Hindered(p.String(), e.Gone)
			default:
				l.why.Hindered(p.Reason, e.Gone)
			}
		}
		if b.Synced {
			l.why.Done()
		}
	}
	l.Sink.Apply(b)
}

func workers(s *config.Settings) int {
	if s.Workers > 0 {
		return s.Workers
	}
	return runtime.GOMAXPROCS(0)
}
