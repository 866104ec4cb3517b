package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/pilotmesh/pilot/test/kit/certs"
)

// asks asks a host of the gateway with a certificate of an authority, or without one, over a connection of its own.
func (e *edge) asks(ctx context.Context, host string, of *certs.Authority) (*http.Response, error) {
	config := e.tlsTo(host)
	if of != nil {
		pair, err := of.Issue(certs.Identity{Name: "client"})
		if err != nil {
			return nil, err
		}
		own, err := pair.TLS()
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	t := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	return e.answer(ctx, &http.Client{Transport: t, Timeout: patience}, host)
}

// admitsOf waits until the gateway answers a client with a certificate of an authority, or refuses its connection.
func (e *edge) admitsOf(host string, of *certs.Authority, want bool) {
	e.Helper()
	e.await(fmt.Sprintf("%s to admit a client: %t", host, want), func(ctx context.Context) error {
		resp, err := e.asks(ctx, host, of)
		switch {
		case want && err == nil && resp.StatusCode != http.StatusOK:
			return fmt.Errorf("status %d", resp.StatusCode)
		case !want && err == nil:
			return errors.New("it is admitted")
		case want:
			return err
		}
		return nil
	})
}

// TestConfigMap: a gateway takes the authorities of its clients from a ConfigMap, here in the place of one, and follows it: clients of other
// authorities, and without a certificate, are refused. The ConfigMap of another namespace, and one in the place of a certificate with its key,
// refuse all clients, with a problem.
func TestConfigMap(t *testing.T) {
	first, second := newAuthority(t, "first"), newAuthority(t, "second")
	e := newEdge(t, nil, []string{"a", "mutual", "foreign"})
	server := func(name, mode, credential, roots string) string {
		return fmt.Sprintf("{port: {number: 443, name: %s, protocol: HTTPS}, hosts: [%s], tls: {mode: %s, credentialName: '%s'%s}}", name, edgeHost(name), mode, credential, roots)
	}
	e.file("clients", "ca.crt", first.Pair().Cert)
	e.servers(simpleServer("a"), server("mutual", "MUTUAL", "mutual", ", caCertCredentialName: 'configmap://shop/clients'"),
		server("foreign", "MUTUAL", "foreign", ", caCertCredentialName: 'configmap://depot/clients'"), server("pair", "SIMPLE", "configmap://shop/clients", ""))
	e.admitsOf(edgeHost("mutual"), first, true)
	e.admitsOf(edgeHost("mutual"), second, false)
	e.admitsOf(edgeHost("mutual"), nil, false)
	e.serves(edgeHost("a"), http.StatusOK)
	e.problem(`SDS "configmap://depot/clients-cacert"`, "the ConfigMap is of namespace depot, and the proxy of shop")
	e.admitsOf(edgeHost("foreign"), first, false)
	e.problem("spec.servers[3].tls.credentialName", "a ConfigMap has no certificate with its key")
	e.admitsOf(edgeHost("pair"), nil, false)

	e.file("clients", "ca.crt", second.Pair().Cert)
	e.admitsOf(edgeHost("mutual"), second, true)
	e.admitsOf(edgeHost("mutual"), first, false)
	e.file("clients", "ca.crt", "nonsense")
	e.problem("ca.crt", "the last good version stays in force")
	e.admitsOf(edgeHost("mutual"), second, true)
	e.unrejected()
}

// newAuthority is a new authority.
func newAuthority(t *testing.T, name string) *certs.Authority {
	t.Helper()
	a, err := certs.NewAuthority(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
