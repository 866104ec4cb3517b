package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"time"
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
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	web := &http.Server{Handler: s.routes(), Protocols: &protocols, ReadHeaderTimeout: 10 * time.Second}
	s.onClose(func(ctx context.Context) error {
		if err := web.Shutdown(ctx); err != nil {
			return errors.Join(fmt.Errorf("requests did not end in time: %w", err), web.Close())
		}
		return nil
	})
	s.run("HTTP", func() error {
		if err := web.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return nil
}

// routes: everything is echoed, but for paths that ask for a certain behaviour.
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
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	remote, _ := net.ResolveTCPAddr("tcp", r.RemoteAddr) // an address and a port: nothing is looked up
	report := s.about(r.Proto, remote, local)
	report.Method, report.Host, report.Path, report.Headers, report.TLS = r.Method, r.Host, r.URL.RequestURI(), r.Header, describe(r.TLS)
	var err error
	if report.Bytes, err = io.Copy(io.Discard, r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("content-type", "application/json")
	_ = json.NewEncoder(w).Encode(report) // the peer has gone: nobody left to tell
}

// selfSigned makes a certificate for name.
func selfSigned(name string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making a key: %w", err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name, "localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(365 * 24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("signing it: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
