package cluster

import (
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// What a client of the mesh offers to speak within TLS. A server that tells ports' protocols by looking knows HTTP by the
// first ones; a proxy of its own would add them per connection, stock Envoy offers the same on all of a cluster's.
const (
	alpnMesh  = "istio"
	alpnHTTP1 = "istio-http/1.1"
	alpnHTTP2 = "istio-h2"
	alpnH2    = "h2"
)

// secure says how a cluster speaks TLS: as the rule says; without one, the mesh's TLS to endpoints that take it.
func (t translation) secure(c *clusterv3.Cluster, http *envoy.HTTP, p mesh.Port, subset *networking.Subset, tls *networking.ClientTLSSettings) {
	if tls == nil {
		t.offer(c, *http, p, subset)
		return
	}
	switch tls.Mode {
	case networking.ClientTLSSettings_ISTIO_MUTUAL:
		m := t.meshTLS(*http, p, subset)
		if tls.Sni != "" {
			m.SNI = tls.Sni
		}
		if len(tls.SubjectAltNames) > 0 {
			m.Names = tls.SubjectAltNames
		}
		envoy.UseTLS(c, m)
	case networking.ClientTLSSettings_SIMPLE, networking.ClientTLSSettings_MUTUAL:
		m := ownTLS(http, tls)
		if len(m.Names) == 0 {
			m.Names = t.services.Names(t.r, t.s)
		}
		envoy.UseTLS(c, m)
	}
}

// secureUnknown says how a cluster speaks TLS whose hosts nobody declared.
func secureUnknown(c *clusterv3.Cluster, http *envoy.HTTP, tls *networking.ClientTLSSettings) {
	switch tls.GetMode() {
	case networking.ClientTLSSettings_ISTIO_MUTUAL:
		http.SNIFromHost = tls.Sni == ""
		envoy.UseTLS(c, envoy.ClientTLS{Mesh: true, Names: tls.SubjectAltNames, SNI: tls.Sni, ALPN: []string{alpnMesh}})
	case networking.ClientTLSSettings_SIMPLE, networking.ClientTLSSettings_MUTUAL:
		envoy.UseTLS(c, ownTLS(http, tls))
	}
}

// offer makes a cluster speak the mesh's TLS to endpoints that take it. Where the address is kept that the client dialled,
// nobody knows which of them it is: all must take it.
func (t translation) offer(c *clusterv3.Cluster, http envoy.HTTP, p mesh.Port, subset *networking.Subset) {
	switch {
	case t.s.External || !t.tables.AutoMTLS(t.r) || !t.services.TakesMeshTLS(t.r, t.s):
	case c.LbPolicy != clusterv3.Cluster_CLUSTER_PROVIDED:
		envoy.OfferTLS(c, t.meshTLS(http, p, subset))
	case !slices.ContainsFunc(t.services.Endpoints(t.r, t.s, p.Number), func(e mesh.PortEndpoint) bool { return !e.MeshTLS() }):
		envoy.UseTLS(c, t.meshTLS(http, p, subset))
	}
}

// meshTLS is TLS with the workload's identity towards others of the mesh.
func (t translation) meshTLS(http envoy.HTTP, p mesh.Port, subset *networking.Subset) envoy.ClientTLS {
	m := envoy.ClientTLS{
		Mesh: true, Names: t.services.Names(t.r, t.s), SNI: envoy.ServerName(p.Number, subset.GetName(), t.s.Host),
		ALPN: []string{alpnMesh},
	}
	switch {
	case http.Upstream == envoy.UpstreamHTTP2:
		m.ALPN = []string{alpnHTTP2, alpnMesh, alpnH2}
	case http.Upstream == envoy.UpstreamHTTP1 && p.Protocol.IsHTTP():
		m.ALPN = []string{alpnHTTP1, alpnMesh}
	}
	return m
}

// ownTLS is TLS as a rule says it. Without a server name, each request's host is one, and without names to verify, the
// server must prove to be that.
func ownTLS(http *envoy.HTTP, tls *networking.ClientTLSSettings) envoy.ClientTLS {
	m := envoy.ClientTLS{
		Roots: tls.CaCertificates, Revoked: tls.CaCrl, Unverified: tls.InsecureSkipVerify.GetValue(),
		Names: tls.SubjectAltNames, SNI: tls.Sni,
	}
	if m.Roots == "" {
		m.Roots = envoy.SystemRoots
	}
	if tls.Mode == networking.ClientTLSSettings_MUTUAL {
		m.Certificate, m.Key = tls.ClientCertificate, tls.PrivateKey
	}
	http.SNIFromHost = m.SNI == ""
	http.NameFromHost = http.SNIFromHost && len(m.Names) == 0 && !m.Unverified
	if http.Upstream == envoy.UpstreamHTTP2 {
		m.ALPN = []string{alpnH2}
	}
	return m
}
