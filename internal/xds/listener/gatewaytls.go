package listener

import (
	"cmp"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/pilotmesh/pilot/internal/api/destination"
	gateways "github.com/pilotmesh/pilot/internal/api/gateway"
	"github.com/pilotmesh/pilot/internal/security/compliance"
	"github.com/pilotmesh/pilot/internal/view/gateway"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// tls terminates TLS, or TLS of QUIC, as a server says. The Secrets that it names are in the namespace of the gateways.
func (b gatewayBuilder) tls(s *gateway.Placed) *corev3.TransportSocket {
	verifies := s.TLS.Mode == gateways.TLSMutual || s.TLS.Mode == gateways.TLSOptional
	t := envoy.ServerTLS{
		Certificates: s.TLS.Certificates, Credentials: s.TLS.Credentials, SPKI: s.TLS.SPKI, Hashes: s.TLS.Hashes, SubjectAltNames: s.TLS.SubjectAltNames,
		CRL: s.TLS.CRL, Optional: s.TLS.Mode == gateways.TLSOptional, QUIC: b.at.QUIC,
		Connections: s.TLS.Mode == gateways.TLSMesh && s.Kind() == gateways.TerminatesTLS,
		Parameters:  b.q.tables.TLS(b.r, compliance.Parameters{Min: s.TLS.Min, Max: s.TLS.Max, Curves: s.TLS.Curves, Ciphers: s.TLS.Ciphers}),
	}
	switch {
	case s.TLS.Mode == gateways.TLSMesh:
		t.Mesh, t.Certificates, t.Credentials = true, nil, nil
		t.Parameters = b.q.tables.MeshTLS(b.r) // the defaults for other TLS do not count
		t.Parameters.Min, t.Parameters.Max = cmp.Or(s.TLS.Min, t.Parameters.Min), cmp.Or(s.TLS.Max, t.Parameters.Max)
	case verifies && s.TLS.SkipVerify:
		t.Unverified = true
	case verifies && s.TLS.RootsCredential != "":
		t.RootsCredential = rootsCredential(s.TLS.RootsCredential)
	case verifies && len(t.Credentials) > 0:
		t.RootsCredential = t.Credentials[0]
	case verifies:
		t.Roots = s.TLS.Roots
	}
	if len(t.Credentials) > 0 {
		t.Certificates = nil
	}
	t.SecretClusters = b.secretClusters(append(slices.Clip(t.Credentials), t.RootsCredential))
	return t.TransportSocket()
}

// rootsCredential is the credential whose roots are meant. The name of a Secret with roots alone may have their suffix already; the name of a
// ConfigMap is taken as it is.
func rootsCredential(name string) string {
	if strings.HasPrefix(name, destination.ConfigMapScheme) {
		return name
	}
	return strings.TrimSuffix(name, envoy.RootsSuffix)
}

// secretClusters returns the clusters of the services of extension providers that serve Secrets, by the name of the Secret. A Secret whose service
// gateways cannot reach is not among them: the control plane then answers that there is none, and clients that need it are refused.
func (b gatewayBuilder) secretClusters(credentials []string) map[string]string {
	clusters := map[string]string{}
	for _, name := range credentials {
		if to, named, trouble := b.q.scope.SecretService(b.r, scope.Set{Namespace: b.Namespace}, name); named && trouble == "" {
			clusters[name] = envoy.OutboundCluster(to.Port, "", to.Host)
		}
	}
	return clusters
}
