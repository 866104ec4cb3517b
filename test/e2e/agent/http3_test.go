package agent

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"testing"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/pilotmesh/pilot/test/testbed"
)

// overHTTP3 is a client that speaks HTTP/3 only, over connections for a host.
func (e *edge) overHTTP3(host string) *http.Client {
	t := &http3.Transport{
		TLSClientConfig: e.tlsTo(host),
		Dial: func(ctx context.Context, _ string, config *tls.Config, options *quic.Config) (*quic.Conn, error) {
			return quic.DialAddr(ctx, testbed.Loopback(e.gateway), config, options)
		},
	}
	e.Cleanup(func() { _ = t.Close() })
	return &http.Client{Transport: t, Timeout: patience}
}

// shownOverQUIC opens a connection to the gateway over QUIC for a host, and returns the subject of the certificate that it shows.
func (e *edge) shownOverQUIC(ctx context.Context, host string) (string, error) {
	config := e.tlsTo(host)
	config.NextProtos = []string{http3.NextProtoH3}
	conn, err := quic.DialAddr(ctx, testbed.Loopback(e.gateway), config, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.CloseWithError(0, "") }()
	return conn.ConnectionState().TLS.PeerCertificates[0].Subject.CommonName, nil
}

// refusesQUIC wants no connection over QUIC for a host.
func (e *edge) refusesQUIC(host string) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), patience)
	defer cancel()
	if got, err := e.shownOverQUIC(ctx, host); err == nil {
		e.Errorf("%s has the certificate %s over QUIC", host, got)
	}
}

// TestHTTP3: a gateway takes HTTP/3 where that is asked for, and says so to other clients. While requests run over HTTP/3, a certificate is renewed,
// routes change and a host comes; no request fails, and connections stay. A server that asks clients for certificates has no HTTP/3.
func TestHTTP3(t *testing.T) {
	mutual := fmt.Sprintf("{port: {number: 443, name: mutual, protocol: HTTPS}, hosts: [%s], tls: {mode: MUTUAL, credentialName: b}}", edgeHost("mutual"))
	e := newEdge(t, []string{"PILOT_ENABLE_QUIC_LISTENERS=true"}, []string{"a", "b"}, mutual)
	e.serves(edgeHost("a"), http.StatusOK)
	resp, err := e.answer(t.Context(), e.over(edgeHost("a")), edgeHost("a"))
	if err != nil || resp.Header.Get("Alt-Svc") != `h3=":443"; ma=86400` || resp.ProtoMajor != 2 {
		t.Fatalf("over TCP: %v, %v", resp, err)
	}
	client := e.overHTTP3(edgeHost("a"))
	if resp, err = e.answer(t.Context(), client, edgeHost("a")); err != nil || resp.StatusCode != http.StatusOK || resp.ProtoMajor != 3 {
		t.Fatalf("over HTTP/3: %v, %v", resp, err)
	}
	e.refusesQUIC(edgeHost("mutual"))
	e.refusesQUIC(edgeHost("missing"))

	load := testbed.StartAsking(t.Context(), 4, 50, func(ctx context.Context, _ *http.Client) (string, error) {
		resp, err := e.answer(ctx, client, edgeHost("a"))
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %d", resp.StatusCode)
		}
		return "web", err
	})
	e.issue("a", "second")
	e.presentsOverQUIC("a", "second")
	e.presents(edgeHost("a"), "second")
	e.routes(", headers: {response: {set: {x-edited: yes}}}")
	e.await("the edited route", func(ctx context.Context) error {
		resp, err := e.answer(ctx, client, edgeHost("a"))
		if err == nil && resp.Header.Get("X-Edited") == "" {
			err = fmt.Errorf("the headers are %v", resp.Header)
		}
		return err
	})
	e.issue("c", "first")
	e.servers(mutual, simpleServer("a"), simpleServer("b"), simpleServer("c"))
	e.presentsOverQUIC("c", "first")
	if tally := load.Stop(); tally.Failures > 0 || tally.Answers["web"] == 0 {
		t.Errorf("%d requests succeeded and %d failed, the first one: %v", tally.Answers["web"], tally.Failures, tally.First)
	}
	e.unrejected()
}

// presentsOverQUIC waits until the gateway shows a certificate over QUIC whose subject has a name, for the host of a Secret.
func (e *edge) presentsOverQUIC(secret, subject string) {
	e.Helper()
	e.await(secret+" with the certificate "+subject+" over QUIC", func(ctx context.Context) error {
		got, err := e.shownOverQUIC(ctx, edgeHost(secret))
		if err == nil && got != subject {
			err = fmt.Errorf("the certificate is %s", got)
		}
		return err
	})
}
