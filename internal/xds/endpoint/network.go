package endpoint

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/xds/layer"
)

// maxScale bounds by how much weights are multiplied, so that they remain far from the greatest number.
const maxScale = 5040

// farEndpoints are endpoints on other networks, with the gateways through which they are reached.
type farEndpoints map[*mesh.Endpoint]farEndpoint

type farEndpoint struct {
	network  string
	gateways []service.Gateway
}

// dependsOnClient reports whether the endpoints of a host may depend on a client. A network matters to hosts with an endpoint there, a
// choice of networks to hosts with an endpoint in another one, and the version of IP to hosts with an endpoint behind gateways of both, and in a
// dual-stack mesh to hosts with an endpoint that has an address of another version.
func (q *Queries) dependsOnClient(r *query.Reader, at layer.HostForClient) bool {
	if at.Client != (traffic.Client{Network: at.Network, Networks: at.Networks, Versions: at.Versions}) {
		return true
	}
	s, ok := q.services.Service.Get(r, at.HostView)
	if !ok || at.Versions.One() && s.ResolvesNames() {
		return ok
	}
	byVersion := at.Versions != traffic.UsualVersions && q.services.MixedGateways(r)
	one := at.Versions.One() && q.tables.DualStack()
	networkOf := q.services.Networks(r)
	for _, p := range s.Ports {
		for _, e := range q.services.Endpoints(r, s, p.Number) {
			if one && (e.Second != "" || !at.Versions.Families(true).Has(e.Address)) {
				return true
			}
			if there := networkOf(e.Endpoint); there != "" && (byVersion || there == at.Network || !wanted(at.Client, there)) {
				return true
			}
		}
	}
	return false
}

// wanted reports whether a client wants endpoints of a network.
func wanted(c traffic.Client, network string) bool {
	return c.Networks.Empty() || c.Networks.Has(network)
}

// reachable removes the endpoints that the client does not want and those to which Envoy cannot connect, and returns which of the others it reaches through gateways: endpoints on
// another network than the client's, if gateways lead there. Gateways forward the mesh's TLS only, and an endpoint behind them that takes
// no requests must not draw any. In a dual-stack mesh, a client of one version of IP gets the addresses of this version only. It changes the list.
func (q *Queries) reachable(r *query.Reader, s *service.Service, list []mesh.PortEndpoint, c traffic.Client) ([]mesh.PortEndpoint, farEndpoints) {
	var far farEndpoints
	networkOf, families := q.services.Networks(r), c.Versions.Families(q.tables.DualStack())
	list = slices.DeleteFunc(list, func(e mesh.PortEndpoint) bool {
		there := networkOf(e.Endpoint)
		if there != "" && !wanted(c, there) {
			return true
		}
		if there == "" || there == c.Network {
			return !e.Dialable()
		}
		gateways := q.services.GatewaysFor(r, there, e.Cluster, families)
		if len(gateways) == 0 {
			return !e.Dialable() || q.services.HasGateways(r, there)
		}
		if !e.TakesMeshTLS() || s.External || e.Health != mesh.Healthy {
			return true
		}
		if far == nil {
			far = farEndpoints{}
		}
		far[e.Endpoint] = farEndpoint{there, gateways}
		return false
	})
	if q.tables.DualStack() && c.Versions.One() {
		list = ofVersion(list, far, families)
	}
	return list, far
}

// ofVersion leaves each endpoint its address of the only version of IP that a client has, and removes endpoints without one. Endpoints behind gateways stay
// as they are. It changes the list.
func ofVersion(list []mesh.PortEndpoint, far farEndpoints, f mesh.Families) []mesh.PortEndpoint {
	out := list[:0]
	for _, e := range list {
		own := *e.Endpoint
		own.Second = ""
		_, isUnix := e.UnixPath()
		switch {
		case far.has(e), isUnix, e.Second == "" && f.Has(e.Address):
		case f.Has(e.Address):
			e.Endpoint = &own
		case f.Has(e.Second):
			own.Address = e.Second
			e.Endpoint = &own
		default:
			continue
		}
		out = append(out, e)
	}
	return out
}

// meshTLS reports whether clients may use the mesh's TLS under the settings.
func meshTLS(s traffic.Settings) bool {
	return s.TLS == nil || s.TLS.Mode == networking.ClientTLSSettings_ISTIO_MUTUAL
}

func (far farEndpoints) has(e mesh.PortEndpoint) bool {
	_, ok := far[e.Endpoint]
	return ok
}

// throughGateways replaces endpoints on other networks by the gateways that lead to them. The gateways to an endpoint share its weight,
// and an address has the weights of all endpoints of one locality behind it. Weights are multiplied by a number that each number of
// gateways divides, so that shares are whole.
func (far farEndpoints) throughGateways(list []mesh.PortEndpoint) []mesh.PortEndpoint {
	if len(far) == 0 {
		return list
	}
	scale := far.scale(list)
	type shared struct {
		at      mesh.Place
		gateway service.Gateway
		source  string
	}
	shares := map[shared]*mesh.Endpoint{}
	out := make([]mesh.PortEndpoint, 0, len(list))
	for _, e := range list {
		weight := max(e.Weight, 1) * scale
		there, isFar := far[e.Endpoint]
		if !isFar {
			if scale > 1 {
				scaled := *e.Endpoint
				scaled.Weight = weight
				e.Endpoint = &scaled
			}
			out = append(out, e)
			continue
		}
		for _, g := range there.gateways {
			k := shared{mesh.Place{Locality: e.Locality, Network: there.network, Cluster: g.Cluster}, g, e.Source}
			share := shares[k]
			if share == nil {
				share = &mesh.Endpoint{Address: g.Address, MeshTLS: true, Place: k.at}
				shares[k] = share
				out = append(out, mesh.PortEndpoint{Endpoint: share, Port: g.Port, Source: e.Source})
			}
			share.Weight += max(weight/uint32(len(there.gateways)), 1)
		}
	}
	return out
}

// scale is the least number that the numbers of gateways to the endpoints divide, and maxScale at most.
func (far farEndpoints) scale(list []mesh.PortEndpoint) uint32 {
	scale := uint32(1)
	for _, e := range list {
		if n := uint32(len(far[e.Endpoint].gateways)); n > 0 {
			scale = scale / divisor(scale, n) * n
		}
		if scale > maxScale {
			return maxScale
		}
	}
	return scale
}

// divisor is the greatest number that divides both.
func divisor(a, b uint32) uint32 {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}
