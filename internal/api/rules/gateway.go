package rules

import (
	"net/netip"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
)

// Gateway checks a Gateway.
func Gateway(s *networking.Gateway, about About) []document.Finding {
	return checkSpec(s, about, func(c *checker, at *document.Path) {
		if about.Name != "" {
			c.Rule((*document.Path)(nil).Field("metadata").Field("name"), syntax.Name(about.Name))
		}
		servers := at.Field("servers")
		if len(s.Servers) == 0 {
			c.Fail(servers, "a gateway needs a server at least")
		}
		names := map[string]int{}
		for i, server := range s.Servers {
			c.server(servers.At(i), server)
			name := server.GetPort().GetName()
			if first, dup := names[name]; dup && name != "" {
				c.Fail(servers.At(i).Field("port").Field("name"), "servers[%d] has a port of the same name; rename one of them", first)
			} else {
				names[name] = i
			}
		}
	})
}

func (c *checker) server(p *document.Path, s *networking.Server) {
	if s.GetPort() == nil {
		c.Fail(p.Field("port"), "a server needs a port")
	} else {
		c.serverPort(p.Field("port"), s)
	}
	if s.Bind != "" && !syntax.IsIP(s.Bind) {
		if syntax.IsUnix(s.Bind) {
			c.Rule(p.Field("bind"), syntax.Unix(s.Bind))
		} else {
			c.Fail(p.Field("bind"), "%s is neither an IP address nor a unix:// socket", document.Quote(s.Bind))
		}
	}
	c.Rule(p.Field("bind"), syntax.Listenable(s.Bind))
	if len(s.Hosts) == 0 {
		c.Fail(p.Field("hosts"), "a server needs hosts; write * for all")
	}
	for i, h := range s.Hosts {
		c.serverHost(p.Field("hosts").At(i), h)
	}
	c.gatewayTLS(p.Field("tls"), s)
}

func (c *checker) serverPort(p *document.Path, s *networking.Server) {
	port := s.Port
	number := p.Field("number")
	switch {
	case syntax.IsUnix(s.Bind):
		if port.Number != 0 {
			c.Fail(number, "a socket has no port number; write 0")
		}
	default:
		c.Port(number, port.Number)
	}
	if port.Protocol == "" {
		c.Fail(p.Field("protocol"), "a server needs a protocol, such as HTTP or HTTPS")
	}
	c.protocol(p.Field("protocol"), port.Protocol)
	if port.Name == "" {
		c.Fail(p.Field("name"), "a port needs a name")
	}
	if port.TargetPort != 0 { //nolint:staticcheck // it is the field that must not be used
		c.Fail(p.Field("targetPort"), "has no place in a Gateway; the Service of the gateway names the target port")
	}
}

// serverHost checks "host" or "namespace/host".
func (c *checker) serverHost(p *document.Path, s string) {
	host := s
	if namespace, rest, ok := strings.Cut(s, "/"); ok {
		host = rest
		if namespace != "*" && namespace != "." && !c.Rule(p, syntax.Name(namespace)) {
			return
		}
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Is4() || host == "*" {
		return
	}
	if c.Rule(p, syntax.WholeWildcard(host)) && !strings.Contains(host, ".") {
		c.Fail(p, "%s has no dot; write the full name of the host, or *", document.Quote(host))
	}
}

// gatewayTLS checks TLS of a server against its protocol.
func (c *checker) gatewayTLS(p *document.Path, s *networking.Server) {
	protocol, t := strings.ToUpper(s.GetPort().GetProtocol()), s.Tls
	secure := protocol == "HTTPS" || protocol == "TLS"
	passes := t.GetMode() == networking.ServerTLSSettings_PASSTHROUGH || t.GetMode() == networking.ServerTLSSettings_AUTO_PASSTHROUGH
	switch {
	case t == nil && secure:
		c.Fail(p, "a server that speaks %s needs tls", protocol)
	case t == nil || protocol == "":
	case isHTTP(protocol) && (!passes || t.CaCertificates != "" || t.PrivateKey != "" || t.ServerCertificate != ""):
		c.Fail(p, "a server that speaks %s has no TLS; use HTTPS, or remove all but httpsRedirect", protocol)
	case !isHTTP(protocol) && !secure:
		c.Fail(p, "a server that speaks %s has no TLS; use TLS, or remove it", protocol)
	}
	if t.GetHttpsRedirect() && protocol != "" && !isHTTP(protocol) {
		c.Warn(p.Field("httpsRedirect"), "has no effect on a server that does not speak plain HTTP; set it on the server of port 80")
	}
	c.serverTLS(p, t)
}
