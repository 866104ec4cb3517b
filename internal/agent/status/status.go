// Package status is the HTTP server of the agent. It answers readiness probes, its own and the application's, serves the metrics of
// Envoy, the application and the agent, describes certificates and names, and accepts requests to drain, to restart and to stop.
//
// Invariants: drain, restart and stop requests must be POST requests over loopback. Certificates are described over loopback only, and
// their content is never shown. No web page in a browser on the host can send or read these: they answer to addresses and localhost only
// (Host header). Nothing is cached: every answer reflects Envoy's present state.
//
// Goroutines: the package starts none; its handlers keep no state but counters of scrapes.
package status

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/pilotmesh/pilot/internal/agent/boot"
	"github.com/pilotmesh/pilot/internal/agent/lastgood"
	"github.com/pilotmesh/pilot/internal/agent/probe"
	"github.com/pilotmesh/pilot/internal/agent/relay"
	"github.com/pilotmesh/pilot/internal/agent/scrape"
	"github.com/pilotmesh/pilot/internal/agent/secret"
	"github.com/pilotmesh/pilot/internal/config/logging"
	"github.com/pilotmesh/pilot/internal/run"
)

// readyTimeout is how long Envoy may take to report whether it is ready. Probes time out after one or a few seconds.
const readyTimeout = time.Second

// Envoy is the interface to the running Envoy.
type Envoy interface {
	// Ready returns nil if Envoy serves the configuration of the control plane. Otherwise the error names the missing part.
	Ready(ctx context.Context) error
	// Do sends a request to the admin interface. The caller closes the body of the response.
	Do(ctx context.Context, method, path string) (*http.Response, error)
}

// Life is the interface to the supervisor of Envoy.
type Life interface {
	// Leaving reports whether clients are being asked, or will be asked, to use other endpoints. Serving reports whether
	// Envoy is ready for clients.
	Leaving() bool
	Serving() bool
	// Replacing reports whether an Envoy serves that cannot be asked, because another one is to take its place.
	Replacing() bool
	// Refused says how Envoy failed with the newest bootstrap, if it did so too often and runs with the last good one.
	Refused() (why string, refused bool)
	// Leave starts to drain clients. End stops Envoy.
	Leave()
	End()
}

// Secrets is the interface to the certificates and keys that the agent serves to Envoy.
type Secrets interface {
	// Secrets describes them in the order of their names, without their content.
	Secrets() []secret.Status
}

// Discovery is the interface to the relay of xDS.
type Discovery interface {
	// Stale reports whether the control plane cannot be reached, and since when.
	Stale() (since time.Time, stale bool)
	// Kept describes the last known good configuration.
	Kept() lastgood.State
	// Health is the reported health of the workload; known is false before the first report.
	Health() (h relay.Health, known bool)
}

// Modules is the interface to the cache of WebAssembly modules.
type Modules interface {
	// Metrics returns metrics in the Prometheus text format.
	Metrics() string
}

// Parts are the parts of the agent that the server describes, or passes requests to.
type Parts struct {
	Envoy     Envoy
	Life      Life
	Discovery Discovery
	Secrets   Secrets
	// Modules are the WebAssembly modules of Envoy's filters; nil if there are none.
	Modules Modules
	// Names is nil if the agent does not answer DNS queries.
	Names Names
	// Restart asks for a hot restart; nil if there are none.
	Restart func()
	// Probes answers probes and hooks for the application.
	Probes http.Handler
	// Targets are where the application serves metrics.
	Targets []scrape.Target
	// LocalMetrics restricts metrics to requests over loopback.
	LocalMetrics bool
	Log          *slog.Logger
}

// Handler serves the paths of Istio's agent, /debug/secretz, and the metrics of Envoy alone for the listeners of Envoy that serve them.
func Handler(p Parts) http.Handler {
	s := &server{p}
	mux := http.NewServeMux()
	mux.Handle("GET "+probe.HealthPrefix, p.Probes)
	mux.Handle("GET "+probe.HookPrefix, p.Probes)
	mux.HandleFunc("GET /healthz/ready", s.ready)
	metrics := scrape.Handler(scrape.Options{Envoy: p.Envoy.Do, Targets: p.Targets, Own: s.metrics, Log: p.Log})
	if p.LocalMetrics {
		metrics = local(metrics)
	}
	mux.Handle("GET /stats/prometheus", metrics)
	mux.Handle("GET /metrics", metrics)
	mux.Handle("GET "+boot.EnvoyMetricsPath, local(scrape.Handler(scrape.Options{Envoy: p.Envoy.Do, Log: p.Log})))
	mux.Handle("GET /debug/secretz", local(http.HandlerFunc(s.secretz)))
	mux.Handle("GET /debug/ndsz", local(http.HandlerFunc(s.ndsz)))
	if levels := logging.Of(p.Log); levels != nil {
		mux.Handle("/debug/logging", local(levels))
	}
	mux.Handle("POST /drain", local(s.order("drain", p.Life.Leave)))
	mux.Handle("POST /restart", local(s.restart(p.Restart)))
	mux.Handle("POST /quitquitquit", local(s.order("end", p.Life.End)))
	return mux
}

type server struct{ Parts }

func (s *server) ready(w http.ResponseWriter, r *http.Request) {
	if s.Life.Leaving() {
		http.Error(w, "not ready: the proxy is draining", http.StatusServiceUnavailable)
		return
	}
	if !s.Life.Replacing() {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if err := s.Envoy.Ready(ctx); err != nil && !s.Life.Replacing() { // a hot restart may have begun since
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	if s.Names != nil {
		if err := s.Names.Ready(); err != nil {
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	if !s.Life.Serving() {
		http.Error(w, "not ready: the proxy has just started", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready"+s.remarks())
}

// remarks describes faults of an Envoy that serves nevertheless.
func (s *server) remarks() string {
	text := ""
	if since, stale := s.Discovery.Stale(); stale {
		text += ", but stale: the control plane has not been reached since " + since.UTC().Format(time.RFC3339) + "; Envoy has the last known good configuration"
	}
	if why, refused := s.Life.Refused(); refused {
		text += ", but with the last good bootstrap: Envoy fails with the changed one: " + why
	}
	if s.Life.Replacing() {
		text += ": the present Envoy serves while another one is to take its place"
	}
	return text
}

// restart returns a handler that asks for a hot restart.
func (s *server) restart(ask func()) http.Handler {
	if ask == nil {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "there are no hot restarts; start the agent with --hotRestart", http.StatusConflict)
		})
	}
	return s.order("restart", ask)
}

// metrics returns the agent's own metrics in the Prometheus text format.
func (s *server) metrics() string {
	own := discoveryMetrics(s.Discovery) + secretMetrics(s.Secrets.Secrets(), time.Now()) + lifeMetrics(s.Life)
	if s.Modules != nil {
		own += s.Modules.Metrics()
	}
	if s.Names != nil {
		own += s.Names.Metrics()
	}
	return own
}

// lifeMetrics returns the metrics of Envoy's life.
func lifeMetrics(l Life) string {
	n := 0
	if _, refused := l.Refused(); refused {
		n = 1
	}
	return fmt.Sprintf("# HELP pilot_agent_bootstrap_refused Whether Envoy failed with the newest bootstrap and runs with the last good one.\n"+
		"# TYPE pilot_agent_bootstrap_refused gauge\npilot_agent_bootstrap_refused %d\n", n)
}

// order returns a handler that executes a request to the agent.
func (s *server) order(what string, do func()) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Log.Info("received a request", "request", what, "from", r.RemoteAddr)
		do()
		fmt.Fprintln(w, "OK")
	})
}

// local rejects requests that do not come over loopback, and requests of web pages in a browser on this host.
func local(h http.Handler) http.Handler {
	h = run.OnlyHosts(nil, "", http.NewCrossOriginProtection().Handler(h))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		from, parseErr := netip.ParseAddr(host)
		if err != nil || parseErr != nil || !from.Unmap().IsLoopback() {
			http.Error(w, "this path is available on this host only, over loopback", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
