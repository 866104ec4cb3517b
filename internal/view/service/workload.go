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

// maxInstances bounds how many services of one workload count.
const maxInstances = 40

// Workload names a workload by its namespace and addresses.
type Workload struct {
	Namespace string
	Addresses intern.List[string]
}

// WorkloadDescription is what the services of its namespace say about a workload.
type WorkloadDescription struct {
	// Ports are the ports that the workload serves, sorted by number. Each belongs to the oldest service that has it.
	Ports intern.List[proxy.InboundPort]
	// HasEndpoint says that a service has an endpoint at the workload's address. Labels are those of the endpoint of the
	// oldest such service; they replace the labels that the proxy reports.
	HasEndpoint bool
	Labels      map[string]string
	// Locality is that of the same endpoint. It is zero if the endpoint has none.
	Locality mesh.Locality
}

// Equal reports whether two descriptions are equal.
func (s WorkloadDescription) Equal(o WorkloadDescription) bool {
	return s.Ports == o.Ports && s.HasEndpoint == o.HasEndpoint && s.Locality == o.Locality && maps.Equal(s.Labels, o.Labels)
}

// instance is a service with an endpoint at the workload.
type instance struct {
	object   api.Key
	created  int64
	endpoint mesh.Endpoint
}

func (q *Queries) describeWorkload(r *query.Reader, w Workload) (WorkloadDescription, bool) {
	var hits []instance
	for a := range w.Addresses.All() {
		hits = q.inlineInstances(r, state.AddressIn{Namespace: w.Namespace, Address: a}, hits)
		hits = q.selectedInstances(r, state.AddressIn{Namespace: w.Namespace, Address: a}, hits)
	}
	if len(hits) == 0 {
		return WorkloadDescription{}, true
	}
	slices.SortStableFunc(hits, func(a, b instance) int {
		return cmp.Or(cmp.Compare(a.created, b.created), a.object.Compare(b.object))
	})
	s := WorkloadDescription{HasEndpoint: true, Labels: hits[0].endpoint.Labels, Locality: hits[0].endpoint.Locality}
	ports := map[uint32]proxy.InboundPort{}
	for _, h := range hits {
		q.addPorts(r, h, ports)
	}
	var list []proxy.InboundPort
	for _, n := range slices.Sorted(maps.Keys(ports)) {
		list = append(list, ports[n])
	}
	s.Ports = intern.Of(list...)
	return s, true
}

// inlineInstances appends the services that list an endpoint at the address.
func (q *Queries) inlineInstances(r *query.Reader, at state.AddressIn, hits []instance) []instance {
	for object := range q.tables.ServicesAt.Group(r, at).All() {
		if len(hits) == maxInstances {
			break
		}
		e, ok := q.tables.Endpoints.Get(r, object)
		if !ok {
			continue
		}
		for _, ep := range e.Inline {
			if ep.Address == at.Address {
				hits = append(hits, q.newInstance(r, object, ep))
			}
		}
	}
	return hits
}

// selectedInstances appends the services that select a WorkloadEntry at the address.
func (q *Queries) selectedInstances(r *query.Reader, at state.AddressIn, hits []instance) []instance {
	for workload := range q.tables.WorkloadsAt.Group(r, at).All() {
		ep, ok := q.tables.Workloads.Get(r, workload)
		if !ok {
			continue
		}
		for _, l := range mesh.SortedLabels(ep.Labels) {
			for object := range q.tables.SelectorsByLabel.Group(r, state.LabelIn{Namespace: at.Namespace, Label: l}).All() {
				if len(hits) == maxInstances {
					return hits
				}
				if e, ok := q.tables.Endpoints.Get(r, object); ok && mesh.Selects(e.Selector, ep.Labels) {
					hits = append(hits, q.newInstance(r, object, ep))
				}
			}
		}
	}
	return hits
}

func (q *Queries) newInstance(r *query.Reader, object api.Key, ep mesh.Endpoint) instance {
	h := instance{object: object, endpoint: ep}
	if c, ok := q.tables.Claims.Get(r, object); ok {
		h.created = c.Created
	}
	return h
}

// addPorts adds the ports of a service that no older service has.
func (q *Queries) addPorts(r *query.Reader, h instance, ports map[uint32]proxy.InboundPort) {
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
