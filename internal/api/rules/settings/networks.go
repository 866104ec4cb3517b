package settings

import (
	"maps"
	"slices"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
)

// Networks checks the mesh networks.
func Networks(n *meshconfig.MeshNetworks) []document.Finding {
	c := newChecker("")
	at := (*document.Path)(nil).Field("networks")
	for _, name := range slices.Sorted(maps.Keys(n.Networks)) {
		if name == "" || syntax.LabelValue(name) != "" {
			c.Warn(at.Key(name), "nothing can be in a network of this name: it is not a value of the label topology.istio.io/network; write at most %d letters, digits and inner \"-\", \"_\", \".\"", syntax.MaxLabel)
		}
		c.network(at.Key(name), n.Networks[name])
	}
	return c.Report.Findings()
}

func (c *checker) network(at *document.Path, n *meshconfig.Network) {
	if n == nil {
		c.Warn(at, "the network is empty")
		return
	}
	for i, e := range n.Endpoints {
		at := at.Field("endpoints").At(i)
		switch is := e.GetNe().(type) {
		case *meshconfig.Network_NetworkEndpoints_FromCidr:
			c.Rule(at.Field("fromCidr"), syntax.Subnet(is.FromCidr))
		case *meshconfig.Network_NetworkEndpoints_FromRegistry:
			c.Rule(at.Field("fromRegistry"), syntax.Name(is.FromRegistry))
		default:
			c.Fail(at, "say which endpoints: fromCidr or fromRegistry")
		}
	}
	for i, g := range n.Gateways {
		at := at.Field("gateways").At(i)
		switch is := g.GetGw().(type) {
		case *meshconfig.Network_IstioNetworkGateway_RegistryServiceName:
			c.Rule(at.Field("registryServiceName"), syntax.FQDN(is.RegistryServiceName))
		case *meshconfig.Network_IstioNetworkGateway_Address:
			if !syntax.IsIP(is.Address) {
				c.Rule(at.Field("address"), syntax.FQDN(is.Address))
			}
		default:
			c.Fail(at, "say where the gateway is: address or registryServiceName")
		}
		c.Port(at.Field("port"), g.GetPort())
	}
}
