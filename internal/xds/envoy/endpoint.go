package envoy

import (
	"math"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/pilotmesh/pilot/internal/mesh"
)

// Assignment lists endpoints, for a cluster that holds them; external ones are never said to take the mesh's TLS. Envoy
// refuses weights whose sum does not fit 32 bits: they are scaled down. EncodeAssignment must say the same.
func Assignment(name string, groups []mesh.Group, external bool) *endpointv3.ClusterLoadAssignment {
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
			if !external && e.MeshTLS() {
				lb.Metadata = takesMeshTLS()
			}
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
	return &endpointv3.LbEndpoint{
		HostIdentifier:      &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: at}},
		LoadBalancingWeight: Uint(weight),
	}
}

// weightShift is by how many bits weights must shrink for their sum to fit.
func weightShift(groups []mesh.Group) int {
	sum := uint64(0)
	for _, g := range groups {
		for _, e := range g.Endpoints {
			sum += uint64(e.Weight) + 1 // none ends below 1
		}
	}
	shift := 0
	for sum>>shift > math.MaxUint32 {
		shift++
	}
	return shift
}
