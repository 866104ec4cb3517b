package service

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/selected"
)

// maxInstances bounds how many services of one workload count.
const maxInstances = 40

// Workload names a workload. Its pod is found by its name, or else by its addresses, and endpoints outside Kubernetes by its
// addresses.
type Workload struct {
	Cluster, Namespace, Name string
	Addresses                intern.List[string]
	// Labels are the labels that its proxy reports. They count while neither a pod nor an endpoint of the workload is known.
	Labels mesh.Labels
}

// WorkloadDescription describes a workload by the services of its namespace, and by its pod.
type WorkloadDescription struct {
	// Ports are the ports that the workload serves, sorted by number. Each belongs to the oldest service that has it.
	Ports intern.List[proxy.InboundPort]
	// Targets are the ports of the workload for the ports of its services, sorted. Services may have several for one port. A port that has no other
	// target than itself is left out.
	Targets intern.List[proxy.PortTarget]
	// Datagrams are the ports for the UDP ports of its services, if gateways take HTTP/3. Of services with the same port the oldest one counts.
	Datagrams intern.List[proxy.PortTarget]
	// Own are the addresses of the pod, with the ports of headless Services at which others have a listener for the pod.
	Own intern.List[netip.AddrPort]
	// HasEndpoint says that the workload is a pod, or that a service has an endpoint at its address. Labels are the labels of the
	// pod, or else of the endpoint of the oldest such service; they replace the labels that the proxy reports.
	HasEndpoint bool
	Labels      mesh.Labels
	// Place is the place of the pod or of the same endpoint. Parts of it are empty if they are not known.
	Place mesh.Place
}

// Equal reports whether two descriptions are equal.
func (s WorkloadDescription) Equal(o WorkloadDescription) bool {
	return s.Ports == o.Ports && s.Targets == o.Targets && s.Datagrams == o.Datagrams && s.Own == o.Own && s.HasEndpoint == o.HasEndpoint && s.Place == o.Place && s.Labels == o.Labels
}

// instance is a service with an endpoint at the workload.
type instance struct {
	object   api.Key
	created  int64
	endpoint mesh.Endpoint
	// port returns the port of the workload for a port of the service; 0 if it does not serve it.
	port func(mesh.Port) uint32
}

func (q *Queries) describeWorkload(r *query.Reader, w Workload) (WorkloadDescription, bool) {
	if k, pod := q.findPod(r, w); pod != nil {
		s := WorkloadDescription{HasEndpoint: true, Labels: pod.Labels, Place: q.podPlace(r, k, pod, pod.Address)}
		hits := q.podInstances(r, k, pod, nil)
		s.Ports, s.Own = q.ports(r, hits), q.ownAddresses(r, pod, hits)
		s.Targets, s.Datagrams = q.targets(r, hits)
		return s, true
	}
	var hits []instance
	for a := range w.Addresses.All() {
		hits = q.inlineInstances(r, state.AddressIn{Namespace: w.Namespace, Address: a}, hits)
		hits = q.selectedInstances(r, state.AddressIn{Namespace: w.Namespace, Address: a}, hits)
	}
	if len(hits) == 0 {
		hits = q.labelInstances(r, w)
		s := WorkloadDescription{Ports: q.ports(r, hits)}
		s.Targets, s.Datagrams = q.targets(r, hits)
		return s, true
	}
	s := WorkloadDescription{HasEndpoint: true, Ports: q.ports(r, hits)}
	s.Targets, s.Datagrams = q.targets(r, hits)
	s.Labels, s.Place = hits[0].endpoint.Labels, hits[0].endpoint.Place
	return s, true
}

// ports sorts the services of a workload by age, and returns the ports that the workload serves for them.
func (q *Queries) ports(r *query.Reader, hits []instance) intern.List[proxy.InboundPort] {
	slices.SortStableFunc(hits, func(a, b instance) int {
		return cmp.Or(cmp.Compare(a.created, b.created), a.object.Compare(b.object))
	})
	ports := map[uint32]proxy.InboundPort{}
	for _, h := range hits {
		q.addPorts(r, h, ports)
	}
	var list []proxy.InboundPort
	for _, n := range slices.Sorted(maps.Keys(ports)) {
		list = append(list, ports[n])
	}
	return intern.Of(list...)
}

// targets returns the ports of the workload for the ports of its services: the ports for connections, and the UDP ports if gateways take HTTP/3.
// The first service in hits is the oldest; for a UDP port of several services it decides.
func (q *Queries) targets(r *query.Reader, hits []instance) (connections, datagrams intern.List[proxy.PortTarget]) {
	var tcp, udp []proxy.PortTarget
	for _, h := range hits {
		spec, ok := q.tables.Services.Get(r, h.object)
		if !ok {
			continue
		}
		for _, p := range spec.Ports {
			to := proxy.PortTarget{Port: p.Number, Target: h.port(p)}
			if spec.SamePorts {
				to.Target = p.Number
			}
			has := func(t proxy.PortTarget) bool { return t.Port == p.Number }
			switch {
			case to.Target == 0:
			case p.Protocol != mesh.UDP:
				tcp = append(tcp, to)
			case q.tables.QUIC() && !slices.ContainsFunc(udp, has):
				udp = append(udp, to)
			}
		}
	}
	return sortedTargets(tcp, true), sortedTargets(udp, false)
}

// sortedTargets sorts targets, each once. If translated is true, there are none for a port that has no other target than itself.
func sortedTargets(list []proxy.PortTarget, translated bool) intern.List[proxy.PortTarget] {
	slices.SortFunc(list, func(a, b proxy.PortTarget) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Target, b.Target))
	})
	list = slices.Compact(list)
	return intern.Keep(intern.Of(list...), func(t proxy.PortTarget) bool {
		return !translated || slices.ContainsFunc(list, func(o proxy.PortTarget) bool { return o.Port == t.Port && o.Target != o.Port })
	})
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
		for object := range q.selecting(r, at.Namespace, ep.Labels) {
			if len(hits) == maxInstances {
				return hits
			}
			hits = append(hits, q.newInstance(r, object, ep))
		}
	}
	return hits
}

// selecting yields the objects whose selector picks a workload with some labels.
func (q *Queries) selecting(r *query.Reader, namespace string, labels mesh.Labels) iter.Seq[api.Key] {
	return func(yield func(api.Key) bool) {
		for l := range labels.All() {
			for object := range q.tables.SelectorsByLabel.Group(r, selected.LabelIn{Namespace: namespace, Label: l}).All() {
				e, ok := q.tables.Endpoints.Get(r, object)
				if ok && mesh.HasAll(labels, e.Selector) && !yield(object) {
					return
				}
			}
		}
	}
}

func (q *Queries) newInstance(r *query.Reader, object api.Key, ep mesh.Endpoint) instance {
	h := instance{object: object, endpoint: ep, port: ep.Port}
	if c, ok := q.tables.Claims.Get(r, object); ok {
		h.created = c.Created
	}
	return h
}

// addPorts adds the ports of a service that no older service has. Ports of the proxy itself are left out.
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
		number := h.port(p)
		if _, taken := ports[number]; taken || number == 0 || mesh.OwnPort(number) || p.Protocol == mesh.UDP {
			continue
		}
		ports[number] = proxy.InboundPort{
			Number: number, Protocol: p.Protocol, Host: host, Namespace: spec.Namespace, Name: spec.Name, Port: p.Number,
		}
	}
}
