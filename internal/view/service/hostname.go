package service

import "github.com/pilotmesh/pilot/internal/engine/query"

// EndpointAddress is an address of an endpoint in a cluster.
type EndpointAddress struct{ Cluster, Address string }

// HostNames are the host names of the endpoints of a service that have one: pods of a StatefulSet, and others that set hostname and
// subdomain. Such an endpoint has a name of its own: the host name, and behind it the name of the service.
func (q *Queries) HostNames(r *query.Reader, s *Service) map[EndpointAddress]string {
	names := map[EndpointAddress]string{}
	for _, declaration := range s.Declarations {
		if !declaration.isService() {
			continue
		}
		for k := range q.tables.Kube.SlicesOf.Group(r, declaration.Object).All() {
			slice, ok := q.tables.Kube.Slices.Get(r, k)
			if !ok {
				continue
			}
			for _, e := range slice.Endpoints {
				if e.Hostname != "" {
					names[EndpointAddress{k.Cluster, e.Address}] = e.Hostname
				}
			}
		}
	}
	return names
}

// OfCluster reports whether a Service of a Kubernetes cluster declares the service, and not only ServiceEntries do.
func (s *Service) OfCluster() bool {
	for _, p := range s.Declarations {
		if p.isService() {
			return true
		}
	}
	return false
}
