package service

import (
	"iter"
	"math"

	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// isRegistered reports whether the declaration is of a registry outside Kubernetes.
func (p Declaration) isRegistered() bool { return p.Object.Kind == registry.KindService }

// hasRegistries reports whether registries have the service.
func (s *Service) hasRegistries() bool {
	return s.Declarations[len(s.Declarations)-1].isRegistered() // they are the last ones
}

// source is the registry that the endpoints of a declaration are from.
func (p Declaration) source() string {
	switch {
	case p.isRegistered():
		return p.Object.Cluster
	case p.isService():
		return registry.Kubernetes
	}
	return registry.ServiceEntry
}

// portsOf yields the ports of a declaration that belong to a port of the service.
func (s *Service) portsOf(declaration Declaration, number uint32) iter.Seq[mesh.Port] {
	return func(yield func(mesh.Port) bool) {
		if !declaration.Joined {
			if p, ok := s.PortOf(declaration, number); ok {
				yield(p)
			}
			return
		}
		if !s.Joinable() {
			return
		}
		for _, p := range declaration.Spec.Ports {
			if to, ok := s.PortFor(p); ok && to.Number == number && !yield(p) {
				return
			}
		}
	}
}

// registered are the endpoints of a service that registries have, for one of its ports. An address counts once, as the first declaration has
// it.
func (q *Queries) registered(r *query.Reader, s *Service, port uint32) (out []mesh.PortEndpoint) {
	scale := q.scale(r, s)
	type address struct {
		address string
		port    uint32
	}
	seen := map[address]string{}
	for _, declaration := range s.Declarations {
		e, ok := q.tables.Endpoints.Get(r, declaration.Object)
		if !ok {
			continue
		}
		plain := plainPorts{peers: q.Peers, r: r, namespace: declaration.Object.Namespace}
		source, by := declaration.source(), scale/max(e.Scale, 1)
		add := func(endpoint *mesh.Endpoint, p mesh.Port) {
			one := mesh.PortEndpoint{Endpoint: endpoint, Port: endpoint.Port(p), Source: source}
			at := address{endpoint.Address, one.Port}
			if from, known := seen[at]; one.Port == 0 || known && (from != source || declaration.isRegistered()) {
				return
			}
			seen[at] = source
			out = append(out, plain.mark(reweighted(one, uint64(max(endpoint.Weight, 1))*uint64(by), by > 1)))
		}
		for p := range s.portsOf(declaration, port) {
			for i := range e.Inline {
				add(&e.Inline[i], p)
			}
			for list := range q.besides(r).of(declaration, e.Selector) {
				for _, w := range list.All() {
					add(&w.Endpoint, p)
				}
			}
		}
	}
	return withoutRepeats(out, s)
}

// scale is how many units of the weights of endpoints are the weight 1, if the weights of all declarations have one scale.
func (q *Queries) scale(r *query.Reader, s *Service) uint32 {
	scale := uint32(1)
	for _, declaration := range s.Declarations {
		if e, ok := q.tables.Endpoints.Get(r, declaration.Object); ok {
			scale = max(scale, e.Scale)
		}
	}
	return scale
}

// reweighted returns the endpoint with another weight, if it is another one.
func reweighted(e mesh.PortEndpoint, weight uint64, is bool) mesh.PortEndpoint {
	if !is {
		return e
	}
	own := *e.Endpoint
	own.Weight = uint32(min(max(weight, 1), math.MaxUint32))
	e.Endpoint = &own
	return e
}

// shareUnits is the sum of the weights of endpoints under a migration.
const shareUnits = 100_000_000

// Migrating reports whether the registries of a host share its traffic in fixed proportions.
func (q *Queries) Migrating(r *query.Reader, host string) bool {
	_, ok := q.tables.Registries.Migrations.Get(r, host)
	return ok
}

// Share gives endpoints of a service the weights that a migration of its host gives their registries. Endpoints without a share are left out. If
// there is no migration, or if no endpoint with a share can serve, all stay as they are.
func (q *Queries) Share(r *query.Reader, host string, list []mesh.PortEndpoint) []mesh.PortEndpoint {
	m, ok := q.tables.Registries.Migrations.Get(r, host)
	if !ok {
		return list
	}
	sums, shares := map[string]uint64{}, map[string]uint64{}
	for i := range list {
		name, weight := shareOf(m, &list[i])
		if weight > 0 && list[i].Dialable() && list[i].Health == mesh.Healthy {
			sums[name] += uint64(max(list[i].Weight, 1))
			shares[name] = weight
		}
	}
	total := uint64(0)
	for _, weight := range shares {
		total += weight
	}
	if total == 0 {
		return list
	}
	out := make([]mesh.PortEndpoint, 0, len(list))
	for i := range list {
		name, _ := shareOf(m, &list[i])
		if sums[name] == 0 || !list[i].Dialable() {
			continue
		}
		part := float64(shares[name]) / float64(total) * float64(max(list[i].Weight, 1)) / float64(sums[name])
		out = append(out, reweighted(list[i], uint64(math.Round(part*shareUnits)), true))
	}
	return out
}

// shareOf returns the name by which a migration means the registry of an endpoint, and its share.
func shareOf(m *registry.Migration, e *mesh.PortEndpoint) (name string, share uint64) {
	if e.Source == registry.Kubernetes || e.Source == "" && e.Cluster != "" {
		if w, ok := m.Weights[e.Cluster]; ok && e.Cluster != "" {
			return e.Cluster, uint64(w)
		}
		return registry.Kubernetes, uint64(m.Weights[registry.Kubernetes])
	}
	name = e.Source
	if name == "" {
		name = registry.ServiceEntry
	}
	return name, uint64(m.Weights[name])
}
