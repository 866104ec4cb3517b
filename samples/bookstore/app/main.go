// Command app is each of the bookstore's services, by -role. It shows a mesh at work and knows nothing of one: it calls
// other services by name, and where its sidecar listens for them is the only thing that it must know.
//
// Every answer names in its header Served-By who took part in it, so that a client can see where requests went.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const servedBy = "Served-By"

// service is one running service.
type service struct {
	role, version string
	calls         map[string]string // by service: host:port
	client        *http.Client
	served        atomic.Int64
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("bookstore: ")
	role := flag.String("role", "shop", "which service this is: shop, catalog, reviews or ratings")
	version := flag.String("version", "v1", "which version: v1, v2 or v3 (they differ in reviews)")
	listen := flag.String("listen", "127.0.0.1:9011", "where to listen")
	calls := flag.String("calls", "", "where the services listen that this one calls: reviews:9030,catalog:9020; or catalog=catalog.service.consul:9020 where a service has another name")
	via := flag.String("via", "127.0.0.1", "the address at which all of these are, whatever their names: the address of the sidecar; empty where names lead to them")
	flag.Parse()
	s := &service{role: *role, version: *version, calls: map[string]string{}, client: &http.Client{
		Timeout: 10 * time.Second,
		// Without a sidecar it is connections that are spread over a service's workloads: then each request gets one.
		Transport: &http.Transport{MaxIdleConnsPerHost: 32, DisableKeepAlives: *via == "", DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if _, port, _ := net.SplitHostPort(address); *via != "" {
				address = net.JoinHostPort(*via, port)
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}},
	}}
	for call := range strings.SplitSeq(*calls, ",") {
		name, at, renamed := strings.Cut(call, "=")
		if !renamed {
			name, _, _ = strings.Cut(call, ":")
			at = call
		}
		s.calls[name] = at
	}
	if err := s.run(*listen); err != nil {
		log.Fatal(err)
	}
}

func (s *service) run(address string) error {
	answer := map[string]http.HandlerFunc{"shop": s.shop, "catalog": s.catalog, "reviews": s.reviews, "ratings": s.ratings}[s.role]
	if answer == nil {
		return fmt.Errorf("-role: there is no %q; choose shop, catalog, reviews or ratings", s.role)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.served.Add(1)
		w.Header().Add(servedBy, s.role+"-"+s.version)
		answer(w, r)
	})
	mux.HandleFunc("/served", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, s.served.Load()) })
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (s *service) shop(w http.ResponseWriter, r *http.Request) {
	book, err := s.call(w, r, "catalog")
	if err != nil {
		http.Error(w, "the shop is closed: "+err.Error(), http.StatusBadGateway)
		return
	}
	reviews, err := s.call(w, r, "reviews")
	if err != nil {
		reviews = "  (no reviews today: " + err.Error() + ")\n"
	}
	fmt.Fprint(w, book, reviews)
}

func (s *service) catalog(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintln(w, "The Left Hand of the Mesh, 304 pages, 12.80")
}

// reviews differ by version: v1 has the words, v2 names, v3 stars, which it has from ratings.
func (s *service) reviews(w http.ResponseWriter, r *http.Request) {
	text, by := "  \"I could not put it down.\"", ""
	switch s.version {
	case "v2":
		by = "  Alma, Bergen"
	case "v3":
		stars, err := s.call(w, r, "ratings")
		if err != nil {
			stars = "(no stars today: " + err.Error() + ")"
		}
		by = "  Alma, Bergen  " + strings.TrimSpace(stars)
	}
	fmt.Fprintln(w, text+by)
}

func (s *service) ratings(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "★★★★☆") }

// call asks another service, for the client of this one.
func (s *service) call(w http.ResponseWriter, r *http.Request, name string) (string, error) {
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://"+s.calls[name]+r.URL.Path, http.NoBody)
	if err != nil {
		return "", err
	}
	for _, h := range []string{"End-User", "X-Request-Id", "Traceparent"} {
		if v := r.Header.Get(h); v != "" {
			req.Header.Set(h, v)
		}
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answered %s: %.100s", name, resp.Status, strings.TrimSpace(string(body)))
	}
	for _, by := range resp.Header.Values(servedBy) {
		w.Header().Add(servedBy, by)
	}
	return string(body), nil
}
