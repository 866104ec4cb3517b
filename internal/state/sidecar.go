package state

import (
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
)

// Sidecar is a scope: what the proxies it applies to may see, and how it reaches them.
type Sidecar struct {
	Object   api.Key
	Created  int64
	Selector map[string]string
	// Imports are the hosts it lets in through any of its listeners, Excludes those it keeps out of all of them.
	Imports, Excludes []Import
	// Egress are its listeners, the one for all other ports last. Plain says that there is only that.
	Egress []Egress
	Plain  bool
	// All says that the scope is what a namespace sees anyway.
	All bool
	// Ingress are the ports on which its workloads serve, whatever services say; none: what services say.
	Ingress []Ingress
	// Pool limits connections to its workloads' applications; nil: what rules for the services say.
	Pool *networking.ConnectionPoolSettings
	// Outbound overrides the mesh's outbound mode if HasOutbound.
	Outbound    Outbound
	HasOutbound bool
	Hash        omap.Hash
}

// Admits reports whether a host that a namespace declares is let in.
func (s *Sidecar) Admits(namespace, host, client string) bool {
	return len(s.Egress) == 0 || slices.ContainsFunc(s.Egress, func(e Egress) bool { return e.Admits(namespace, host, client) })
}

// Meets reports whether rules that a namespace has for a host or pattern are about any host that may be let in.
func (s *Sidecar) Meets(namespace, host, client string) bool {
	return slices.ContainsFunc(s.Imports, func(i Import) bool {
		return i.Covers(namespace, host, client) || i.Covers(namespace, i.Host, client) && mesh.Covers(host, i.Host)
	})
}

// Import is one "namespace/host" of a Sidecar.
type Import struct {
	Namespace string // a name, "*" for any, "." for the proxy's own
	Host      string // a full name or pattern
}

// Covers reports whether a host that a namespace declares is meant, where client is the proxy's own namespace.
func (i Import) Covers(namespace, host, client string) bool {
	in := i.Namespace
	if in == "." {
		in = client
	}
	return (in == "*" || in == namespace) && mesh.Covers(i.Host, host)
}

// Egress is a listener of a Sidecar for outbound traffic.
type Egress struct {
	// Port is the one it is for; 0: all that no other listener is for.
	Port uint32
	// Protocol is what it speaks if Declared; else what the services' ports do.
	Protocol mesh.Protocol
	Declared bool
	// IP is the address it is at; empty: those of its services. Bound says that it has a socket there.
	IP                string
	Bound             bool
	Imports, Excludes []Import
}

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

// Ingress is a port of a workload.
type Ingress struct {
	Number   uint32
	Protocol mesh.Protocol
	// Bound says that it has a socket of its own, at IP if that is not empty.
	Bound bool
	IP    string
	// To is where the application is: an address and port, or a "unix://" path; empty: where the client was going.
	To string
	// Pool limits connections there; nil: as to the others.
	Pool *networking.ConnectionPoolSettings
}

// Limits are what the Sidecar says of connections to a port of its workloads; nil if nothing.
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
		if strings.HasPrefix(e.Bind, "unix://") {
			continue // not supported: a Problem says so
		}
		l := t.egress(o, e)
		s.Egress = append(s.Egress, l)
		s.Imports = append(s.Imports, l.Imports...)
		s.Plain = s.Plain && l.Port == 0
	}
	if len(s.Egress) == 1 {
		s.Excludes = s.Egress[0].Excludes
	}
	if p := spec.OutboundTrafficPolicy; p != nil {
		s.HasOutbound = true
		if p.Mode == networking.OutboundTrafficPolicy_REGISTRY_ONLY {
			s.Outbound.Mode = RegistryOnly
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
	if l.Bound && l.IP == "" {
		l.IP = mesh.Loopback
	}
	for _, h := range e.Hosts {
		ns, host, _ := strings.Cut(h, "/")
		i := Import{ns, mesh.FullHost(host, o.Namespace, t.options.Domain)}
		switch out, excluded := strings.CutPrefix(ns, "~"); {
		case h == "~/*": // nothing is let in
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
		Number: in.GetPort().GetNumber(), Bound: in.CaptureMode == networking.CaptureMode_NONE, IP: in.Bind, To: in.DefaultEndpoint, Pool: in.ConnectionPool,
	}
	l.Protocol, _ = mesh.ParseProtocol(in.GetPort().GetProtocol())
	return l
}
