package rules

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/mesh"
)

func (c *checker) sidecar(p *document.Path, s *networking.Sidecar) {
	if len(s.Ingress) == 0 && len(s.Egress) == 0 && s.OutboundTrafficPolicy == nil && s.InboundConnectionPool == nil {
		c.fail(p, "a sidecar must configure something: ingress, egress, outboundTrafficPolicy or inboundConnectionPool")
	}
	c.connectionPool(p.Field("inboundConnectionPool"), s.InboundConnectionPool)
	seen := map[uint32]bool{}
	for i, l := range s.Ingress {
		at := p.Field("ingress").At(i)
		c.ingress(at, l)
		if n := l.GetPort().GetNumber(); n != 0 {
			if seen[n] {
				c.fail(at.Field("port").Field("number"), "%d is given to two listeners", n)
			}
			seen[n] = true
		}
	}
	c.egresses(p.Field("egress"), s.Egress)
	if t := s.OutboundTrafficPolicy; t != nil && t.EgressProxy != nil {
		at := p.Field("outboundTrafficPolicy").Field("egressProxy")
		c.destination(at, t.EgressProxy)
		if t.Mode != networking.OutboundTrafficPolicy_ALLOW_ANY {
			c.fail(at, "is for unknown traffic, which mode %s drops; use mode ALLOW_ANY", t.Mode)
		}
		if t.EgressProxy.Port == nil {
			c.fail(at.Field("port"), "a proxy needs a port")
		}
	}
}

func (c *checker) ingress(p *document.Path, l *networking.IstioIngressListener) {
	if l == nil {
		c.fail(p, "a listener must not be null")
		return
	}
	if l.Port == nil {
		c.fail(p.Field("port"), "a listener needs a port")
	} else {
		c.port(p.Field("port").Field("number"), l.Port.Number)
		c.protocol(p.Field("port").Field("protocol"), l.Port.Protocol)
	}
	if l.Bind != "" && !isIP(l.Bind) {
		c.fail(p.Field("bind"), "%s is not an IP address, which is what an inbound listener is bound to", document.Quote(l.Bind))
	}
	if l.DefaultEndpoint != "" {
		c.rule(p.Field("defaultEndpoint"), checkDefaultEndpoint(l.DefaultEndpoint))
	}
	c.vacant(p, l.GetPort(), l.CaptureMode)
	c.connectionPool(p.Field("connectionPool"), l.ConnectionPool)
	c.serverTLS(p.Field("tls"), l.Tls)
}

// vacant warns of listeners with a socket on a port that is reserved for the proxy.
func (c *checker) vacant(p *document.Path, port *networking.SidecarPort, mode networking.CaptureMode) {
	if n := port.GetNumber(); mesh.Reserved(n, mode == networking.CaptureMode_NONE) {
		c.warn(p.Field("port").Field("number"), "%d is a port that the proxy or its agent uses itself: there is no such listener", n)
	}
}

// checkDefaultEndpoint checks the address to which an ingress listener forwards: that of the application.
func checkDefaultEndpoint(s string) string {
	if isUnix(s) {
		return checkUnix(s)
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Sprintf("%s needs an address and a port, like 127.0.0.1:8080", document.Quote(s))
	}
	switch host {
	case "", "127.0.0.1", "0.0.0.0", "::1", "::":
	default:
		return fmt.Sprintf("%s: the application is reached at 127.0.0.1, 0.0.0.0 (its own address), [::1], [::] or a unix:// socket only", document.Quote(s))
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Sprintf("%s: the port must be a number from 1 to 65535", document.Quote(s))
	}
	return ""
}

// serverTLS checks TLS of an inbound listener for clients that are not in the mesh.
func (c *checker) serverTLS(p *document.Path, t *networking.ServerTLSSettings) {
	if t == nil {
		return
	}
	mutual := t.Mode == networking.ServerTLSSettings_MUTUAL
	if t.Mode != networking.ServerTLSSettings_SIMPLE && !mutual {
		c.fail(p.Field("mode"), "must be SIMPLE or MUTUAL, not %s: TLS within the mesh is a matter of PeerAuthentication", t.Mode)
		return
	}
	if t.HttpsRedirect {
		c.fail(p.Field("httpsRedirect"), "is for gateways only")
	}
	if len(t.SubjectAltNames) > 0 {
		c.fail(p.Field("subjectAltNames"), "is for gateways only")
	}
	for _, f := range []struct {
		name string
		set  bool
	}{{"credentialName", t.CredentialName != ""}, {"credentialNames", len(t.CredentialNames) > 0}} {
		if f.set {
			c.fail(p.Field(f.name), "is for gateways only; name files")
			return
		}
	}
	c.serverCertificates(p, t)
	hasCA := func(pair *networking.ServerTLSSettings_TLSCertificate) bool { return pair.GetCaCertificates() != "" }
	if mutual && t.CaCertificates == "" && !slices.ContainsFunc(t.TlsCertificates, hasCA) {
		c.fail(p.Field("caCertificates"), "mutual TLS needs the CA of the clients")
	}
	if low, high := t.MinProtocolVersion, t.MaxProtocolVersion; low != 0 && high != 0 && low > high {
		c.fail(p.Field("minProtocolVersion"), "%s is above the maximum %s", low, high)
	}
}

// serverCertificates checks the certificate of a listener, or its two: one for each kind of key.
func (c *checker) serverCertificates(p *document.Path, t *networking.ServerTLSSettings) {
	if len(t.TlsCertificates) == 0 {
		c.certificate(p, t)
		return
	}
	at := p.Field("tlsCertificates")
	if n := len(t.TlsCertificates); n > 2 {
		c.fail(at, "has %d entries, the limit is 2: one for each kind of key", n)
	}
	for i, pair := range t.TlsCertificates {
		c.certificate(at.At(i), pair)
	}
}

func (c *checker) certificate(p *document.Path, pair interface {
	GetServerCertificate() string
	GetPrivateKey() string
}) {
	if pair.GetServerCertificate() == "" {
		c.fail(p.Field("serverCertificate"), "TLS needs a certificate")
	}
	if pair.GetPrivateKey() == "" {
		c.fail(p.Field("privateKey"), "TLS needs a private key")
	}
}

func (c *checker) egresses(p *document.Path, listeners []*networking.IstioEgressListener) {
	sockets := map[string]bool{}
	general := -1
	for i, l := range listeners {
		at := p.At(i)
		if l == nil {
			c.fail(at, "a listener must not be null")
			continue
		}
		c.egress(at, l)
		if l.Port == nil {
			if general >= 0 {
				c.fail(at.Field("port"), "egress[%d] has no port either; one listener for all other ports is enough", general)
			} else if i < len(listeners)-1 {
				c.fail(at.Field("port"), "a listener without a port is for all other ports; move it to the end")
			}
			general = i
			continue
		}
		socket, field := l.Bind+":"+strconv.FormatUint(uint64(l.Port.Number), 10), at.Field("port")
		if isUnix(l.Bind) {
			socket, field = l.Bind, at.Field("bind")
		}
		if sockets[socket] {
			c.fail(field, "another listener has the same socket")
		}
		sockets[socket] = true
	}
	c.imports(p, listeners)
}

func (c *checker) egress(p *document.Path, l *networking.IstioEgressListener) {
	switch {
	case l.Port == nil:
		if l.Bind != "" {
			c.fail(p.Field("port"), "a listener with bind needs a port")
		}
		if l.CaptureMode != networking.CaptureMode_DEFAULT {
			c.warn(p.Field("captureMode"), "has no effect on a listener without a port")
		}
	case isUnix(l.Bind):
		if l.Port.Number != 0 {
			c.fail(p.Field("port").Field("number"), "a socket has no port number; write 0")
		}
		if l.CaptureMode == networking.CaptureMode_IPTABLES {
			c.fail(p.Field("captureMode"), "traffic to a socket is not captured; use NONE")
		}
		c.rule(p.Field("bind"), checkUnix(l.Bind))
	default:
		c.port(p.Field("port").Field("number"), l.Port.Number)
		if l.Bind != "" && !isIP(l.Bind) {
			c.fail(p.Field("bind"), "%s is not an IP address or a unix:// socket", document.Quote(l.Bind))
		}
	}
	if l.Port != nil {
		c.vacant(p, l.Port, l.CaptureMode)
		c.protocol(p.Field("port").Field("protocol"), l.Port.Protocol)
	}
	if len(l.Hosts) == 0 {
		c.fail(p.Field("hosts"), "an egress listener needs hosts: */* for all, ~/* for none")
	}
	for i, h := range l.Hosts {
		c.importHost(p.Field("hosts").At(i), h)
	}
}

// importHost checks "namespace/host". A "~" before the namespace excludes the hosts instead of importing them.
func (c *checker) importHost(p *document.Path, s string) {
	namespace, host, ok := strings.Cut(s, "/")
	if !ok {
		c.fail(p, "%s does not have the form namespace/host; write ./%s for the own namespace, */%s for all", document.Quote(s), s, s)
		return
	}
	switch rest := strings.TrimPrefix(namespace, "~"); {
	case rest == "*", rest == ".", rest == "" && namespace != "":
	default:
		if reason := Label(rest); reason != "" {
			c.fail(p, "%s; or write *, . (the own namespace) or ~ (exclude)", reason)
		}
	}
	c.rule(p, checkWildcard(host))
}

// imports warns of hosts that an earlier entry of the same listener covers.
func (c *checker) imports(p *document.Path, listeners []*networking.IstioEgressListener) {
	for i, l := range listeners {
		for j, h := range l.GetHosts() {
			namespace, host, ok := strings.Cut(h, "/")
			if !ok || strings.HasPrefix(namespace, "~") {
				continue
			}
			for k, other := range l.Hosts {
				otherNamespace, otherHost, ok := strings.Cut(other, "/")
				if !ok || k == j || strings.HasPrefix(otherNamespace, "~") {
					continue
				}
				same := h == other && k < j
				if otherNamespace == "." {
					otherNamespace = c.namespace
				}
				mine := namespace
				if mine == "." {
					mine = c.namespace
				}
				wider := otherHost == "*" && (host != "*" || otherNamespace == "*" && mine != "*") &&
					(otherNamespace == "*" || otherNamespace == mine)
				if same || wider {
					c.warn(p.At(i).Field("hosts").At(j), "hosts[%d] %s covers it already", k, document.Quote(other))
					break
				}
			}
		}
	}
}
