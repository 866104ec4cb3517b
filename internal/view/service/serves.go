package service

import (
	"cmp"
	"maps"
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
)

// maxServed bounds how many services of one workload are looked at.
const maxServed = 40

// Workload names a workload by its namespace and addresses.
type Workload struct {
	Namespace string
	Addresses intern.List[string]
}

// Served is what a workload serves.
type Served struct {
	// Inbound are its ports, by number.
	Inbound intern.List[proxy.InboundPort]
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

// hit is a service with an endpoint at the workload.
type hit struct {
	object   api.Key
	created  int64
	endpoint mesh.Endpoint
}

func (q *Queries) serves(r *query.Reader, w Workload) (Served, bool) {
	var hits []hit
	for a := range w.Addresses.All() {
		hits = q.declaredAt(r, state.AddressIn{Namespace: w.Namespace, Address: a}, hits)
		hits = q.selectedAt(r, state.AddressIn{Namespace: w.Namespace, Address: a}, hits)
	}
	if len(hits) == 0 {
		return Served{}, true
	}
	slices.SortStableFunc(hits, func(a, b hit) int {
		return cmp.Or(cmp.Compare(a.created, b.created), a.object.Compare(b.object))
	})
	s := Served{Known: true, Labels: hits[0].endpoint.Labels, At: hits[0].endpoint.Locality}
	ports := map[uint32]proxy.InboundPort{}
	for _, h := range hits {
		q.addPorts(r, h, ports)
	}
	var list []proxy.InboundPort
	for _, n := range slices.Sorted(maps.Keys(ports)) {
		list = append(list, ports[n])
	}
	s.Inbound = intern.Of(list...)
	return s, true
}

// declaredAt finds services with an inline endpoint at the address.
func (q *Queries) declaredAt(r *query.Reader, at state.AddressIn, hits []hit) []hit {
	for object := range q.tables.ServicesAt.Group(r, at).All() {
		if len(hits) == maxServed {
			break
		}
		e, ok := q.tables.Endpoints.Get(r, object)
		if !ok {
			continue
		}
		for _, ep := range e.Inline {
			if ep.Address == at.Address {
				hits = append(hits, q.hit(r, object, ep))
			}
		}
	}
	return hits
}

// selectedAt finds services that select a workload at the address.
func (q *Queries) selectedAt(r *query.Reader, at state.AddressIn, hits []hit) []hit {
	for workload := range q.tables.WorkloadsAt.Group(r, at).All() {
		ep, ok := q.tables.Workloads.Get(r, workload)
		if !ok {
			continue
		}
		for _, l := range mesh.SortedLabels(ep.Labels) {
			for object := range q.tables.SelectorsByLabel.Group(r, state.LabelIn{Namespace: at.Namespace, Label: l}).All() {
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
func (q *Queries) addPorts(r *query.Reader, h hit, ports map[uint32]proxy.InboundPort) {
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
		ports[number] = proxy.InboundPort{
			Number: number, Protocol: p.Protocol, Host: host, Namespace: spec.Namespace, Name: spec.Name, Port: p.Number,
		}
	}
}
