package listener

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/security/compliance"
	"github.com/pilotmesh/pilot/internal/state/settings"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// entry is a port at which connections to the workload enter, or all ports without one of their own.
type entry struct {
	port uint32
	mode mesh.MTLSMode
	// protocol is what the application speaks.
	protocol mesh.Protocol
	// tls terminates TLS of clients that are not in the mesh; nil for none.
	tls *corev3.TransportSocket
	// forward and http are the filters for connections, and for connections that are HTTP. httpName and name are names of filter chains.
	forward, http  []*listenerv3.Filter
	name, httpName string
}

// entry returns the entry at a port that a service or a Sidecar declares.
func (s inboundBuilder) entry(p proxy.InboundPort) entry {
	cluster, name := envoy.InboundCluster(p.Number), envoy.ListenerName(envoy.Wildcard, p.Number)
	in := entry{port: p.Number, mode: s.MTLS.At(p.Number), protocol: p.Protocol, name: name, httpName: name}
	if in.mode == mesh.MTLSDisabled {
		in.tls = s.serverTLS(p)
	}
	if in.tls != nil && in.protocol == mesh.HTTPS { // the protocol inside the terminated TLS
		in.protocol = mesh.HTTP
	}
	options := s.http
	options.GRPCWeb, options.First = p.Protocol == mesh.GRPCWeb, s.filters.http(p.Number)
	in.http = append(s.filters.network(p.Number), envoy.HTTPWithRoutes("inbound_"+name, s.routes(p, cluster), options))
	in.forward = s.forward(p.Number, cluster, s.tcpOptions(p))
	return in
}

// passthrough returns the entry at an undeclared port, or with 0 at all such ports. Their connections go to where the
// client sent them.
func (s inboundBuilder) passthrough(port uint32) entry {
	cluster, options := envoy.InboundPassthroughCluster, s.http
	options.First = s.filters.http(port)
	return entry{
		port: port, mode: s.MTLS.At(port), protocol: mesh.Auto, name: envoy.VirtualInbound, httpName: "virtualInbound-catchall-http",
		http:    append(s.filters.network(port), envoy.HTTPWithRoutes(cluster, s.routes(proxy.InboundPort{}, cluster), options)),
		forward: s.forward(port, cluster, envoy.TCPOptions{IdleTimeout: s.IdleTimeout}),
	}
}

// chains are the filter chains of an entry. at matches its port; it is nil if there is no other entry to distinguish it from. Connections
// that no chain matches are closed.
func (s inboundBuilder) chains(in entry, at *listenerv3.FilterChainMatch) []*listenerv3.FilterChain {
	b := chainBuilder{entry: in, at: at, tls: s.meshTLS}
	plainHTTP := envoy.MatchHTTP(s.HTTP10)
	switch kind := kindOf(in.protocol); {
	case in.tls != nil:
		b.tls = in.tls
		b.terminated(kind)
	case in.mode == mesh.MTLSStrict:
		if kind == sniffed {
			b.addHTTP(envoy.MatchTLS(envoy.MeshHTTP()...), true)
		}
		b.add(kind, envoy.MatchTLS(), true)
	case in.mode == mesh.MTLSDisabled:
		if kind != sniffed {
			b.add(kind, nil, false)
			break
		}
		b.addHTTP(plainHTTP, false)
		if in.port == 0 {
			b.addTCP(nil, false)
		} else { // Envoy looks at no wider match once it knows the port and that there is no TLS
			b.addTCP(envoy.MatchPlain(), false)
		}
	case kind == isHTTP:
		b.addHTTP(envoy.MatchTLS(envoy.MeshALPN()...), true)
		b.addHTTP(envoy.MatchPlain(), false)
	case kind == sniffed:
		b.addHTTP(envoy.MatchTLS(envoy.MeshHTTP()...), true)
		b.addTCP(envoy.MatchTLS(envoy.MeshTCP()...), true)
		b.addHTTP(plainHTTP, false)
		b.addTCP(envoy.MatchPlain(), false)
		b.addTCP(envoy.MatchTLS(), false) // the application's own TLS
	default:
		b.addTCP(envoy.MatchTLS(envoy.MeshALPN()...), true)
		b.addTCP(envoy.MatchPlain(), false)
		b.addTCP(envoy.MatchTLS(), false)
	}
	return b.list
}

// protocolKind is what matters of a protocol to filter chains.
type protocolKind uint8

const (
	isTCP protocolKind = iota
	isHTTP
	sniffed
)

func kindOf(p mesh.Protocol) protocolKind {
	switch {
	case p.IsHTTP():
		return isHTTP
	case p.Sniffed():
		return sniffed
	}
	return isTCP
}

// chainBuilder collects the filter chains of an entry.
type chainBuilder struct {
	entry
	at   *listenerv3.FilterChainMatch
	tls  *corev3.TransportSocket
	list []*listenerv3.FilterChain
}

// terminated adds the chains for TLS of clients that are not in the mesh.
func (b *chainBuilder) terminated(kind protocolKind) {
	if kind == sniffed {
		b.addHTTP(envoy.MatchTLS("h2", "http/1.1"), true)
	}
	b.add(kind, envoy.MatchTLS(), true)
}

// add adds a chain for HTTP if all connections are, and else one for connections.
func (b *chainBuilder) add(kind protocolKind, m *listenerv3.FilterChainMatch, terminate bool) {
	if kind == isHTTP {
		b.addHTTP(m, terminate)
		return
	}
	b.addTCP(m, terminate)
}

func (b *chainBuilder) addHTTP(m *listenerv3.FilterChainMatch, terminate bool) {
	b.put(b.httpName, b.http, m, terminate)
}

func (b *chainBuilder) addTCP(m *listenerv3.FilterChainMatch, terminate bool) {
	b.put(b.name, b.forward, m, terminate)
}

// put adds a chain for connections that m matches; a nil m matches all.
func (b *chainBuilder) put(name string, f []*listenerv3.Filter, m *listenerv3.FilterChainMatch, terminate bool) {
	if m == nil {
		m = b.at
	} else {
		m.DestinationPort = b.at.GetDestinationPort()
	}
	c := envoy.Chain(name, m, f...)
	if terminate {
		c.TransportSocket = b.tls
	}
	b.list = append(b.list, c)
}

// inspection lists the ports where TLS and HTTP must be detected.
type inspection struct {
	others       entry // ports that have no entry of their own; without a name there are none
	tls, noTLS   []uint32
	http, noHTTP []uint32
}

// detectsTLS and detectsHTTP report whether the chains of an entry distinguish connections by that.
func (in entry) detectsTLS() bool {
	return in.mode != mesh.MTLSDisabled && in.mode != mesh.MTLSInherited || in.tls != nil
}

func (in entry) detectsHTTP() bool {
	return in.protocol.Sniffed() && in.mode != mesh.MTLSStrict && in.tls == nil
}

func (n *inspection) add(in entry) {
	choose := func(detects bool, yes, no *[]uint32) {
		if !detects {
			yes = no
		}
		*yes = append(*yes, in.port)
	}
	choose(in.detectsTLS(), &n.tls, &n.noTLS)
	choose(in.detectsHTTP(), &n.http, &n.noHTTP)
}

// inspect adds the listener filters that chains need.
func (s inboundBuilder) inspect(l *listenerv3.Listener, n inspection) {
	before := len(l.ListenerFilters)
	switch n.others.name {
	case "": // one port: there is nothing to except
		if len(n.tls) > 0 {
			envoy.AddTLSInspector(l, envoy.AllPorts())
		}
		if len(n.http) > 0 {
			envoy.AddHTTPInspector(l, envoy.AllPorts())
		}
	default:
		envoy.AddTLSInspector(l, inspected(n.others.detectsTLS(), n.tls, n.noTLS))
		envoy.AddHTTPInspector(l, inspected(n.others.detectsHTTP(), n.http, n.noHTTP))
	}
	if len(l.ListenerFilters) > before {
		envoy.SetDetectionTimeout(l, s.detectionTimeout)
	}
}

func inspected(others bool, yes, no []uint32) envoy.Inspected {
	if others {
		return envoy.Inspected{All: true, Except: no}
	}
	return envoy.Inspected{Except: yes}
}

// meshTLS terminates mutual TLS of the mesh.
func (q *Queries) meshTLS(r *query.Reader) *corev3.TransportSocket {
	t := envoy.ServerTLS{Mesh: true, TrustDomains: q.tables.TrustDomains(r), Parameters: q.tables.MeshTLS(r)}
	return t.TransportSocket()
}

// serverTLS terminates TLS of clients that are not in the mesh, as the Sidecar of a workload sets it for a port; nil if it does not.
func (q *Queries) serverTLS(r *query.Reader, p proxy.InboundPort) *corev3.TransportSocket {
	s := q.scope.ServerTLS(r, p)
	if s == nil {
		return nil
	}
	t := envoy.ServerTLS{
		SPKI: s.VerifyCertificateSpki, Hashes: s.VerifyCertificateHash, CRL: s.CaCrl,
		Parameters: q.tables.TLS(r, compliance.Parameters{
			Min: minor(s.MinProtocolVersion), Max: minor(s.MaxProtocolVersion), Curves: api.Curves(s.EcdhCurves), Ciphers: api.Ciphers(s.CipherSuites),
		}),
	}
	roots := s.CaCertificates
	for _, pair := range s.TlsCertificates {
		t.Certificates = append(t.Certificates, [2]string{pair.ServerCertificate, pair.PrivateKey})
		if roots == "" {
			roots = pair.CaCertificates
		}
	}
	if len(t.Certificates) == 0 {
		t.Certificates = [][2]string{{s.ServerCertificate, s.PrivateKey}}
	}
	if s.Mode == networking.ServerTLSSettings_MUTUAL {
		t.Roots = roots
	}
	return t.TransportSocket()
}

// minor is the minor version of a version of TLS 1, or compliance.VersionTLS10; 0 if it is left open.
func minor(v networking.ServerTLSSettings_TLSProtocol) uint32 {
	switch v {
	case networking.ServerTLSSettings_TLS_AUTO:
		return 0
	case networking.ServerTLSSettings_TLSV1_0:
		return compliance.VersionTLS10
	}
	return uint32(v - networking.ServerTLSSettings_TLSV1_0)
}

// clientCert translates which details of a client's certificate the application gets.
func clientCert(c settings.ClientCert) *envoy.ClientCert {
	forward := map[meshconfig.ForwardClientCertDetails]hcmv3.HttpConnectionManager_ForwardClientCertDetails{
		meshconfig.ForwardClientCertDetails_SANITIZE:            hcmv3.HttpConnectionManager_SANITIZE,
		meshconfig.ForwardClientCertDetails_FORWARD_ONLY:        hcmv3.HttpConnectionManager_FORWARD_ONLY,
		meshconfig.ForwardClientCertDetails_APPEND_FORWARD:      hcmv3.HttpConnectionManager_APPEND_FORWARD,
		meshconfig.ForwardClientCertDetails_SANITIZE_SET:        hcmv3.HttpConnectionManager_SANITIZE_SET,
		meshconfig.ForwardClientCertDetails_ALWAYS_FORWARD_ONLY: hcmv3.HttpConnectionManager_ALWAYS_FORWARD_ONLY,
	}[c.Forward]
	return &envoy.ClientCert{Forward: forward, Subject: c.Subject, Cert: c.Cert, Chain: c.Chain, DNS: c.DNS, URI: c.URI}
}
