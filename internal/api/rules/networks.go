package rules

import (
	"maps"
	"slices"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api/document"
)

// Networks judges the mesh networks.
func Networks(n *meshconfig.MeshNetworks) []document.Finding {
	var c checker
	at := (*document.Path)(nil).Field("networks")
	for _, name := range slices.Sorted(maps.Keys(n.Networks)) {
		c.network(at.Key(name), n.Networks[name])
	}
	return c.Findings()
}

func (c *checker) network(at *document.Path, n *meshconfig.Network) {
	if n == nil {
		c.warn(at, "the network is empty")
		return
	}
	for i, e := range n.Endpoints {
		at := at.Field("endpoints").At(i)
		switch is := e.GetNe().(type) {
		case *meshconfig.Network_NetworkEndpoints_FromCidr:
			c.rule(at.Field("fromCidr"), checkSubnet(is.FromCidr))
		case *meshconfig.Network_NetworkEndpoints_FromRegistry:
			if is.FromRegistry == "" {
				c.fail(at.Field("fromRegistry"), "name the registry, which is the name of its cluster")
			}
		default:
			c.fail(at, "say which endpoints: fromCidr or fromRegistry")
		}
	}
	for i, g := range n.Gateways {
		at := at.Field("gateways").At(i)
		switch is := g.GetGw().(type) {
		case *meshconfig.Network_IstioNetworkGateway_RegistryServiceName:
			c.rule(at.Field("registryServiceName"), checkFQDN(is.RegistryServiceName))
		case *meshconfig.Network_IstioNetworkGateway_Address:
			if !isIP(is.Address) {
				c.rule(at.Field("address"), checkFQDN(is.Address))
			}
		default:
			c.fail(at, "say where the gateway is: address or registryServiceName")
		}
		c.port(at.Field("port"), g.GetPort())
	}
}
