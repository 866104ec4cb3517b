package envoy

import (
	"net/netip"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/proxy_protocol/v3"
	rawv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/internal/security/compliance"
)

// SecretsCluster is the cluster of the agent, which serves secrets.
const SecretsCluster = "sds-grpc"

// The names of secrets that the agent serves.
const (
	workloadSecret = "default"
	meshRootSecret = "ROOTCA"
	SystemRoots    = "system"
)

const (
	tlsSocket           = "envoy.transport_sockets.tls"
	rawSocket           = "envoy.transport_sockets.raw_buffer"
	proxyProtocolSocket = "envoy.transport_sockets.upstream_proxy_protocol"

	// Envoy connects to an endpoint with tlsMode "istio" in this metadata through the socket with the same match.
	socketMatch  = "envoy.transport_socket_match"
	tlsMode      = "tlsMode"
	tlsModeIstio = "istio"
)

// ClientTLS says how a cluster speaks TLS.
type ClientTLS struct {
	// Mesh uses the workload's own certificate and the roots of the mesh. Otherwise Certificate and Key are file names or
	// empty, and Roots is a file name or SystemRoots.
	Mesh             bool
	Certificate, Key string
	Roots            string
	// Credential is the name of a Secret that the control plane serves; empty for none. Its roots are used instead of Roots, and if
	// CredentialPair is true, its certificate and key instead of files.
	Credential     string
	CredentialPair bool
	// SecretCluster is the cluster of the service that serves the Secret; empty if the control plane serves it.
	SecretCluster string
	// CRL is the file name of a certificate revocation list, or empty.
	CRL string
	// InsecureSkipVerify accepts any server certificate.
	InsecureSkipVerify bool
	// SubjectAltNames are the accepted names: the server certificate must have one of them. If there are none, its roots suffice.
	SubjectAltNames []string
	SNI             string
	ALPN            []string
	Parameters      compliance.Parameters
}

// parameters are the TLS parameters. Envoy's default for clients ends at TLS 1.2, so the versions are always said.
func parameters(p compliance.Parameters) *tlsv3.TlsParameters {
	version := func(minor, otherwise uint32) tlsv3.TlsParameters_TlsProtocol {
		switch {
		case minor == compliance.VersionTLS10:
			minor = 0
		case minor > 3 || minor == 0:
			minor = otherwise
		}
		return tlsv3.TlsParameters_TLSv1_0 + tlsv3.TlsParameters_TlsProtocol(minor)
	}
	return &tlsv3.TlsParameters{
		TlsMinimumProtocolVersion: version(p.Min, 2), TlsMaximumProtocolVersion: version(p.Max, 3), EcdhCurves: p.Curves, CipherSuites: p.Ciphers,
	}
}

// TransportSocket is the transport socket for it.
func (t ClientTLS) TransportSocket() *corev3.TransportSocket {
	common := &tlsv3.CommonTlsContext{AlpnProtocols: t.ALPN, TlsParams: parameters(t.Parameters)}
	roots := secret(fileRoots(t.Roots))
	switch {
	case t.Mesh:
		common.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{secret(workloadSecret)}
		roots = secret(meshRootSecret)
	case t.Credential != "":
		name := CredentialSecret(t.Credential)
		if roots = servedSecret(name+RootsSuffix, t.SecretCluster); t.CredentialPair {
			common.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{servedSecret(name, t.SecretCluster)}
		}
	case t.Certificate != "":
		common.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{secret(fileCertificate(t.Certificate, t.Key))}
	}
	if !t.InsecureSkipVerify {
		given := &tlsv3.CertificateValidationContext{}
		for _, name := range t.SubjectAltNames {
			given.MatchTypedSubjectAltNames = append(given.MatchTypedSubjectAltNames, subjectAltName(name))
		}
		if t.CRL != "" {
			given.Crl = &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: t.CRL}}
		}
		common.ValidationContextType = validatedBy(roots, given)
	}
	return socket(tlsSocket, &tlsv3.UpstreamTlsContext{CommonTlsContext: common, Sni: t.SNI})
}

// ServerTLS says how the filter chain of a listener terminates TLS.
type ServerTLS struct {
	// Mesh uses the workload's own certificate, and asks clients for a certificate of the mesh. Its identity must be of one of the
	// TrustDomains, or of any if there are none.
	Mesh         bool
	TrustDomains []string
	// Certificates are pairs of file names of a certificate and its key, used without Mesh.
	Certificates [][2]string
	// Credentials are the names of Secrets with a certificate and its key, which the control plane serves.
	Credentials []string
	// Roots is the file name of the roots of clients' certificates, and RootsCredential the name of a Secret with them. If both are empty,
	// clients need none. CRL is the file name of a certificate revocation list, or empty.
	Roots, RootsCredential, CRL string
	// SecretClusters are the clusters of the services that serve Secrets, by the name of the Secret. The control plane serves all others.
	SecretClusters map[string]string
	// Optional is true if clients may come without a certificate; one that they have must be good. Unverified is true if clients must
	// have one, and any will do.
	Optional, Unverified bool
	// SubjectAltNames are the accepted names: a client's certificate must have one of them; empty for all.
	SubjectAltNames []string
	// Connections is true for connections other than HTTP of clients of the mesh.
	Connections bool
	// SPKI and Hashes are the public keys and certificates that clients may have; empty for all.
	SPKI, Hashes []string
	// QUIC is true for TLS of HTTP/3.
	QUIC       bool
	Parameters compliance.Parameters
}

// serverALPN are the protocols that servers take. The other names that clients of the mesh offer only select filter chains.
func serverALPN() []string { return []string{"h2", "http/1.1"} }

// TransportSocket is the transport socket for it.
func (t ServerTLS) TransportSocket() *corev3.TransportSocket {
	common := &tlsv3.CommonTlsContext{AlpnProtocols: serverALPN(), TlsParams: parameters(t.Parameters)}
	given := &tlsv3.CertificateValidationContext{VerifyCertificateSpki: t.SPKI, VerifyCertificateHash: t.Hashes}
	for _, name := range t.SubjectAltNames {
		given.MatchTypedSubjectAltNames = append(given.MatchTypedSubjectAltNames, subjectAltName(name))
	}
	var roots *tlsv3.SdsSecretConfig
	if t.Connections {
		common.AlpnProtocols = MeshTCP()
	}
	if t.Mesh {
		common.TlsCertificateSdsSecretConfigs, roots = []*tlsv3.SdsSecretConfig{secret(workloadSecret)}, secret(meshRootSecret)
		for _, domain := range t.TrustDomains {
			given.MatchTypedSubjectAltNames = append(given.MatchTypedSubjectAltNames, &tlsv3.SubjectAltNameMatcher{
				SanType: tlsv3.SubjectAltNameMatcher_URI,
				Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "spiffe://" + domain + "/"}},
			})
		}
	}
	for _, pair := range t.Certificates {
		common.TlsCertificateSdsSecretConfigs = append(common.TlsCertificateSdsSecretConfigs, secret(fileCertificate(pair[0], pair[1])))
	}
	for _, name := range t.Credentials {
		common.TlsCertificateSdsSecretConfigs = append(common.TlsCertificateSdsSecretConfigs, servedSecret(CredentialSecret(name), t.SecretClusters[name]))
	}
	switch {
	case t.Roots != "":
		roots = secret(fileRoots(t.Roots))
	case t.RootsCredential != "":
		roots = servedSecret(CredentialSecret(t.RootsCredential)+RootsSuffix, t.SecretClusters[t.RootsCredential])
	}
	if t.CRL != "" {
		given.Crl = &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: t.CRL}}
	}
	asks := roots != nil || t.Unverified
	config := &tlsv3.DownstreamTlsContext{CommonTlsContext: common, RequireClientCertificate: Bool(asks && !t.Optional)}
	switch {
	case t.Unverified:
		given.TrustChainVerification = tlsv3.CertificateValidationContext_ACCEPT_UNTRUSTED
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: given}
	case asks:
		common.ValidationContextType = validatedBy(roots, given)
	}
	if asks {
		// A client that resumes a session shows no certificate. Envoy would take the one that it saw when the session began, even if it
		// has expired or was revoked.
		config.SessionTicketKeysType = &tlsv3.DownstreamTlsContext_DisableStatelessSessionResumption{DisableStatelessSessionResumption: true}
		config.DisableStatefulSessionResumption = true
	}
	if t.QUIC {
		return overQUIC(config)
	}
	return socket(tlsSocket, config)
}

// fileCertificate names the secret with a certificate and its key in files, and fileRoots the secret with roots.
func fileCertificate(certificate, key string) string { return "file-cert:" + certificate + "~" + key }
func fileRoots(name string) string                   { return "file-root:" + name }

// Names of secrets that the control plane serves: SecretScheme, then [NAMESPACE/]NAME of a Secret. The names of its roots end with
// RootsSuffix, and so do the names of the roots in ConfigMaps.
const (
	SecretScheme = "kubernetes://"
	RootsSuffix  = "-cacert"
)

// CredentialSecret returns the name of the secret that a credentialName means. One with a scheme is a name already.
func CredentialSecret(credential string) string {
	if strings.Contains(credential, "://") {
		return credential
	}
	return SecretScheme + credential
}

// servedSecret is the configuration of a secret that the control plane serves on the same stream as clusters and listeners, or that
// the service behind a cluster serves.
func servedSecret(name, cluster string) *tlsv3.SdsSecretConfig {
	if cluster != "" {
		return secretFrom(cluster, name)
	}
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		InitialFetchTimeout:   Duration(secretFetchTimeout),
		ResourceApiVersion:    corev3.ApiVersion_V3,
	}}
}

// validatedBy verifies certificates with the roots of a secret, and as given says.
func validatedBy(roots *tlsv3.SdsSecretConfig, given *tlsv3.CertificateValidationContext) *tlsv3.CommonTlsContext_CombinedValidationContext {
	return &tlsv3.CommonTlsContext_CombinedValidationContext{
		CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
			DefaultValidationContext: given, ValidationContextSdsSecretConfig: roots,
		},
	}
}

// subjectAltName matches one subject alternative name. Its type follows from its form.
func subjectAltName(name string) *tlsv3.SubjectAltNameMatcher {
	m := &tlsv3.SubjectAltNameMatcher{
		SanType: tlsv3.SubjectAltNameMatcher_DNS,
		Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}},
	}
	if strings.Contains(name, "://") {
		m.SanType = tlsv3.SubjectAltNameMatcher_URI
	} else if _, err := netip.ParseAddr(name); err == nil {
		m.SanType = tlsv3.SubjectAltNameMatcher_IP_ADDRESS
	} else if strings.Contains(name, "@") {
		m.SanType = tlsv3.SubjectAltNameMatcher_EMAIL
	}
	return m
}

// secretFetchTimeout is how long a cluster waits for a secret before it is used without. Every connection then fails
// until the secret comes. Without a bound, a cluster whose secret no server serves would warm without end, and Envoy would
// neither acknowledge clusters nor, when it starts, request listeners. The agent answers at once, even if there is no
// such secret, so the bound matters only where nothing serves secrets. Envoy tries to connect four times within two
// seconds.
const secretFetchTimeout = 2 * time.Second

// secret is the configuration of a secret that the agent serves. It uses the State-of-the-World variant, because SDS
// servers that may replace the agent support no other.
func secret(name string) *tlsv3.SdsSecretConfig { return secretFrom(SecretsCluster, name) }

// secretFrom is the configuration of a secret that the service behind a cluster serves.
func secretFrom(cluster, name string) *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
			ApiType: corev3.ApiConfigSource_GRPC, TransportApiVersion: corev3.ApiVersion_V3, SetNodeOnFirstMessageOnly: true,
			GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
				EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: cluster},
			}}},
		}},
		InitialFetchTimeout: Duration(secretFetchTimeout),
		ResourceApiVersion:  corev3.ApiVersion_V3,
	}}
}

// UseTLS makes a cluster speak TLS to every endpoint.
func UseTLS(c *clusterv3.Cluster, t ClientTLS) { c.TransportSocket = t.TransportSocket() }

// UseAutoTLS makes a cluster speak TLS to endpoints that accept the mesh's TLS, and plain text to others.
func UseAutoTLS(c *clusterv3.Cluster, t ClientTLS) {
	c.TransportSocketMatches = []*clusterv3.Cluster_TransportSocketMatch{{
		Name:            tlsMode + "-" + tlsModeIstio,
		Match:           &structpb.Struct{Fields: map[string]*structpb.Value{tlsMode: structpb.NewStringValue(tlsModeIstio)}},
		TransportSocket: t.TransportSocket(),
	}}
}

// SpeaksMeshTLS reports whether a cluster speaks mutual TLS of the mesh, to all endpoints or to some. It must be called before SendProxyProtocol.
func SpeaksMeshTLS(c *clusterv3.Cluster) bool {
	m := new(tlsv3.UpstreamTlsContext)
	if s := c.TransportSocket; s != nil && s.GetTypedConfig().UnmarshalTo(m) == nil {
		certificates := m.GetCommonTlsContext().GetTlsCertificateSdsSecretConfigs()
		return len(certificates) == 1 && certificates[0].GetName() == workloadSecret
	}
	return len(c.TransportSocketMatches) > 0
}

// meshTLSMetadata is the metadata of an endpoint that accepts the mesh's TLS.
func meshTLSMetadata() *corev3.Metadata {
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
		socketMatch: {Fields: map[string]*structpb.Value{tlsMode: structpb.NewStringValue(tlsModeIstio)}},
	}}
}

// SendProxyProtocol makes a cluster begin each connection with a PROXY protocol header, of version 2 or 1, with the
// client's address. It wraps the transport sockets of the cluster, so it must be called after they are set.
func SendProxyProtocol(c *clusterv3.Cluster, version2 bool) {
	config := &corev3.ProxyProtocolConfig{Version: corev3.ProxyProtocolConfig_V1}
	if version2 {
		config.Version = corev3.ProxyProtocolConfig_V2
	}
	around := func(inner *corev3.TransportSocket) *corev3.TransportSocket {
		if inner == nil {
			inner = socket(rawSocket, &rawv3.RawBuffer{})
		}
		return socket(proxyProtocolSocket, &proxyprotocolv3.ProxyProtocolUpstreamTransport{Config: config, TransportSocket: inner})
	}
	c.TransportSocket = around(c.TransportSocket)
	for _, m := range c.TransportSocketMatches {
		m.TransportSocket = around(m.TransportSocket)
	}
}

// IsMeshTLS reports whether a transport socket of a server terminates mutual TLS of the mesh.
func IsMeshTLS(s *corev3.TransportSocket) bool {
	m := new(tlsv3.DownstreamTlsContext)
	if s == nil || s.GetTypedConfig().UnmarshalTo(m) != nil {
		return false
	}
	certificates := m.GetCommonTlsContext().GetTlsCertificateSdsSecretConfigs()
	return m.GetRequireClientCertificate().GetValue() && len(certificates) == 1 && certificates[0].GetName() == workloadSecret
}
