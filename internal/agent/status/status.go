// Package status is the agent's own HTTP server: readiness for probes, Envoy's metrics and the agent's few, what is known
// of certificates, and the orders to drain and to end.
//
// Orders are taken from loopback only, by POST; certificates are told of there only, and never shown. Nothing is cached: every answer is Envoy's of this moment. Handlers keep
// no state and start no goroutines. The package must not import settings or processes.
package status

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/pilotmesh/pilot/internal/agent/secret"
)

// patience is how long Envoy may take to say whether it is ready. Probes give up after a second or a few.
const patience = time.Second

// Envoy is what is asked.
type Envoy interface {
	// Ready returns nil if it serves what the control plane has told it, and otherwise why not.
	Ready(ctx context.Context) error
	// Do sends a request to the admin interface; the answer's body is the caller's to close.
	Do(ctx context.Context, method, path string) (*http.Response, error)
}

// Life is what orders go to.
type Life interface {
	// Leaving says that clients are, or will be, asked to go elsewhere; Serving that they may come.
	Leaving() bool
	Serving() bool
	// Leave asks for that; End asks for the end.
	Leave()
	End()
}

// Secrets is what Envoy is given by the agent to prove who it is, and to know others.
type Secrets interface {
	// Secrets describes them in the order of their names, without their content.
	Secrets() []secret.Status
}

// Handler serves the paths that Istio's agent serves, and /debug/secretz.
func Handler(e Envoy, l Life, secrets Secrets, log *slog.Logger) http.Handler {
	s := &server{envoy: e, life: l, secrets: secrets, log: log}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz/ready", s.ready)
	mux.HandleFunc("GET /stats/prometheus", s.metrics)
	mux.HandleFunc("GET /metrics", s.metrics)
	mux.Handle("GET /debug/secretz", local(http.HandlerFunc(s.secretz)))
	mux.Handle("POST /drain", local(s.order("drain", l.Leave)))
	mux.Handle("POST /quitquitquit", local(s.order("end", l.End)))
	return mux
}

type server struct {
	envoy   Envoy
	life    Life
	secrets Secrets
	log     *slog.Logger
}

func (s *server) ready(w http.ResponseWriter, r *http.Request) {
	if s.life.Leaving() {
		http.Error(w, "not ready: the proxy is draining", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	if err := s.envoy.Ready(ctx); err != nil {
		http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	if !s.life.Serving() {
		http.Error(w, "not ready: the proxy has just started", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

// metrics passes Envoy's on, and adds the agent's.
func (s *server) metrics(w http.ResponseWriter, r *http.Request) {
	resp, err := s.envoy.Do(r.Context(), http.MethodGet, "/stats/prometheus")
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	w.WriteHeader(resp.StatusCode)
	if _, err := io.Copy(w, resp.Body); err != nil {
		s.log.Debug("passing metrics on", "error", err)
		return
	}
	if resp.StatusCode == http.StatusOK {
		fmt.Fprint(w, secretMetrics(s.secrets.Secrets()))
	}
}

// order does what somebody has told the agent to do.
func (s *server) order(what string, do func()) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.log.Info("got an order", "order", what, "from", r.RemoteAddr)
		do()
		fmt.Fprintln(w, "OK")
	})
}

// local refuses others than this host.
func local(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		from, parseErr := netip.ParseAddr(host)
		if err != nil || parseErr != nil || !from.Unmap().IsLoopback() {
			http.Error(w, "this is for this host only, over loopback", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
