package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/pilotmesh/pilot/test/demo/tour"
	"github.com/pilotmesh/pilot/test/kit/certs"
	"github.com/pilotmesh/pilot/test/testbed"
)

const (
	// ingressName is the gateway and its account, ingressIP its address, and ingressPort the port of the sample where it listens.
	ingressName = "ingress"
	ingressIP   = "127.1.0.7"
	ingressPort = 9043
	// authorityFile is the certificate of the authority that clients of the gateway trust.
	authorityFile = "ca.pem"
	// host is the name of the shop at the gateway. Names below localhost are loopback addresses for curl and browsers.
	host = "shop.localhost"
	// secret is the folder of the gateway's certificate, below the folder of all Secrets.
	secret = "bookstore/shop-certificate"
)

// credentials makes the authority, and the first certificate of the gateway.
func (s *stage) credentials() (err error) {
	if s.authority, err = certs.NewAuthority("bookstore demo"); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.Dir, authorityFile), []byte(s.authority.Pair().Cert), 0o644); err != nil {
		return err
	}
	_, err = s.certify()
	return err
}

// secrets is the folder of all Secrets.
func (s *stage) secrets() string { return filepath.Join(s.Dir, "secrets") }

// certify replaces the certificate of the gateway, and returns the number of the new one.
func (s *stage) certify() (serial string, err error) {
	pair, err := s.authority.Issue(certs.Identity{Name: "shop", Hosts: []string{host}})
	if err != nil {
		return "", err
	}
	own, err := pair.TLS()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(s.secrets(), secret)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return own.Leaf.SerialNumber.String(), pair.Write(dir, "tls")
}

// ingress starts the gateway, and waits until it answers.
func (s *stage) ingress(ctx context.Context) error {
	if err := s.Copy(filepath.Join(s.Root, "samples", "bookstore", "ingress"), s.Discovery.ConfigDir, nil); err != nil {
		return err
	}
	a, err := s.Agent(ctx, "router", ingressName, testbed.Node{Name: ingressName, Namespace: "bookstore", IP: ingressIP})
	if err != nil {
		return err
	}
	client := s.outside()
	defer client.CloseIdleConnections()
	return testbed.Until(ctx, "the gateway to answer over HTTPS", func(ctx context.Context) error {
		if err := a.Alive(); err != nil {
			return err
		}
		_, err := s.enter(ctx, client)
		return err
	})
}

// outside is a client that trusts the authority alone and makes a connection for every request, so that every answer shows a certificate.
func (s *stage) outside() *http.Client {
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: s.authority.Pool(), ServerName: host},
	}}
}

// enter asks for the shop's page from outside, and returns the number of the certificate that the gateway has shown.
func (s *stage) enter(ctx context.Context, client *http.Client) (serial string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+testbed.Loopback(ingressPort+s.Offset)+"/", http.NoBody)
	if err != nil {
		return "", err
	}
	req.Host = s.entrance()
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the gateway answered %s", resp.Status)
	}
	return resp.TLS.PeerCertificates[0].SerialNumber.String(), nil
}

// entrance is where the gateway is.
func (s *stage) entrance() string { return host + ":" + strconv.Itoa(ingressPort+s.Offset) }

// rotate replaces the certificate of the gateway while requests come in, and prints how long it took. Every request must be answered.
func (s *stage) rotate(ctx context.Context) error {
	const after = 50 // requests that see the new certificate
	client := s.outside()
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	seen := map[string]int{}
	load := testbed.StartAsking(ctx, 2, 50, func(ctx context.Context, _ *http.Client) (string, error) {
		serial, err := s.enter(ctx, client)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			seen[serial]++
		}
		return "gateway", err
	})
	begin := time.Now()
	serial, err := s.certify()
	var shown time.Duration
	if err == nil {
		waiting, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		err = testbed.Until(waiting, "the new certificate", func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if shown == 0 && seen[serial] > 0 {
				shown = time.Since(begin)
			}
			if seen[serial] < after {
				return fmt.Errorf("%d connections have seen it", seen[serial])
			}
			return nil
		})
	}
	tally := load.Stop()
	if tally.Failures > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d requests failed during the rotation of the certificate, the first at %w", tally.Failures, tally.Total(), tally.First))
	}
	if err != nil {
		return err
	}
	s.Line(fmt.Sprintf("\n  a new certificate at the gateway after %.1f s; %d requests over HTTPS, %s", shown.Seconds(), tally.Total(), s.In(tour.Green, "none failed")))
	return nil
}
