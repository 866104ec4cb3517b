package cluster

import (
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/security/compliance"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// alpnH2 is the ALPN value of HTTP/2 for servers that are not in the mesh.
const alpnH2 = "h2"

// setTLS sets how a cluster speaks TLS: as the rule says, or without a rule the mesh's TLS to endpoints that accept it.
func (t translation) setTLS(c *clusterv3.Cluster, http *envoy.HTTP, p mesh.Port, subset *networking.Subset, tls *networking.ClientTLSSettings) {
	if tls == nil {
		t.setAutoTLS(c, *http, p, subset)
		return
	}
	switch tls.Mode {
	case networking.ClientTLSSettings_ISTIO_MUTUAL:
		m := t.meshTLS(*http, p, subset)
		if tls.Sni != "" {
			m.SNI = tls.Sni
		}
		if len(tls.SubjectAltNames) > 0 {
			m.SubjectAltNames = tls.SubjectAltNames
		}
		envoy.UseTLS(c, m)
	case networking.ClientTLSSettings_SIMPLE, networking.ClientTLSSettings_MUTUAL:
		m := t.ruleTLS(t.r, http, tls)
		if t.policy != nil && (t.policy.Selected || t.client.Gateway) {
			t.useCredential(&m, tls)
		}
		if len(m.SubjectAltNames) == 0 && !t.s.OfCluster() { // certificates of applications do not name the service accounts of pods
			m.SubjectAltNames = t.services.SubjectAltNames(t.r, t.s)
		}
		envoy.UseTLS(c, m)
	}
}

// useCredential makes TLS use the Secret that a rule names, instead of files. A rule that selects its clients finds the services of extension
// providers in its namespace. Clusters of gateways are shared by namespaces, so other rules find the services that all see.
func (t translation) useCredential(m *envoy.ClientTLS, tls *networking.ClientTLSSettings) {
	m.Credential, m.CredentialPair = tls.CredentialName, tls.Mode == networking.ClientTLSSettings_MUTUAL
	var set scope.Set
	if t.policy.Selected {
		set.Namespace = t.client.Rules.Namespace
	}
	if to, named, trouble := t.scope.SecretService(t.r, set, tls.CredentialName); named && trouble == "" {
		m.SecretCluster = envoy.OutboundCluster(to.Port, "", to.Host)
	}
}

// setUnknownTLS sets how the cluster for undeclared hosts speaks TLS.
func (q *Queries) setUnknownTLS(r *query.Reader, c *clusterv3.Cluster, http *envoy.HTTP, tls *networking.ClientTLSSettings) {
	switch tls.GetMode() {
	case networking.ClientTLSSettings_ISTIO_MUTUAL:
		http.SNIFromHost = tls.Sni == ""
		envoy.UseTLS(c, envoy.ClientTLS{Mesh: true, SubjectAltNames: tls.SubjectAltNames, SNI: tls.Sni, ALPN: envoy.MeshClientALPN(false, false), Parameters: q.tables.ClientMeshTLS()})
	case networking.ClientTLSSettings_SIMPLE, networking.ClientTLSSettings_MUTUAL:
		envoy.UseTLS(c, q.ruleTLS(r, http, tls))
	}
}

// setAutoTLS makes a cluster speak the mesh's TLS to endpoints that accept it. Where connections go to their original
// destination, Envoy does not know which endpoint that is, so all endpoints must accept it.
func (t translation) setAutoTLS(c *clusterv3.Cluster, http envoy.HTTP, p mesh.Port, subset *networking.Subset) {
	switch {
	case t.s.External || !t.tables.AutoMTLS(t.r) || !t.services.AcceptsMeshTLS(t.r, t.s):
	case c.LbPolicy != clusterv3.Cluster_CLUSTER_PROVIDED:
		envoy.UseAutoTLS(c, t.meshTLS(http, p, subset))
	case !slices.ContainsFunc(t.services.Endpoints(t.r, t.s, p.Number), func(e mesh.PortEndpoint) bool { return !e.TakesMeshTLS() }):
		envoy.UseTLS(c, t.meshTLS(http, p, subset))
	}
}

// meshTLS is TLS with the workload's own identity, to other workloads of the mesh.
func (t translation) meshTLS(http envoy.HTTP, p mesh.Port, subset *networking.Subset) envoy.ClientTLS {
	return envoy.ClientTLS{
		Mesh: true, SubjectAltNames: t.services.SubjectAltNames(t.r, t.s), SNI: envoy.ServerName(p.Number, subset.GetName(), t.s.Host),
		ALPN: envoy.MeshClientALPN(http.Upstream == envoy.UpstreamHTTP1 && p.Protocol.IsHTTP(), http.Upstream == envoy.UpstreamHTTP2), Parameters: t.tables.ClientMeshTLS(),
	}
}

// ruleTLS is TLS as a rule sets it. If the rule has no SNI, the host of each request is used, and if it has no names to
// verify either, the server certificate must have that name.
func (q *Queries) ruleTLS(r *query.Reader, http *envoy.HTTP, tls *networking.ClientTLSSettings) envoy.ClientTLS {
	m := envoy.ClientTLS{
		Roots: tls.CaCertificates, CRL: tls.CaCrl, InsecureSkipVerify: tls.InsecureSkipVerify.GetValue(),
		SubjectAltNames: tls.SubjectAltNames, SNI: tls.Sni, Parameters: q.tables.TLS(r, compliance.Parameters{}),
	}
	if m.Roots == "" {
		m.Roots = envoy.SystemRoots
	}
	if tls.Mode == networking.ClientTLSSettings_MUTUAL {
		m.Certificate, m.Key = tls.ClientCertificate, tls.PrivateKey
	}
	http.SNIFromHost = m.SNI == ""
	http.SANFromHost = http.SNIFromHost && len(m.SubjectAltNames) == 0 && !m.InsecureSkipVerify
	if http.Upstream == envoy.UpstreamHTTP2 {
		m.ALPN = []string{alpnH2}
	}
	return m
}
