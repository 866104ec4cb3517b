package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/pilotmesh/pilot/test/kit/echo"
)

func (s *server) openHTTP(ctx context.Context, address string) error {
	return s.openWeb(ctx, address, nil)
}

// openHTTPS asks for a client certificate without wanting one: it reports whose it was.
func (s *server) openHTTPS(ctx context.Context, address string) error {
	return s.openWeb(ctx, address, &tls.Config{Certificates: []tls.Certificate{s.certificate}, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2", "http/1.1"}})
}

func (s *server) openWeb(ctx context.Context, address string, encrypt *tls.Config) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	if encrypt != nil {
		l = tls.NewListener(l, encrypt)
	}
	s.servers.HTTP(l, echo.NewHTTP(s.routes()))
	return nil
}

// routes: everything is echoed, except paths that ask for a certain behaviour.
func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", s.echo)
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, err := strconv.Atoi(r.PathValue("code"))
		if err != nil || code < 200 || code > 599 {
			http.Error(w, "/status/ wants a number from 200 to 599", http.StatusBadRequest)
			return
		}
		w.WriteHeader(code)
	})
	mux.HandleFunc("/delay/{time}", func(w http.ResponseWriter, r *http.Request) {
		d, err := time.ParseDuration(r.PathValue("time"))
		if err != nil || d > time.Minute {
			http.Error(w, "/delay/ wants a duration of at most 1m, for instance 200ms", http.StatusBadRequest)
			return
		}
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			s.echo(w, r)
		case <-r.Context().Done():
		}
	})
	return mux
}

func (s *server) echo(w http.ResponseWriter, r *http.Request) {
	report := s.sign(echo.Request(r))
	var err error
	if report.Bytes, err = io.Copy(io.Discard, r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	echo.Answer(w, report)
}
