// Package proxy turns what a proxy says of itself into a row and names the classes of proxies.
//
// It owns the parsing of node identifiers and metadata, and the Class: the facets by which two proxies may differ in
// what they receive. Invariants: a Proxy and a Class are immutable; a Class holds nothing that is a proxy's own (no
// name, no raw labels), so that replicas are one class; malformed input is an error that names the field, never a panic.
// The package starts no goroutines. It must not import the store, state, views, xds or Envoy's protos.
package proxy

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
)

// Mode is how traffic gets to a sidecar.
type Mode uint8

// The interception modes.
const (
	// Redirect: packet filter rules redirect connections to the proxy's two virtual ports.
	Redirect Mode = iota
	// Transparent is Redirect that keeps the client's address.
	Transparent
	// None: nothing redirects; the proxy binds every port itself.
	None
)

// String is the mode as it is spelled in metadata.
func (m Mode) String() string {
	switch m {
	case Redirect:
		return "REDIRECT"
	case Transparent:
		return "TPROXY"
	case None:
		return "NONE"
	}
	return "unknown"
}

// Role is the job of a proxy.
type Role string

// The roles.
const (
	// Sidecar is beside a workload.
	Sidecar Role = "sidecar"
	// Router is a gateway. It gets clusters, endpoints and routes; what it listens on is said by Gateway objects, which
	// are not served yet.
	Router Role = "router"
	// Agent is no proxy but the agent beside one, on a stream of its own: it has no class, and tells what its proxy cannot.
	Agent Role = "agent"
)

// NameOf is the name.namespace in a node id; of what is no node id, that itself.
func NameOf(id string) string {
	if parts := strings.Split(id, "~"); len(parts) == 4 {
		return parts[2]
	}
	return id
}

// IsAgent reports whether a node id is that of an agent, and not of the proxy beside it.
func IsAgent(id string) bool { return strings.HasPrefix(id, string(Agent)+"~") }

// Proxy is a connected proxy, as far as translation may read it.
type Proxy struct {
	ID        string // the node id: role~ip~name.namespace~domain
	Role      Role
	Addresses []string // of the workload, the one of the node id first
	Name      string
	Namespace string
	Domain    string // of its DNS search path: namespace.svc.cluster.local
	Labels    map[string]string
	ClusterID string
	Network   string
	Mode      Mode
	Locality  mesh.Locality
	// HTTP10 says that clients and the application may speak HTTP/1.0.
	HTTP10 bool
	// Idle is how long a connection to the workload may say nothing; 0: as Envoy has it.
	Idle time.Duration
	// Version is the release the agent says it is.
	Version string
	// Envoy is the minor of its Envoy 1; 0 if it did not say.
	Envoy uint32
	// Extensions are the names of Envoy's extensions the proxy has, in order; none if it did not say.
	Extensions []string
}

// Equal reports whether the two are the same to every reader.
func (p *Proxy) Equal(o *Proxy) bool {
	return p == o || p != nil && o != nil &&
		p.ID == o.ID && p.Role == o.Role && p.Name == o.Name && p.Namespace == o.Namespace && p.Domain == o.Domain &&
		p.ClusterID == o.ClusterID && p.Network == o.Network && p.Mode == o.Mode && p.Locality == o.Locality &&
		p.Version == o.Version && p.Envoy == o.Envoy && p.HTTP10 == o.HTTP10 && p.Idle == o.Idle && slices.Equal(p.Addresses, o.Addresses) && maps.Equal(p.Labels, o.Labels) &&
		slices.Equal(p.Extensions, o.Extensions)
}

// InboundPort is a port on which a workload serves.
type InboundPort struct {
	Number   uint32 // where the application listens
	Protocol mesh.Protocol
	// Host, Namespace, Name and Port are of the service that is served; if several are, of the oldest.
	Host, Namespace, Name string
	Port                  uint32
	// Bound says that the port has a socket of its own, at the address Bind if that is not empty, although connections to
	// others are redirected.
	Bound bool
	Bind  string
	// To is where the application is: an address and port or a "unix://" path; empty: where the client was going.
	To string
	// Limited is the Sidecar that limits connections there; zero if none does.
	Limited api.Key
}

// Class names the proxies that receive the same: those with equal facets.
type Class struct {
	Namespace string
	// Sidecar is the object that narrows what the proxy sees; zero if none does.
	Sidecar api.Key
	Mode    Mode
	// ShortNames says that the proxy's DNS search path is that of its namespace, so that services there can be called
	// by their bare names.
	ShortNames bool
	// Labels are those of the workload's labels that rules for callers name.
	Labels mesh.Labels
	// Inbound are the ports on which the workload serves, by number.
	Inbound intern.List[InboundPort]
	// Bind is the address that inbound listeners bind. It is empty where traffic is redirected: only proxies that bind
	// their ports themselves differ by address.
	Bind string
	// Site is where the proxy runs. It is empty where no rule prefers endpoints by that.
	Site mesh.Site
	// Rules are the names of the DestinationRules of its namespace that select it, oldest first.
	Rules intern.List[string]
	// HTTP10 says that HTTP/1.0 is taken as HTTP.
	HTTP10 bool
	// DefaultLog says that the proxy's Envoy is too old for the format of the mesh's access log: the default one is used.
	DefaultLog bool
	// Idle is how long a connection to the workload may say nothing; 0: as Envoy has it.
	Idle time.Duration
	// Gateway says that the proxy is a router: it has no workload, and nothing is captured for it.
	Gateway bool
}

// Hash stands for the class: classes with equal hashes are equal, in this process and in others.
func (c Class) Hash() omap.Hash {
	var h hashed
	h.flags(c.ShortNames, c.HTTP10, c.Gateway, c.DefaultLog)
	h.number(int64(c.Mode))
	h.number(int64(c.Idle))
	at := c.Site.Locality
	h.text(c.Namespace, c.Bind, at.Region, at.Zone, at.SubZone)
	h.key(c.Sidecar)
	for _, labels := range []mesh.Labels{c.Labels, c.Site.Labels} {
		for l := range labels.All() {
			h.text(l.Name, l.Value)
		}
		h.end()
	}
	for name := range c.Rules.All() {
		h.text(name)
	}
	h.end()
	for p := range c.Inbound.All() {
		h.flags(p.Bound)
		for _, n := range []int64{int64(p.Number), int64(p.Protocol), int64(p.Port)} {
			h.number(n)
		}
		h.text(p.Host, p.Namespace, p.Name, p.Bind, p.To)
		h.key(p.Limited)
	}
	return omap.Sum(h)
}

// hashed are the bytes of a value, such that no two values have the same.
type hashed []byte

func (h *hashed) number(n int64) { *h = binary.AppendVarint(*h, n) }

func (h *hashed) flags(flags ...bool) {
	for _, set := range flags {
		if set {
			*h = append(*h, 1)
		} else {
			*h = append(*h, 0)
		}
	}
}

// text writes each text behind its length plus one.
func (h *hashed) text(texts ...string) {
	for _, s := range texts {
		*h = append(binary.AppendUvarint(*h, uint64(len(s))+1), s...)
	}
}

// end marks the end of a list of texts: no text has the length -1.
func (h *hashed) end() { *h = append(*h, 0) }

func (h *hashed) key(k api.Key) { h.text(k.Kind, k.Namespace, k.Name) }
