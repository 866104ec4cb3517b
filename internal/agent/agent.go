// Package agent runs pilot-agent: from the settings it derives the node, the bootstrap and Envoy's command line, and then it
// runs Envoy under a supervisor, with a status server and a server of certificates.
//
// Invariants: everything that can be checked is checked before anything is started: the settings, the ports of the
// bootstrap, the Envoy binary, and the port of the status server. An agent writes and removes nothing before it holds the lock of its folder
// and knows that its ports are free, so a second agent fails without changing anything of the first.
//
// With hot restarts, a reloader reads the settings again and passes new bootstraps to the supervisor. Settings that the agent itself uses
// stay as they were at the start.
//
// Goroutines: package run starts and stops them in order.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/pilotmesh/pilot/internal/agent/boot"
	"github.com/pilotmesh/pilot/internal/agent/config"
	"github.com/pilotmesh/pilot/internal/agent/disk"
	"github.com/pilotmesh/pilot/internal/agent/envoy"
	"github.com/pilotmesh/pilot/internal/agent/lastgood"
	"github.com/pilotmesh/pilot/internal/agent/life"
	"github.com/pilotmesh/pilot/internal/agent/node"
	"github.com/pilotmesh/pilot/internal/agent/platform"
	"github.com/pilotmesh/pilot/internal/agent/relay"
	"github.com/pilotmesh/pilot/internal/agent/status"
	"github.com/pilotmesh/pilot/internal/agent/upstream"
	"github.com/pilotmesh/pilot/internal/config/logging"
	"github.com/pilotmesh/pilot/internal/run"
)

// IstioVersion is the release of Istio whose agent this agent is compatible with. EnvoyFilters select proxies by it.
const IstioVersion = "1.32.0"

// Host is the operating system's process that runs the agent.
type Host struct {
	// Stdout and Stderr are the files to which the agent and Envoy write.
	Stdout, Stderr *os.File
	// Stop delivers requests to stop: the first asks for a graceful stop, the second for an immediate one.
	Stop <-chan os.Signal
	// Reload delivers requests to read the settings again; nil if there are none.
	Reload <-chan os.Signal
	// Listening is called when the agent starts to receive from Stop; it may be nil.
	Listening func()
}

// Run runs the agent of one proxy until it is asked to stop or Envoy cannot be kept running.
func Run(ctx context.Context, s *config.Settings, h Host, log *slog.Logger) error {
	machine := Machine{Memory: memoryLimit("/"), Place: locate(ctx, s, platform.Address, log)}
	c, err := Boot(s, machine)
	if err != nil {
		return err
	}
	if s.NoEnvoy {
		page, release, err := occupy(ctx, s, c)
		if err != nil {
			return err
		}
		defer release()
		return alone(ctx, page, c, s, h, log)
	}
	binary, version, err := findEnvoy(ctx, s, log)
	if err != nil {
		return err
	}
	page, release, err := occupy(ctx, s, c)
	if err != nil {
		return err
	}
	defer release()
	p, err := newProxy(s, c, binary, h, logging.For(log, logEnvoy))
	if err != nil {
		return errors.Join(err, closed(page))
	}
	if hint := memoryHint(machine.Memory, s.HotRestart); hint != "" {
		log.Warn("settings", "remark", hint)
	}
	log.Info("starting the agent of a proxy", "node", c.Node.GetId(), "envoy", binary, "version", version, "bootstrap", p.path(1),
		"discovery", s.Proxy.GetDiscoveryAddress(), "admin_port", c.AdminPort, "status_port", c.StatusPort, "hot_restart", s.HotRestart)
	return supervise(ctx, page, p, c, s, machine, h, log)
}

// findEnvoy returns the binary of Envoy, which can run on this host, and its version.
func findEnvoy(ctx context.Context, s *config.Settings, log *slog.Logger) (binary, version string, err error) {
	binary, err = envoy.Find(
		envoy.Candidate{From: "--envoy", Path: s.Envoy}, envoy.Candidate{From: "ENVOY", Path: s.EnvoyFromEnv},
		envoy.Candidate{From: "binaryPath", Path: s.Proxy.GetBinaryPath()})
	if err != nil {
		return "", "", err
	}
	version, remark, err := envoy.Check(ctx, binary)
	if err != nil {
		return "", "", err
	}
	if remark != "" {
		log.Warn("settings", "remark", remark)
	}
	if s.HotRestart {
		err = envoy.CheckHotRestart()
	}
	return binary, version, err
}

// occupy takes the folder and the ports of the agent. It returns the listener of the status server, nil if there is none, and the
// function that releases the folder's lock. If another agent has one of them, it changes nothing.
func occupy(ctx context.Context, s *config.Settings, c boot.Config) (page net.Listener, release func(), err error) {
	dir := cmp.Or(s.Proxy.GetConfigPath(), ".")
	release, err = disk.Lock(dir)
	switch {
	case errors.Is(err, disk.ErrLocked):
		return nil, nil, fmt.Errorf("another agent runs with the folder %s; stop it, or give this one a folder of its own with --configPath", dir)
	case err != nil:
		return nil, nil, fmt.Errorf("the folder of the bootstrap: %w; %s", err, writable)
	}
	if !s.NoEnvoy {
		err = checkPortsFree(ctx, c)
	}
	if err == nil {
		page, err = listenStatus(ctx, c)
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return page, release, nil
}

// closed closes a listener, if there is one.
func closed(l net.Listener) error {
	if l == nil {
		return nil
	}
	return l.Close()
}

// checkPortsFree checks that the ports of Envoy's own listeners are free. Envoy would exit again and again because of some of
// them, and would silently share others with another Envoy.
func checkPortsFree(ctx context.Context, c boot.Config) error {
	for _, p := range []struct {
		host       string
		port       uint32
		what, flag string
	}{
		{loopbackHost(c), c.AdminPort, "Envoy's admin interface", "--proxyAdminPort"},
		{"", c.HealthPort, "Envoy's listener for probes", "--envoyStatusPort"},
		{"", c.MetricsPort, "Envoy's listener for scrapes", "--envoyPrometheusPort"},
	} {
		if p.port == 0 {
			continue
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(p.host, strconv.Itoa(int(p.port))))
		if err == nil {
			err = l.Close()
		}
		if err != nil {
			return fmt.Errorf("%s has no port: %w; free the port (another agent may run on this host) or set another one with %s", p.what, err, p.flag)
		}
	}
	return nil
}

// supervise runs Envoy, and the servers of the agent beside it.
func supervise(ctx context.Context, page net.Listener, p *proxy, c boot.Config, s *config.Settings, machine Machine, h Host, log *slog.Logger) error {
	limits := policy(s)
	limits.LastGood = p.lastGood()
	supervisor := life.New(p, limits, logging.For(log, logEnvoy))
	// The group has no time limit, because draining may take as long as the last connection. The supervisor has its own limits.
	group := run.New(log, noLimit)
	parts := status.Parts{Envoy: p, Life: lifecycle{supervisor}, Probes: probes(s, c, log), Targets: s.Application.Targets, LocalMetrics: s.LocalMetrics, Log: log}
	var settings *reloader
	if s.HotRestart {
		settings = newReloader(p, s, machine.Place, supervisor.Change, log)
		parts.Restart = settings.ask
	}
	dialer, store, err := serve(ctx, group, s, c, p.Admin, &parts)
	if err != nil {
		return errors.Join(err, closed(page))
	}
	patches := &patching{proxy: p, settings: s, config: c, log: logging.For(log, logEnvoy)}
	if settings != nil {
		patches.changed = settings.repatch
	}
	follower := followPatches(group, patches, dialer, store)
	if page != nil {
		group.Add(run.HTTP("status", page, status.Handler(parts), statusTimeout, log))
	}
	group.Add(run.Actor{Name: "envoy", Run: func(ctx context.Context) error {
		if !patches.await(ctx, follower) {
			return errEnvoyEnded
		}
		if err := supervisor.Run(ctx); err != nil {
			return err
		}
		return errEnvoyEnded
	}})
	group.Add(run.Actor{Name: "memory", Run: func(ctx context.Context) error { return run.FreeAfter(ctx, supervisor.Ready(), settled) }})
	group.Add(signals(h.Stop, func() {
		if !p.abandon() {
			supervisor.End()
		}
	}, log))
	if settings != nil {
		group.Add(run.Actor{Name: "settings", Run: func(ctx context.Context) error { return settings.run(ctx, h.Reload) }})
	}
	h.listening()
	err = group.Run(ctx)
	if errors.Is(err, life.ErrCrashed) || errors.Is(err, life.ErrAborted) {
		return err
	}
	if errors.Is(err, errEnvoyEnded) {
		return nil
	}
	return err
}

// settled is the time from which on the agent has little to do once Envoy is ready: the last known good configuration is on disk.
const settled = 2 * time.Second

// The parts of the agent's log. Their levels are set apart from each other.
const (
	logXDS          = "xds"
	logCertificates = "certificates"
	logDNS          = "dns"
	logWasm         = "wasm"
	logHealth       = "health"
	logEnvoy        = "envoy"
)

// Parts are the parts of the agent's log.
func Parts() []logging.Part {
	return []logging.Part{
		{Name: logXDS, Logs: "streams to the control plane, and the last known good configuration", Scopes: []string{"xdsproxy", "ads", "adsc", "delta"}},
		{Name: logCertificates, Logs: "certificates and secrets", Scopes: []string{"cache", "sds", "citadelclient", "security", "secretfetcher", "token", "stsserver", "gcecred", "trustBundle", "spiffe"}},
		{Name: logDNS, Logs: "DNS queries of the workload", Scopes: []string{"dns", "nds"}},
		{Name: logWasm, Logs: "modules of WebAssembly filters"},
		{Name: logHealth, Logs: "the health of the application", Scopes: []string{"healthcheck"}},
		{Name: logEnvoy, Logs: "the life of the Envoy process; Envoy's own levels are set by pilot-agent request POST 'logging?level=debug'", Scopes: []string{"bootstrap"}},
	}
}

// listening reports that the group is about to receive requests to stop.
func (h Host) listening() {
	if h.Listening != nil {
		h.Listening()
	}
}

// listenStatus returns the listener of the status server; nil if there is none.
func listenStatus(ctx context.Context, c boot.Config) (net.Listener, error) {
	if c.StatusPort == 0 {
		return nil, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(int(c.StatusPort))))
	if err != nil {
		return nil, fmt.Errorf("the status server has no port: %w; free the port or set another one with --statusPort (0 for none)", err)
	}
	return l, nil
}

// serve adds the agent's servers for Envoy and the workload to the group, and their state for the status server to parts. admin is nil
// without Envoy. It returns what calls the control plane, and the store of its last answers.
func serve(ctx context.Context, group *run.Group, s *config.Settings, c boot.Config, admin *envoy.Admin, parts *status.Parts) (*upstream.Dialer, *lastgood.Store, error) {
	own := &credentials{}
	dialer := discoveryDialer(s, own)
	board, err := serveSecrets(ctx, group, s, c, own, dialer, logging.For(parts.Log, logCertificates))
	if err != nil {
		return nil, nil, err
	}
	parts.Secrets = board
	store := keep(group, s, c, logging.For(parts.Log, logXDS))
	modules, err := fetchModules(group, s, store, logging.For(parts.Log, logWasm))
	if err != nil {
		return nil, nil, err
	}
	anchors, err := trust(s, own, logging.For(parts.Log, logCertificates))
	if err != nil {
		return nil, nil, err
	}
	options := relay.Options{Dialer: dialer, Store: store, Modules: modules, Trust: anchors, Log: logging.For(parts.Log, logXDS)}
	if admin != nil {
		options.Warming, options.Draining = admin.Warming, admin.Draining
	}
	discovery, err := serveRelay(ctx, group, c, options)
	if err != nil {
		return nil, nil, err
	}
	parts.Discovery, parts.Modules = discovery, modules
	checkHealth(group, s, parts.Envoy, parts.Life, discovery, logging.For(parts.Log, logHealth))
	if parts.Names, err = serveNames(ctx, group, s, c, dialer, store, logging.For(parts.Log, logDNS)); err != nil {
		return nil, nil, err
	}
	serveDebug(ctx, group, s, c, dialer, parts.Log)
	if err := serveTokens(ctx, group, s, c, parts.Log); err != nil {
		return nil, nil, err
	}
	return dialer, store, writeGRPC(s, c, parts.Log) // its readers find the sockets
}

// errEnvoyEnded stops the group when Envoy has ended as intended.
var errEnvoyEnded = errors.New("Envoy has ended")

const (
	noLimit       = 1<<63 - 1
	statusTimeout = time.Second
	repeatWindow  = 300 * time.Millisecond
)

// signals passes requests to stop to end, until it is stopped itself. A signal within repeatWindow of the last one is the same
// request, because timeout(1) and shells signal a process and also its process group.
func signals(stop <-chan os.Signal, end func(), log *slog.Logger) run.Actor {
	return run.Actor{Name: "signals", Run: func(ctx context.Context) error {
		var last time.Time
		for {
			select {
			case <-ctx.Done():
				return nil
			case sig := <-stop:
				if time.Since(last) < repeatWindow {
					continue
				}
				last = time.Now()
				log.Info("received a signal to stop", "signal", sig.String())
				end()
			}
		}
	}}
}

// Boot returns the bootstrap that follows from the settings and the machine.
func Boot(s *config.Settings, m Machine) (boot.Config, error) {
	n, err := node.Facts{
		Role: s.Role, Name: s.Name, Namespace: s.Namespace, ID: s.ID, Domain: s.Domain, Addresses: s.Addresses,
		ServiceAccount: s.ServiceAccount, ClusterID: s.ClusterID, Labels: s.Labels, Annotations: s.Annotations,
		ServiceCluster: s.Proxy.GetServiceCluster(), Version: IstioVersion, Proxy: s.Proxy,
		HealthPort: s.HealthPort, MetricsPort: s.MetricsPort, ExitOnZeroConnections: s.ExitOnZeroConnections,
		OutlierLog: s.OutlierLog, Metadata: s.Metadata, NoCertificate: !hasCertificate(s), OtherAuthority: otherAuthority(s),
		Region: m.Place.Region, Zone: m.Place.Zone, Platform: m.Place.Metadata,
	}.Node()
	if err != nil {
		return boot.Config{}, err
	}
	c := boot.Config{
		Node: n, Relay: relaySocket(s), SotW: s.SotW,
		AdminPort: uint32(s.Proxy.GetProxyAdminPort()), StatusPort: uint32(s.Proxy.GetStatusPort()),
		HealthPort: s.HealthPort, MetricsPort: s.MetricsPort, IPv6: s.IPv6Only(), DualStack: s.DualStack(),
		SecureMetricsPort: s.SecureMetricsPort, SecureMergedMetricsPort: s.SecureMergedMetricsPort,
		HealthProxyProtocol: s.HealthProxyProtocol, CompressMetrics: s.CompressMetrics,
		SecretsSocket: secretsSocket(s), Runtime: s.Runtime, OutlierLog: s.OutlierLog,
		Stats: s.Stats, Tracer: s.Tracer, AccessLogs: s.AccessLogs, MaxConnections: s.MaxConnections, HeapLimit: heapLimit(m.Memory),
		Template: s.Template, Proxy: s.Proxy, LocalMetrics: s.LocalMetrics,
	}
	if c.StatusPort == 0 {
		c.HealthPort = 0 // readiness probes could not be answered without the status server
	}
	return c, run.Usage(c.Check())
}

func loopback(c boot.Config) string {
	return net.JoinHostPort(loopbackHost(c), strconv.Itoa(int(c.AdminPort)))
}

func loopbackHost(c boot.Config) string {
	if c.IPv6 {
		return "::1"
	}
	return "127.0.0.1"
}

func policy(s *config.Settings) life.Policy {
	p := life.Default()
	p.Restarts = s.Restarts
	p.Drain = s.Proxy.GetTerminationDrainDuration().AsDuration()
	p.UntilIdle, p.MinDrain = s.ExitOnZeroConnections, s.MinDrain
	p.Retire = s.ParentShutdown + p.Kill
	return p
}
