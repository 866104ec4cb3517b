package service

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
)

// maxServed bounds how many services of one workload are looked at.
const maxServed = 40

// Workload names a workload by its namespace and addresses, joined by commas.
type Workload struct{ Namespace, Addresses string }

// Served is what a workload serves.
type Served struct {
	// Inbound are its ports in a form that is equal for replicas; see ParseInbound.
	Inbound string
	// Known says that a service of the namespace has an endpoint at the workload. Labels are then that endpoint's: they
	// replace what the proxy says of itself.
	Known  bool
	Labels map[string]string
	// At is where that endpoint says it runs; zero if it does not.
	At mesh.Locality
}

// Equal reports whether the two are the same.
func (s Served) Equal(o Served) bool {
	return s.Inbound == o.Inbound && s.Known == o.Known && s.At == o.At && maps.Equal(s.Labels, o.Labels)
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
	// Limited is the Sidecar that limits connections there, as "namespace/name"; empty if none does.
	Limited string
}

func (p InboundPort) String() string {
	bound := ""
	if p.Bound {
		bound = "bound"
	}
	return strings.Join([]string{
		strconv.FormatUint(uint64(p.Number), 10), p.Protocol.String(), p.Host, p.Namespace, p.Name,
		strconv.FormatUint(uint64(p.Port), 10), bound, p.Bind, url.PathEscape(p.To), url.PathEscape(p.Limited),
	}, "/")
}

// FormatInbound is the canonical form of a workload's ports.
func FormatInbound(ports []InboundPort) string {
	list := make([]string, 0, len(ports))
	for _, p := range ports {
		list = append(list, p.String())
	}
	return strings.Join(list, ";")
}

// ParseInbound reads the canonical form of a workload's ports.
func ParseInbound(s string) []InboundPort {
	if s == "" {
		return nil
	}
	var list []InboundPort
	for one := range strings.SplitSeq(s, ";") {
		f := strings.Split(one, "/")
		if len(f) != 10 {
			continue
		}
		number, _ := strconv.ParseUint(f[0], 10, 32)
		port, _ := strconv.ParseUint(f[5], 10, 32)
		protocol, _ := mesh.ParseProtocol(f[1])
		to, _ := url.PathUnescape(f[8])
		limited, _ := url.PathUnescape(f[9])
		list = append(list, InboundPort{
			Number: uint32(number), Protocol: protocol, Host: f[2], Namespace: f[3], Name: f[4], Port: uint32(port),
			Bound: f[6] != "", Bind: f[7], To: to, Limited: limited,
		})
	}
	return list
}

// hit is a service with an endpoint at the workload.
type hit struct {
	object   api.Key
	created  int64
	endpoint mesh.Endpoint
}

func (q *Queries) serves(r *query.Reader, w Workload) (Served, bool) {
	var hits []hit
	for a := range strings.SplitSeq(w.Addresses, ",") {
		hits = q.declaredAt(r, state.InNamespace{Namespace: w.Namespace, Of: a}, hits)
		hits = q.selectedAt(r, state.InNamespace{Namespace: w.Namespace, Of: a}, hits)
	}
	if len(hits) == 0 {
		return Served{}, true
	}
	slices.SortStableFunc(hits, func(a, b hit) int {
		return cmp.Or(cmp.Compare(a.created, b.created), a.object.Compare(b.object))
	})
	s := Served{Known: true, Labels: hits[0].endpoint.Labels, At: hits[0].endpoint.Locality}
	ports := map[uint32]InboundPort{}
	for _, h := range hits {
		q.addPorts(r, h, ports)
	}
	var list []InboundPort
	for _, n := range slices.Sorted(maps.Keys(ports)) {
		list = append(list, ports[n])
	}
	s.Inbound = FormatInbound(list)
	return s, true
}

// declaredAt finds services with an inline endpoint at the address.
func (q *Queries) declaredAt(r *query.Reader, at state.InNamespace, hits []hit) []hit {
	for object := range q.tables.ServicesAt.Group(r, at).All() {
		if len(hits) == maxServed {
			break
		}
		e, ok := q.tables.Endpoints.Get(r, object)
		if !ok {
			continue
		}
		for _, ep := range e.Inline {
			if ep.Address == at.Of {
				hits = append(hits, q.hit(r, object, ep))
			}
		}
	}
	return hits
}

// selectedAt finds services that select a workload at the address.
func (q *Queries) selectedAt(r *query.Reader, at state.InNamespace, hits []hit) []hit {
	for workload := range q.tables.WorkloadsAt.Group(r, at).All() {
		ep, ok := q.tables.Workloads.Get(r, workload)
		if !ok {
			continue
		}
		for _, pair := range mesh.LabelPairs(ep.Labels) {
			for object := range q.tables.SelectorsByLabel.Group(r, state.InNamespace{Namespace: at.Namespace, Of: pair}).All() {
				if len(hits) == maxServed {
					return hits
				}
				if e, ok := q.tables.Endpoints.Get(r, object); ok && mesh.Selects(e.Selector, ep.Labels) {
					hits = append(hits, q.hit(r, object, ep))
				}
			}
		}
	}
	return hits
}

func (q *Queries) hit(r *query.Reader, object api.Key, ep mesh.Endpoint) hit {
	h := hit{object: object, endpoint: ep}
	if c, ok := q.tables.Claims.Get(r, object); ok {
		h.created = c.Created
	}
	return h
}

// addPorts adds the ports that are not taken by an older service.
func (q *Queries) addPorts(r *query.Reader, h hit, ports map[uint32]InboundPort) {
	spec, ok := q.tables.Services.Get(r, h.object)
	if !ok {
		return
	}
	host := ""
	if c, ok := q.tables.Claims.Get(r, h.object); ok {
		host = c.Hosts[0]
	}
	for _, p := range spec.Ports {
		number := h.endpoint.Port(p)
		if _, taken := ports[number]; taken || number == 0 || p.Protocol == mesh.UDP {
			continue
		}
		ports[number] = InboundPort{
			Number: number, Protocol: p.Protocol, Host: host, Namespace: spec.Namespace, Name: spec.Name, Port: p.Number,
		}
	}
}
