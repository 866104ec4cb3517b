package envoy

import (
	"math"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/pilotmesh/pilot/internal/mesh"
)

// Assignment lists endpoints, for a cluster that holds them itself. External endpoints get no metadata for the mesh's
// TLS or for metrics. Weights are scaled down until their sum fits in 32 bits, because Envoy refuses larger sums. EncodeAssignment must
// return the same content.
func Assignment(name string, groups []mesh.Group, external bool, peers Peers) *endpointv3.ClusterLoadAssignment {
	a := &endpointv3.ClusterLoadAssignment{ClusterName: name}
	shift := weightShift(groups)
	for _, g := range groups {
		out := &endpointv3.LocalityLbEndpoints{Priority: g.Priority}
		if g.Locality != (mesh.Locality{}) {
			out.Locality = &corev3.Locality{Region: g.Locality.Region, Zone: g.Locality.Zone, SubZone: g.Locality.SubZone}
		}
		sum := uint32(0)
		for _, e := range g.Endpoints {
			weight := max(e.Weight>>shift, 1)
			sum += weight
			lb := endpoint(e, weight)
			lb.Metadata = peers.endpointMetadata(e, external)
			out.LbEndpoints = append(out.LbEndpoints, lb)
		}
		if g.Weight > 0 {
			sum = g.Weight
		}
		out.LoadBalancingWeight = Uint(sum)
		a.Endpoints = append(a.Endpoints, out)
	}
	return a
}

func endpoint(e mesh.PortEndpoint, weight uint32) *endpointv3.LbEndpoint {
	at := Address(e.Address, e.Port)
	if path, ok := e.UnixPath(); ok {
		at = Pipe(path)
	}
	to := &endpointv3.Endpoint{Address: at}
	if e.Second != "" {
		to.AdditionalAddresses = []*endpointv3.Endpoint_AdditionalAddress{{Address: Address(e.Second, e.Port)}}
	}
	return &endpointv3.LbEndpoint{
		HealthStatus:        healthOf(e),
		HostIdentifier:      &endpointv3.LbEndpoint_Endpoint{Endpoint: to},
		LoadBalancingWeight: Uint(weight),
	}
}

// healthOf is the health of an endpoint that clients may know.
func healthOf(e mesh.PortEndpoint) corev3.HealthStatus {
	switch e.Health {
	case mesh.Unready:
		return corev3.HealthStatus_UNHEALTHY
	case mesh.Draining:
		return corev3.HealthStatus_DRAINING
	}
	return corev3.HealthStatus_UNKNOWN
}

// weightShift is the number of bits by which weights must be shifted right so that their sum fits in 32 bits.
func weightShift(groups []mesh.Group) int {
	sum := uint64(0)
	for _, g := range groups {
		for _, e := range g.Endpoints {
			sum += uint64(e.Weight) + 1 // no weight is less than 1 in the end
		}
	}
	shift := 0
	for sum>>shift > math.MaxUint32 {
		shift++
	}
	return shift
}
