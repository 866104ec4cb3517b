package state

import (
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state/settings"
)

// Sidecar is a Sidecar object: the services that its proxies see, their egress and ingress listeners, and limits.
type Sidecar struct {
	Object   api.Key
	Created  int64
	Selector map[string]string
	// Imports are the hosts that any of its egress listeners imports. Excludes are the hosts that all of them exclude.
	Imports, Excludes []Import
	// Egress are its egress listeners. The one without a port, for all other ports, is the last. Plain is true if there is no
	// listener with a port.
	Egress []Egress
	Plain  bool
	// All is true if the Sidecar restricts nothing, so its proxies see the same as without it.
	All bool
	// Ingress are its ingress listeners. If it is empty, services decide the ports of its workloads.
	Ingress []Ingress
	// Pool limits connections to the applications of its workloads. If it is nil, the rules for their services do.
	Pool *networking.ConnectionPoolSettings
	// Outbound overrides the outbound traffic policy of the mesh if HasOutbound is true.
	Outbound    settings.Outbound
	HasOutbound bool
	Hash        omap.Hash
}

// Admits reports whether the Sidecar imports a host that a namespace declares. client is the namespace of the proxy.
func (s *Sidecar) Admits(namespace, host, client string) bool {
	return len(s.Egress) == 0 || slices.ContainsFunc(s.Egress, func(e Egress) bool { return e.Admits(namespace, host, client) })
}

// Meets reports whether rules of a namespace for a host or pattern may apply to a host that the Sidecar imports.
func (s *Sidecar) Meets(namespace, host, client string) bool {
	return slices.ContainsFunc(s.Imports, func(i Import) bool {
		return i.Covers(namespace, host, client) || i.Covers(namespace, i.Host, client) && mesh.Covers(host, i.Host)
	})
}

// Import is one "namespace/host" of a Sidecar.
type Import struct {
	Namespace string // a name, "*" for any, "." for the proxy's own
	Host      string // a fully qualified name or pattern
}

// Covers reports whether the import covers a host that a namespace declares. client is the namespace of the proxy.
func (i Import) Covers(namespace, host, client string) bool {
	in := i.Namespace
	if in == "." {
		in = client
	}
	return (in == "*" || in == namespace) && mesh.Covers(i.Host, host)
}

// Egress is an egress listener of a Sidecar.
type Egress struct {
	// Port is the port of the listener; 0 for all ports without a listener of their own.
	Port uint32
	// Protocol is the protocol of the listener if Declared is true. Otherwise the ports of the services decide the protocol.
	Protocol mesh.Protocol
	Declared bool
	// IP is the address of the listener, or a "unix://" path; empty for the addresses of its services. Bound is true if the listener has a socket there.
	IP                string
	Bound             bool
	Imports, Excludes []Import
}

// IsUnix reports whether the listener is at a Unix domain socket.
func (e Egress) IsUnix() bool { return strings.HasPrefix(e.IP, "unix://") }

// Equal reports whether the two are the same.
func (e Egress) Equal(o Egress) bool {
	return e.Port == o.Port && e.Protocol == o.Protocol && e.Declared == o.Declared && e.IP == o.IP && e.Bound == o.Bound &&
		slices.Equal(e.Imports, o.Imports) && slices.Equal(e.Excludes, o.Excludes)
}

// Admits reports whether a host that a namespace declares can be reached through the listener.
func (e Egress) Admits(namespace, host, client string) bool {
	covers := func(i Import) bool { return i.Covers(namespace, host, client) }
	return slices.ContainsFunc(e.Imports, covers) && !slices.ContainsFunc(e.Excludes, covers)
}

// Ingress is an ingress listener of a Sidecar: a port that its workloads serve.
type Ingress struct {
	Number   uint32
	Protocol mesh.Protocol
	// Bound is true if the listener has its own socket, at IP if that is not empty.
	Bound bool
	IP    string
	// To is the address and port of the application, or a "unix://" path; empty for the original destination.
	To string
	// Pool limits connections to the application on this port. If it is nil, the Pool of the Sidecar does.
	Pool *networking.ConnectionPoolSettings
	// TLS are the settings for TLS of clients that are not in the mesh; nil if there is none.
	TLS *networking.ServerTLSSettings
}

// ServerTLS returns the settings of a port for TLS of clients that are not in the mesh; nil if there are none.
func (s *Sidecar) ServerTLS(port uint32) *networking.ServerTLSSettings {
	for _, in := range s.Ingress {
		if in.Number == port {
			return in.TLS
		}
	}
	return nil
}

// Limits returns the limits for connections to a port of its workloads; nil if the Sidecar has none.
func (s *Sidecar) Limits(port uint32) *networking.ConnectionPoolSettings {
	for _, in := range s.Ingress {
		if in.Number == port && in.Pool != nil {
			return in.Pool
		}
	}
	return s.Pool
}

func (t *Tables) sidecar(o *api.Object, spec *networking.Sidecar) *Sidecar {
	s := &Sidecar{Object: o.Key, Created: age(o), Selector: spec.WorkloadSelector.GetLabels(), Hash: o.Hash, Plain: true, Pool: spec.InboundConnectionPool}
	for _, e := range spec.Egress {
		l := t.egress(o, e)
		if l.IsUnix() && l.Protocol == mesh.UDP {
			continue // a rule warns of it
		}
		s.Egress = append(s.Egress, l)
		s.Imports = append(s.Imports, l.Imports...)
		s.Plain = s.Plain && l.Port == 0 && !l.IsUnix()
	}
	if len(s.Egress) == 1 {
		s.Excludes = s.Egress[0].Excludes
	}
	if p := spec.OutboundTrafficPolicy; p != nil {
		s.HasOutbound = true
		if p.Mode == networking.OutboundTrafficPolicy_REGISTRY_ONLY {
			s.Outbound.Mode = settings.RegistryOnly
		}
		if via := p.EgressProxy; via != nil {
			s.Outbound.Host = mesh.FullHost(via.Host, o.Namespace, t.options.Domain)
			s.Outbound.Subset, s.Outbound.Port = via.Subset, via.GetPort().GetNumber()
		}
	}
	everything := Import{"*", "*"}
	s.All = !s.HasOutbound && s.Plain && len(s.Excludes) == 0 && (len(spec.Egress) == 0 || slices.Contains(s.Imports, everything))
	if len(spec.Egress) == 0 {
		s.Imports = []Import{everything}
	}
	for _, in := range spec.Ingress {
		s.Ingress = append(s.Ingress, ingress(in))
	}
	return s
}

func (t *Tables) egress(o *api.Object, e *networking.IstioEgressListener) Egress {
	l := Egress{Port: e.GetPort().GetNumber(), IP: e.Bind, Bound: e.CaptureMode == networking.CaptureMode_NONE}
	l.Protocol, _ = mesh.ParseProtocol(e.GetPort().GetProtocol())
	l.Declared = l.Protocol != mesh.Auto
	switch {
	case e.Port == nil:
		l.IP = "" // it has no effect there
	case l.IsUnix():
		l.Bound = true
		if l.Protocol.IsHTTP() || !l.Declared {
			l.Protocol = mesh.HTTPProxy // requests at a socket name their host, and its port if it is not 80
		}
	case l.Bound && l.IP == "":
		l.IP = mesh.Loopback
	}
	for _, h := range e.Hosts {
		ns, host, _ := strings.Cut(h, "/")
		i := Import{ns, mesh.FullHost(host, o.Namespace, t.options.Domain)}
		switch out, excluded := strings.CutPrefix(ns, "~"); {
		case h == "~/*": // imports nothing
		case excluded:
			i.Namespace = out
			if out == "" {
				i.Namespace = "*"
			}
			l.Excludes = append(l.Excludes, i)
		default:
			l.Imports = append(l.Imports, i)
		}
	}
	return l
}

func ingress(in *networking.IstioIngressListener) Ingress {
	l := Ingress{
		Number: in.GetPort().GetNumber(), Bound: in.CaptureMode == networking.CaptureMode_NONE, IP: in.Bind, To: in.DefaultEndpoint, Pool: in.ConnectionPool, TLS: in.Tls,
	}
	l.Protocol, _ = mesh.ParseProtocol(in.GetPort().GetProtocol())
	return l
}
