// Package registry has the values of service registries outside Kubernetes: the services of Consul, ZooKeeper, Nacos, Eureka and of the
// registries file, and the shares of traffic with which a host migrates from one registry to another.
//
// A source makes these values, and package state splits them into rows. Values are immutable. The package starts no goroutines.
package registry

import (
	"maps"
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// The kinds of objects of registries.
const (
	// KindService is the kind of a service. The Cluster of its key is the name of the registry, its Name is the host.
	KindService = api.KindRegistryService
	// KindMigration is the kind of a Migration. The Name of its key is the host.
	KindMigration = "RegistryMigration"
)

// The names of the sources of endpoints that are no registries of the file. A migration may name them.
const (
	// Kubernetes is all Kubernetes clusters.
	Kubernetes = "Kubernetes"
	// ServiceEntry is all ServiceEntries, with the workloads that they select.
	ServiceEntry = "ServiceEntry"
)

// Service is a service of a registry.
type Service struct {
	// Order is the place of the registry in the file, from 0. Of several registries with a host, the first defines the service.
	Order int
	// Named is the name of the service in the registry.
	Named string
	// Spec describes the service to its callers.
	Spec *mesh.Service
	// ExportTo lists the namespaces that see the service, as in a ServiceEntry.
	ExportTo []string
	// Endpoints are the instances. An instance that must not get traffic is Unusable.
	Endpoints []mesh.Endpoint
	// Scale is how many units of the weight of an endpoint are the weight 1: weights may be fractions.
	Scale uint32
}

// ServiceKey returns the key of a service of a registry.
func ServiceKey(registry, namespace, host string) api.Key {
	return api.Key{Kind: KindService, Namespace: namespace, Name: host, Cluster: registry}
}

// Kind implements kube.Value.
func (*Service) Kind() string { return KindService }

// Same implements kube.Value.
func (s *Service) Same(other kube.Value) bool {
	o, ok := other.(*Service)
	return ok && s.Order == o.Order && s.Named == o.Named && s.Scale == o.Scale && s.Spec.Equal(o.Spec) &&
		slices.Equal(s.ExportTo, o.ExportTo) && slices.EqualFunc(s.Endpoints, o.Endpoints, mesh.Endpoint.Equal)
}

// Migration is how registries share the traffic of a host.
type Migration struct {
	// Weights has the share of each registry, by name. A registry without a share gets no traffic while another one can serve.
	Weights map[string]uint32
}

// MigrationKey returns the key of the migration of a host.
func MigrationKey(host string) api.Key { return api.Key{Kind: KindMigration, Name: host} }

// Kind implements kube.Value.
func (*Migration) Kind() string { return KindMigration }

// Same implements kube.Value.
func (m *Migration) Same(other kube.Value) bool {
	o, ok := other.(*Migration)
	return ok && maps.Equal(m.Weights, o.Weights)
}
