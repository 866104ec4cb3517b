package agent

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/test/kit/certs"
	"github.com/pilotmesh/pilot/test/testbed"
)

// trustType is the type of trust bundles.
const trustType = "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig"

// mutualTLS is a listener that asks clients for certificates of the roots of the mesh.
const mutualTLS = `{"@type": %q, "name": "web", "address": {"socketAddress": {"address": "127.0.0.1", "portValue": %d}},
	"filterChains": [{
		"transportSocket": {"name": "tls", "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
			"requireClientCertificate": true, "commonTlsContext": {
				"tlsCertificateSdsSecretConfigs": [{"name": "default", "sdsConfig": {"resourceApiVersion": "V3", "apiConfigSource": {"apiType": "GRPC", "transportApiVersion": "V3",
					"grpcServices": [{"envoyGrpc": {"clusterName": "sds-grpc"}}]}}}],
				"validationContextSdsSecretConfig": {"name": "ROOTCA", "sdsConfig": {"resourceApiVersion": "V3", "apiConfigSource": {"apiType": "GRPC", "transportApiVersion": "V3",
					"grpcServices": [{"envoyGrpc": {"clusterName": "sds-grpc"}}]}}}}}},
		"filters": [{"name": "http", "typedConfig": {
			"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", "statPrefix": "web",
			"routeConfig": {"virtualHosts": [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "directResponse": {"status": 200}}]}]},
			"httpFilters": [{"name": "router", "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]}}]}]}`

// TestTrustBundle: Envoy accepts clients whose certificates are signed by a root that the control plane has put into a trust bundle, as long
// as that is in force, whatever is wrong with another one.
func TestTrustBundle(t *testing.T) {
	for _, node := range []testbed.Node{{}, {SotW: true}} {
		t.Run(node.Variant(), func(t *testing.T) {
			b := newBed(t) // whose authority signs the certificate of the workload
			b.TLSOnly()
			b.serve()
			control := newHandmade(t)
			control.set(listenerType, "web", fmt.Sprintf(mutualTLS, listenerType, b.port))
			o := b.certified("web")
			o.Args = append(o.Args, "--controlPlaneAuthPolicy=NONE")
			o.Env = append(o.Env, "CA_ADDR="+b.Secure, "PROXY_CONFIG_XDS_AGENT=true")
			node.Name, node.Namespace, node.Discovery = "app", "shop", control.address
			a, err := testbed.StartAgent(o, t.TempDir(), node)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(a.Stop)
			other, err := certs.NewAuthority("other")
			if err != nil {
				t.Fatal(err)
			}
			pair, err := other.Issue(certs.Identity{URIs: []string{"spiffe://other/ns/a/sa/b"}})
			if err != nil {
				t.Fatal(err)
			}
			if err := a.AwaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			bundle := func(texts ...string) {
				body, err := anypb.New(&meshconfig.ProxyConfig{CaCertificatesPem: texts})
				if err != nil {
					t.Fatal(err)
				}
				control.put(trustType, "bundle", body)
			}
			b.accepts(pair, false)
			bundle(other.Pair().Cert)
			b.accepts(pair, true)
			bundle("nonsense")
			b.await("a NACK", func(context.Context) error {
				if !control.saysWhy("certificate 1 of the trust bundle") {
					return fmt.Errorf("there is none")
				}
				return nil
			})
			b.accepts(pair, true)
			bundle()
			b.accepts(pair, false)
		})
	}
}

// accepts waits until the sidecar accepts a client or does not.
func (b *bed) accepts(pair certs.Pair, want bool) {
	b.Helper()
	own, err := pair.TLS()
	if err != nil {
		b.Fatal(err)
	}
	b.await(fmt.Sprintf("a client that is accepted (%t)", want), func(ctx context.Context) error {
		client := &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{own}, InsecureSkipVerify: true}, //nolint:gosec // it is about the client
		}}
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+testbed.Loopback(b.port)+"/", nil)
		if err != nil {
			return err
		}
		a, err := client.Do(q)
		if err == nil {
			err = a.Body.Close()
		}
		if !want && err != nil && strings.Contains(err.Error(), "remote error: tls") {
			return nil
		}
		if !want {
			return fmt.Errorf("it is accepted, or %w", err)
		}
		return err
	})
}
