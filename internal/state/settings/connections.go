package settings

import (
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api/connection"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

// Slashes is how encoded slashes in paths are handled.
type Slashes uint8

// The ways to handle encoded slashes.
const (
	// KeepSlashes leaves %2F and its like as they are.
	KeepSlashes Slashes = iota
	// DecodeSlashes turns them into slashes.
	DecodeSlashes
)

// HTTPSettings are the settings of the mesh configuration for HTTP connection managers. In their row, the bits of a number hold
// the flags, and the text is Server.
type HTTPSettings struct {
	// NormalizePath resolves "." and ".." in paths. MergeSlashes merges adjacent slashes.
	NormalizePath, MergeSlashes bool
	Slashes                     Slashes
	// KeepServer keeps the server header of the application. Otherwise Server replaces it if it is not empty.
	KeepServer bool
	Server     string
	// NoRequestID disables request ids, and NoDebugHeaders disables the headers that Envoy adds for debugging.
	NoRequestID, NoDebugHeaders bool
	// KeepCase keeps the case of the names of HTTP/1 headers.
	KeepCase bool
	// ForwardPort adds the header X-Forwarded-Port.
	ForwardPort bool
	// ClientCert selects which information about a client's certificate the application receives. GivenDetails is true if the mesh
	// configuration selects the parts of the certificate, which then holds for gateways as well.
	ClientCert   ClientCert
	GivenDetails bool
}

// ClientCert is the content of the header x-forwarded-client-cert of a request to the application.
type ClientCert struct {
	// Forward is how the header that a client sent is handled.
	Forward meshconfig.ForwardClientCertDetails
	// Subject, Cert, Chain, DNS and URI are the parts of the client's certificate that are added.
	Subject, Cert, Chain, DNS, URI bool
}

// The bits of the number in the row of HTTP settings.
const (
	normalizePath = 1 << iota
	mergeSlashes
	decodeSlashes
	keepServer
	noRequestID
	noDebugHeaders
	keepCase
	certSubject
	certText
	certChain
	certDNS
	certURI
	givenDetails
	forwardPort
	// forwardCert is the first of three bits that hold a number.
	forwardCert
)

// defaultClientCert are the bits for clients' certificates without any setting.
const defaultClientCert = certSubject | certDNS | certURI | forwardCert*int64(meshconfig.ForwardClientCertDetails_APPEND_FORWARD)

// HTTPSettings returns the settings of the mesh configuration for HTTP connection managers.
func (t *Settings) HTTPSettings(r store.Reader) HTTPSettings {
	v, ok := t.rows.Get(r, httpSettings)
	if !ok {
		v.Number = normalizePath | defaultClientCert
	}
	has := func(bit int64) bool { return v.Number&bit != 0 }
	s := HTTPSettings{
		NormalizePath: has(normalizePath), MergeSlashes: has(mergeSlashes), KeepServer: has(keepServer), Server: v.Text,
		NoRequestID: has(noRequestID), NoDebugHeaders: has(noDebugHeaders), KeepCase: has(keepCase),
		ForwardPort: has(forwardPort), GivenDetails: has(givenDetails),
		ClientCert: ClientCert{
			Forward: meshconfig.ForwardClientCertDetails(v.Number / forwardCert), Subject: has(certSubject), Cert: has(certText),
			Chain: has(certChain), DNS: has(certDNS), URI: has(certURI),
		},
	}
	if has(decodeSlashes) {
		s.Slashes = DecodeSlashes
	}
	return s
}

// GatewayTopology describes the proxies in front of gateways.
type GatewayTopology struct {
	// TrustedProxies is how many proxies are trusted to append the address of their client to x-forwarded-for.
	TrustedProxies uint32
	// ClientCert lists the parts of the certificate of a client that services receive.
	ClientCert ClientCert
	// ProxyProtocol is true if connections begin with a header of the PROXY protocol.
	ProxyProtocol bool
}

// GatewayTopology returns the settings of the mesh configuration about the proxies in front of gateways.
func (t *Settings) GatewayTopology(r store.Reader) GatewayTopology {
	v, _ := t.rows.Get(r, gatewayTopology)
	return TopologyOf(uint32(v.Number/gatewayProxies), meshconfig.ForwardClientCertDetails(v.Number/gatewayForward%gatewayForwards), v.Number&gatewayPROXY != 0)
}

// TopologyOf returns the settings of gateways behind a number of trusted proxies. The zero value of forward is the default.
func TopologyOf(proxies uint32, forward meshconfig.ForwardClientCertDetails, proxyProtocol bool) GatewayTopology {
	if forward == meshconfig.ForwardClientCertDetails_UNDEFINED {
		forward = meshconfig.ForwardClientCertDetails_SANITIZE_SET
	}
	return GatewayTopology{
		TrustedProxies: proxies, ProxyProtocol: proxyProtocol,
		ClientCert: ClientCert{Forward: forward, Subject: true, Cert: true, DNS: true, URI: true},
	}
}

// The parts of the number in the row of the topology of gateways: a bit, the number for clients' certificates, and the number of proxies.
const (
	gatewayPROXY    = 1
	gatewayForward  = 2
	gatewayForwards = 8
	gatewayProxies  = gatewayForward * gatewayForwards
)

func (t *Settings) writeGatewayTopology(tx *store.Txn, m *meshconfig.MeshConfig) {
	g := m.GetDefaultConfig().GetGatewayTopology()
	v := Value{Number: int64(g.GetNumTrustedProxies())*gatewayProxies + int64(g.GetForwardClientCertDetails())*gatewayForward}
	if g.GetProxyProtocol() != nil {
		v.Number |= gatewayPROXY
	}
	t.rows.Set(tx, gatewayTopology, v)
}

func (t *Settings) writeHTTPSettings(tx *store.Txn, m *meshconfig.MeshConfig) {
	var v Value
	set := func(on bool, bits int64) {
		if on {
			v.Number |= bits
		}
	}
	switch m.GetPathNormalization().GetNormalization() {
	case meshconfig.MeshConfig_ProxyPathNormalization_NONE:
	case meshconfig.MeshConfig_ProxyPathNormalization_MERGE_SLASHES:
		set(true, normalizePath|mergeSlashes)
	case meshconfig.MeshConfig_ProxyPathNormalization_DECODE_AND_MERGE_SLASHES:
		set(true, normalizePath|mergeSlashes|decodeSlashes)
	default:
		set(true, normalizePath)
	}
	h := m.GetDefaultConfig().GetProxyHeaders()
	set(h.GetServer().GetDisabled().GetValue(), keepServer)
	set(h.GetRequestId().GetDisabled().GetValue(), noRequestID)
	set(h.GetEnvoyDebugHeaders().GetDisabled().GetValue(), noDebugHeaders)
	set(h.GetPreserveHttp1HeaderCase().GetValue(), keepCase)
	set(h.GetXForwardedPort().GetEnabled().GetValue(), forwardPort)
	details := h.GetSetCurrentClientCertDetails()
	set(details != nil, givenDetails)
	set(details.GetSubject() == nil || details.GetSubject().GetValue(), certSubject)
	set(details.GetDns() == nil || details.GetDns().GetValue(), certDNS)
	set(details.GetUri() == nil || details.GetUri().GetValue(), certURI)
	set(details.GetCert().GetValue(), certText)
	set(details.GetChain().GetValue(), certChain)
	forward := h.GetForwardedClientCert()
	if forward == meshconfig.ForwardClientCertDetails_UNDEFINED {
		forward = meshconfig.ForwardClientCertDetails_APPEND_FORWARD
	}
	v.Number |= forwardCert * int64(forward)
	v.Text = h.GetServer().GetValue()
	t.rows.Set(tx, httpSettings, v)
}

// DetectionTimeout returns how long a proxy waits for the first bytes of a connection to detect its protocol; 0 is without limit.
func (t *Settings) DetectionTimeout(r store.Reader) time.Duration {
	v, _ := t.rows.Get(r, detectionTimeout)
	return time.Duration(v.Number)
}

// InboundLocalhost reports whether sidecars connect to the application at the loopback address, not at the original destination.
func (t *Settings) InboundLocalhost(r store.Reader) bool {
	v, _ := t.rows.Get(r, inboundLocalhost)
	return v.Number != 0
}

// HTTPProxyPort returns the port at the loopback address at which sidecars are HTTP proxies; 0 for none.
func (t *Settings) HTTPProxyPort(r store.Reader) uint32 {
	v, _ := t.rows.Get(r, httpProxyPort)
	return uint32(v.Number)
}

// Connections returns the settings for connections of proxies without settings of their own.
func (t *Settings) Connections(r store.Reader) connection.Settings {
	v, _ := t.rows.Get(r, connectionSettings)
	m, _ := v.Message.(*meshconfig.ProxyConfig_ConnectionSettings)
	return connection.Of(m)
}

func (t *Settings) writeConnectionSettings(tx *store.Txn, m *meshconfig.MeshConfig) {
	v := Value{}
	if own := m.GetDefaultConfig().GetConnectionSettings(); own != nil {
		v.Message = own
	}
	t.rows.Set(tx, connectionSettings, v)
	t.writeHTTPSettings(tx, m)
	t.writeGatewayTopology(tx, m)
	t.rows.Set(tx, detectionTimeout, Value{Number: int64(m.GetProtocolDetectionTimeout().AsDuration())})
	local := Value{}
	if p := m.GetInboundTrafficPolicy(); p.GetMode() == meshconfig.MeshConfig_InboundTrafficPolicy_LOCALHOST {
		local.Number = 1
	}
	t.rows.Set(tx, inboundLocalhost, local)
	t.rows.Set(tx, httpProxyPort, Value{Number: int64(m.GetProxyHttpPort())})
	t.writeAccessLog(tx, m)
	t.writeTLS(tx, m)
}
