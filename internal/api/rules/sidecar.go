package rules

import (
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
	"github.com/pilotmesh/pilot/internal/api/rules/traffic"
	"github.com/pilotmesh/pilot/internal/mesh"
)

func (c *checker) sidecar(p *document.Path, s *networking.Sidecar) {
	if len(s.Ingress) == 0 && len(s.Egress) == 0 && s.OutboundTrafficPolicy == nil && s.InboundConnectionPool == nil {
		c.Fail(p, "a sidecar must configure something: ingress, egress, outboundTrafficPolicy or inboundConnectionPool")
	}
	traffic.ConnectionPool(c.Checker, p.Field("inboundConnectionPool"), s.InboundConnectionPool)
	seen := map[uint32]bool{}
	for i, l := range s.Ingress {
		at := p.Field("ingress").At(i)
		c.ingress(at, l)
		if n := l.GetPort().GetNumber(); n != 0 {
			if seen[n] {
				c.Fail(at.Field("port").Field("number"), "%d is given to two listeners", n)
			}
			seen[n] = true
		}
	}
	c.egresses(p.Field("egress"), s.Egress)
	if t := s.OutboundTrafficPolicy; t != nil && t.EgressProxy != nil {
		at := p.Field("outboundTrafficPolicy").Field("egressProxy")
		c.destination(at, t.EgressProxy)
		if t.Mode != networking.OutboundTrafficPolicy_ALLOW_ANY {
			c.Fail(at, "is for unknown traffic, which mode %s drops; use mode ALLOW_ANY", t.Mode)
		}
		if t.EgressProxy.Port == nil {
			c.Fail(at.Field("port"), "a proxy needs a port")
		}
		if strings.HasPrefix(t.EgressProxy.Host, "*") && t.EgressProxy.Host != "*" {
			c.Fail(at.Field("host"), "%s: a proxy is one host, without a wildcard", document.Quote(t.EgressProxy.Host))
		}
	}
}

func (c *checker) ingress(p *document.Path, l *networking.IstioIngressListener) {
	if l == nil {
		c.Fail(p, "a listener must not be null")
		return
	}
	if l.Port == nil {
		c.Fail(p.Field("port"), "a listener needs a port")
	} else {
		c.Port(p.Field("port").Field("number"), l.Port.Number)
		c.sidecarPort(p.Field("port"), l.Port)
	}
	if l.Bind != "" && !syntax.IsIP(l.Bind) {
		c.Fail(p.Field("bind"), "%s is not an IP address, which is what an inbound listener is bound to", document.Quote(l.Bind))
	}
	c.Rule(p.Field("bind"), syntax.Listenable(l.Bind))
	if l.DefaultEndpoint != "" {
		c.Rule(p.Field("defaultEndpoint"), syntax.DefaultEndpoint(l.DefaultEndpoint))
	}
	c.vacant(p, l.GetPort(), l.CaptureMode)
	traffic.ConnectionPool(c.Checker, p.Field("connectionPool"), l.ConnectionPool)
	protocol := strings.ToUpper(l.GetPort().GetProtocol())
	if l.Tls == nil {
		return
	}
	if protocol != "HTTPS" && protocol != "TLS" {
		c.Fail(p.Field("tls"), "needs a port with the protocol HTTPS or TLS; declare it, or remove tls")
	}
	c.inboundTLS(p.Field("tls"), l.Tls)
}

// sidecarPort checks the parts of a port that all listeners have in common.
func (c *checker) sidecarPort(p *document.Path, port *networking.SidecarPort) {
	if port.Name != "" {
		c.Rule(p.Field("name"), syntax.Name(port.Name))
	}
	c.protocol(p.Field("protocol"), port.Protocol)
	if port.TargetPort != 0 { //nolint:staticcheck // it is the field that must not be used
		c.Fail(p.Field("targetPort"), "has no place in a Sidecar; of an ingress listener, name the application's port in defaultEndpoint")
	}
}

// vacant warns of listeners with a socket on a port that is reserved for the proxy.
func (c *checker) vacant(p *document.Path, port *networking.SidecarPort, mode networking.CaptureMode) {
	if n := port.GetNumber(); mesh.Reserved(n, mode == networking.CaptureMode_NONE) {
		c.Warn(p.Field("port").Field("number"), "%d is a port that the proxy or its agent uses itself: there is no such listener", n)
	}
}

func (c *checker) egresses(p *document.Path, listeners []*networking.IstioEgressListener) {
	sockets := map[string]bool{}
	general := -1
	for i, l := range listeners {
		at := p.At(i)
		if l == nil {
			c.Fail(at, "a listener must not be null")
			continue
		}
		c.egress(at, l)
		if l.Port == nil {
			if general >= 0 {
				c.Fail(at.Field("port"), "egress[%d] has no port either; one listener for all other ports is enough", general)
			} else if i < len(listeners)-1 {
				c.Fail(at.Field("port"), "a listener without a port is for all other ports; move it to the end")
			}
			general = i
			continue
		}
		socket, field := l.Bind+":"+strconv.FormatUint(uint64(l.Port.Number), 10), at.Field("port")
		if syntax.IsUnix(l.Bind) {
			socket, field = l.Bind, at.Field("bind")
		}
		if sockets[socket] {
			c.Fail(field, "another listener has the same socket")
		}
		sockets[socket] = true
	}
	c.imports(p, listeners)
}

func (c *checker) egress(p *document.Path, l *networking.IstioEgressListener) {
	switch {
	case l.Port == nil:
		if l.Bind != "" {
			c.Warn(p.Field("bind"), "has no effect on a listener without a port")
		}
		if l.CaptureMode != networking.CaptureMode_DEFAULT {
			c.Warn(p.Field("captureMode"), "has no effect on a listener without a port")
		}
	case syntax.IsUnix(l.Bind):
		if l.Port.Number != 0 {
			c.Fail(p.Field("port").Field("number"), "a socket has no port number; write 0")
		}
		if l.CaptureMode == networking.CaptureMode_IPTABLES {
			c.Fail(p.Field("captureMode"), "traffic to a socket is not captured; use NONE")
		}
		if protocol, _ := mesh.ParseProtocol(l.Port.Protocol); c.Rule(p.Field("bind"), syntax.Unix(l.Bind)) && protocol == mesh.UDP {
			c.Warn(p.Field("bind"), "has no effect: sidecars take connections at sockets, and no datagrams; write TCP, TLS or HTTP")
		}
	default:
		c.Port(p.Field("port").Field("number"), l.Port.Number)
		if l.Bind != "" && !syntax.IsIP(l.Bind) {
			c.Fail(p.Field("bind"), "%s is not an IP address or a unix:// socket", document.Quote(l.Bind))
		}
		c.Rule(p.Field("bind"), syntax.Listenable(l.Bind))
	}
	if l.Port != nil {
		c.vacant(p, l.Port, l.CaptureMode)
		c.sidecarPort(p.Field("port"), l.Port)
	}
	if len(l.Hosts) == 0 {
		c.Fail(p.Field("hosts"), "an egress listener needs hosts: */* for all, ~/* for none")
	}
	for i, h := range l.Hosts {
		c.importHost(p.Field("hosts").At(i), h)
	}
}

// importHost checks "namespace/host". A "~" before the namespace excludes the hosts instead of importing them.
func (c *checker) importHost(p *document.Path, s string) {
	namespace, host, ok := strings.Cut(s, "/")
	if !ok {
		c.Fail(p, "%s does not have the form namespace/host; write ./%s for the own namespace, */%s for all", document.Quote(s), s, s)
		return
	}
	switch rest := strings.TrimPrefix(namespace, "~"); {
	case rest == "*", rest == ".", rest == "" && namespace != "":
	default:
		if reason := syntax.Name(rest); reason != "" {
			c.Fail(p, "%s; or write *, . (the own namespace) or ~ (exclude)", reason)
		}
	}
	if c.Rule(p, syntax.WholeWildcard(host)) && host != "*" && !strings.Contains(host, ".") {
		c.Fail(p, "%s has no dot; write the full name of the host, such as %s.default.svc.cluster.local, or *", document.Quote(host), host)
	}
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
					otherNamespace = c.Namespace
				}
				mine := namespace
				if mine == "." {
					mine = c.Namespace
				}
				wider := otherHost == "*" && (host != "*" || otherNamespace == "*" && mine != "*") &&
					(otherNamespace == "*" || otherNamespace == mine)
				if same || wider {
					c.Warn(p.At(i).Field("hosts").At(j), "hosts[%d] %s covers it already", k, document.Quote(other))
					break
				}
			}
		}
	}
}
