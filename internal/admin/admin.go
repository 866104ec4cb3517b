// Package admin serves the state of the control plane: readiness, metrics, version and debug pages.
//
// It owns the pages under /debug, the form of their JSON, which pilotctl reads too, the metrics and their names, and the list of
// recent commits. All pages are read-only.
//
// A page reads the state of the loop on the goroutine of the loop, through loop.Look. There it only collects immutable rows. It
// renders them on its own goroutine, so a slow client does not delay the loop. Metrics, Commits and Board may be updated on any
// goroutine, and never block.
//
// The package starts no goroutines. The HTTP server that calls it is an actor of package run. Pages show resources by reflection.
package admin

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pilotmesh/pilot/internal/ads/server"
	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/internal/config/logging"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/source"
)

// inspectTimeout bounds how long a page waits for the loop.
const inspectTimeout = 10 * time.Second

// Options are the sources and settings of the pages.
type Options struct {
	Build   run.Build
	Mesh    loop.Inspector
	Streams server.Lister
	Ready   *Readiness
	Metrics *Metrics
	Commits *Commits
	Board   *Board
	// Registries returns the states of the registries outside Kubernetes; nil if there are none.
	Registries func() []registry.Status
	// Clusters describes the remote clusters; nil if there are none.
	Clusters func() []source.Cluster
	// Profile enables /debug/pprof.
	Profile bool
	// Remote serves /debug to other hosts than this one too.
	Remote bool
	// Namespaces are the namespaces whose workloads may read all pages by xDS. Other workloads may read pages about proxies of their own namespace.
	Namespaces []string
	// Hosts are the names in Host headers to which /debug answers, besides addresses and localhost.
	Hosts []string
	Log   *slog.Logger
}

// Pages serves the pages.
type Pages struct {
	Options
	list []page
}

// New returns the pages.
func New(o Options) *Pages {
	p := &Pages{Options: o}
	p.list = p.pages()
	return p
}

// Handler serves the pages. Pages that show configuration answer to known host names only (Options.Hosts). Probes and scrapers may call /ready,
// /metrics and /version by any name: these pages show reasons why the control plane is not ready, counts and the build, and no configuration.
func (p *Pages) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/debug", http.StatusFound) })
	mux.HandleFunc("GET /ready", p.ready)
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.Metrics.registry, promhttp.HandlerOpts{
		Registry: p.Metrics.registry, EnableOpenMetrics: true,
		ErrorLog: slog.NewLogLogger(p.Log.Handler(), slog.LevelWarn),
	}))
	mux.Handle("GET /version", p.json(func(*http.Request) (any, error) { return p.Build, nil }))
	debug := http.NewServeMux()
	debug.HandleFunc("GET /debug", p.index)
	debug.HandleFunc("GET /debug/{$}", p.index)
	debug.Handle("GET /debug/list", p.json(func(*http.Request) (any, error) { return p.list, nil }))
	for _, one := range p.list {
		debug.Handle("GET "+one.Path, p.json(one.show))
	}
	if levels := logging.Of(p.Log); levels != nil {
		debug.Handle("/debug/logging", levels)
	}
	if p.Profile {
		debug.HandleFunc("GET /debug/pprof/", pprof.Index)
		debug.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		debug.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		debug.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		debug.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	debug.HandleFunc("/debug/", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "there is no page "+r.URL.Path+"; /debug lists them", http.StatusNotFound)
	})
	pages := p.local(run.OnlyHosts(p.Hosts, "the control plane has its own names, and those in ISTIOD_CUSTOM_HOST", debug))
	mux.Handle("/debug", pages)
	mux.Handle("/debug/", pages)
	return mux
}

func (p *Pages) ready(w http.ResponseWriter, _ *http.Request) {
	if reasons := p.Ready.Reasons(); len(reasons) > 0 {
		http.Error(w, "not ready: "+strings.Join(reasons, "; "), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ready\n")) // a prober that has gone does not need an answer
}

// local serves h to this host only, unless Remote is set, because the pages show all configuration.
func (p *Pages) local(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.Remote && !loopback(r.RemoteAddr) {
			http.Error(w, "the debug pages are for this host only: ask from there (kubectl port-forward, ssh), or start with --debugRemote",
				http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
