// Package agent puts the parts of pilot-agent together: from settings to a node, a bootstrap, an Envoy, and the life of
// it, with a status server beside.
//
// Nothing is started before everything that can be checked has been: the settings, the bootstrap's ports, the binary,
// the status server's port. Goroutines are those of package run, which owns the order of start and end. It must not be
// imported by the packages below it.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/pilotmesh/pilot/internal/agent/boot"
	"github.com/pilotmesh/pilot/internal/agent/config"
	"github.com/pilotmesh/pilot/internal/agent/envoy"
	"github.com/pilotmesh/pilot/internal/agent/life"
	"github.com/pilotmesh/pilot/internal/agent/node"
	"github.com/pilotmesh/pilot/internal/agent/status"
	"github.com/pilotmesh/pilot/internal/run"
)

// IstioVersion is the release of Istio whose agent this one stands for. Patches select proxies by it.
const IstioVersion = "1.32.0"

// Host is the process around the agent.
type Host struct {
	// Stdout and Stderr are Envoy's too.
	Stdout, Stderr *os.File
	// Stop delivers requests to end: one for an orderly end, another for an end at once.
	Stop <-chan os.Signal
}

// Run runs the agent of one proxy until it is told to stop, or Envoy cannot be kept running.
func Run(ctx context.Context, s *config.Settings, h Host, log *slog.Logger) error {
	c, err := Boot(s)
	if err != nil {
		return err
	}
	binary, err := envoy.Find(
		envoy.Wish{From: "--envoy", Path: s.Envoy}, envoy.Wish{From: "ENVOY", Path: s.EnvoyFromEnv},
		envoy.Wish{From: "binaryPath", Path: s.Proxy.GetBinaryPath()})
	if err != nil {
		return err
	}
	version, remark, err := envoy.Check(ctx, binary)
	if err != nil {
		return err
	}
	if remark != "" {
		log.Warn("settings", "remark", remark)
	}
	path, err := write(s.Proxy.GetConfigPath(), c)
	if err != nil {
		return err
	}
	if err := vacant(ctx, c); err != nil {
		return err
	}
	proxy := &proxy{
		Admin: envoy.NewAdmin(loopback(c), boot.HealthPrefix, boot.MetricsPrefix),
		options: envoy.Options{
			Binary: binary, Config: path, Override: s.Override, IPv6: c.IPv6,
			LogLevel: s.EnvoyLogLevel, ComponentLogLevel: s.EnvoyComponentLogLevel, Concurrency: concurrency(s),
			Drain: s.Proxy.GetDrainDuration().AsDuration(), Flush: flush(s), Stdout: h.Stdout, Stderr: h.Stderr,
		},
		discovery: s.Proxy.GetDiscoveryAddress(), log: log,
	}
	log.Info("starting the agent of a proxy", "node", c.Node.GetId(), "envoy", binary, "version", version, "bootstrap", path,
		"discovery", s.Proxy.GetDiscoveryAddress(), "admin_port", c.AdminPort, "status_port", c.StatusPort)
	return supervise(ctx, proxy, c, s, h, log)
}

// vacant looks whether Envoy's own ports are free. Envoy itself would end because of some, again and again, and silently
// share others with a second one.
func vacant(ctx context.Context, c boot.Config) error {
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
			return fmt.Errorf("%s has no port: %w; free it (another agent on this host, maybe), or name another by %s", p.what, err, p.flag)
		}
	}
	return nil
}

// supervise runs the status server and the life of Envoy.
func supervise(ctx context.Context, p *proxy, c boot.Config, s *config.Settings, h Host, log *slog.Logger) error {
	supervisor := life.New(p, policy(s), log)
	// The end may take as long as the last connection does: the supervisor has limits of its own, the group none.
	group := run.New(log, forever)
	var page net.Listener
	if c.StatusPort != 0 {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(int(c.StatusPort))))
		if err != nil {
			return fmt.Errorf("the status server has no port: %w; free it, or name another by --statusPort (0 for none)", err)
		}
		page = l
	}
	board, err := serveSecrets(ctx, group, s, c, log)
	if err != nil {
		if page != nil {
			err = errors.Join(err, page.Close())
		}
		return err
	}
	if page != nil {
		group.Add(run.HTTP("status", page, status.Handler(p, course{supervisor}, board, log), statusGrace, log))
	}
	group.Add(run.Actor{Name: "envoy", Run: func(ctx context.Context) error {
		if err := supervisor.Run(ctx); err != nil {
			return err
		}
		return errDone
	}})
	group.Add(signals(h.Stop, supervisor.End, log))
	err = group.Run(ctx)
	if errors.Is(err, life.ErrCrashed) || errors.Is(err, life.ErrCutShort) {
		return err
	}
	if errors.Is(err, errDone) {
		return nil
	}
	return err
}

// errDone ends the group when Envoy has ended well.
var errDone = errors.New("Envoy has ended")

const (
	forever     = 1<<63 - 1
	statusGrace = time.Second
	sameRequest = 300 * time.Millisecond
)

// signals hands requests to stop on, until it is stopped itself. What follows at once is the same request: timeout(1) and
// shells signal a process and its group.
func signals(stop <-chan os.Signal, end func(), log *slog.Logger) run.Actor {
	return run.Actor{Name: "signals", Run: func(ctx context.Context) error {
		var heard time.Time
		for {
			select {
			case <-ctx.Done():
				return nil
			case sig := <-stop:
				if time.Since(heard) < sameRequest {
					continue
				}
				heard = time.Now()
				log.Info("told to stop", "signal", sig.String())
				end()
			}
		}
	}}
}

// Boot is what the settings mean for Envoy's start.
func Boot(s *config.Settings) (boot.Config, error) {
	n, err := node.Facts{
		Role: s.Role, Name: s.Name, Namespace: s.Namespace, ID: s.ID, Domain: s.Domain, Addresses: s.Addresses,
		ServiceAccount: s.ServiceAccount, ClusterID: s.ClusterID, Labels: s.Labels, Annotations: s.Annotations,
		ServiceCluster: s.Proxy.GetServiceCluster(), Version: IstioVersion, Proxy: s.Proxy,
		HealthPort: s.HealthPort, MetricsPort: s.MetricsPort, ExitOnZeroConnections: s.ExitOnZeroConnections,
		OutlierLog: s.OutlierLog, Metadata: s.Metadata,
	}.Node()
	if err != nil {
		return boot.Config{}, err
	}
	host, port := s.DiscoveryAddress()
	c := boot.Config{
		Node: n, Discovery: boot.Address{Host: host, Port: port}, SotW: s.SotW,
		AdminPort: uint32(s.Proxy.GetProxyAdminPort()), StatusPort: uint32(s.Proxy.GetStatusPort()),
		HealthPort: s.HealthPort, MetricsPort: s.MetricsPort, IPv6: s.IPv6Only(),
		SecretsSocket: secretsSocket(s), Runtime: s.Proxy.GetRuntimeValues(), OutlierLog: s.OutlierLog,
	}
	if c.StatusPort == 0 {
		c.HealthPort = 0 // it would have nobody to ask
	}
	return c, run.Usage(c.Check())
}

// write puts the bootstrap into its directory, whole at once, for this user only.
func write(dir string, c boot.Config) (string, error) {
	text, err := c.JSON()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("writing the bootstrap: %w; name a directory this user can write to by --configPath", err)
	}
	path := filepath.Join(dir, "envoy-rev.json")
	tmp, err := os.CreateTemp(dir, ".envoy-rev-*.json") // readable by its owner only
	if err != nil {
		return "", fmt.Errorf("writing the bootstrap: %w; name a directory this user can write to by --configPath", err)
	}
	_, err = tmp.Write(text)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return "", fmt.Errorf("writing the bootstrap: %w", errors.Join(err, os.Remove(tmp.Name())))
	}
	return path, nil
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
	return p
}

// concurrency is the number of worker threads: what is asked for, or what the CPU limit of the container allows, which
// the Go runtime has found out already.
func concurrency(s *config.Settings) int {
	if n := s.Proxy.GetConcurrency().GetValue(); n > 0 {
		return int(n)
	}
	return runtime.GOMAXPROCS(0)
}

func flush(s *config.Settings) time.Duration {
	if d := s.Proxy.GetFileFlushInterval().AsDuration(); d > 0 {
		return d
	}
	return time.Second
}

// proxy is the Envoy that is looked after.
type proxy struct {
	*envoy.Admin
	options   envoy.Options
	discovery string
	log       *slog.Logger
}

// Ready is Envoy's, and says what to look at.
func (p *proxy) Ready(ctx context.Context) error {
	err := p.Admin.Ready(ctx)
	if errors.Is(err, envoy.ErrAlone) {
		return fmt.Errorf("%w: does one serve at %s (--discoveryAddress), and can this host reach it?", err, p.discovery)
	}
	return err
}

// Start runs the next process.
func (p *proxy) Start() (life.Process, bool, error) {
	process, err := envoy.Start(p.options)
	if err != nil {
		return nil, envoy.Hopeless(err), err
	}
	p.log.Info("started Envoy", "pid", process.PID(), "args", p.options.Args())
	return process, false, nil
}

// course is the life as the status server sees it.
type course struct{ *life.Supervisor }

// Leaving says that clients are, or will be, asked to go elsewhere.
func (l course) Leaving() bool {
	switch l.State() {
	case life.Leaving, life.Checking, life.Draining, life.Exiting, life.Gone:
		return true
	default:
		return false
	}
}

// Serving says that Envoy was seen to serve, so that an order to drain finds it ready to.
func (l course) Serving() bool { return l.State() == life.Ready }
