package rules

import (
	"fmt"
	"maps"
	"slices"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api/document"
)

// Networks checks the mesh networks.
func Networks(n *meshconfig.MeshNetworks) []document.Finding {
	var c checker
	at := (*document.Path)(nil).Field("networks")
	for _, name := range slices.Sorted(maps.Keys(n.Networks)) {
		if name == "" || checkLabelValue(name) != "" {
			c.warn(at.Key(name), "nothing can be in a network of this name: it is not a value of the label topology.istio.io/network; write at most %d letters, digits and inner \"-\", \"_\", \".\"", maxLabel)
		}
		c.network(at.Key(name), n.Networks[name])
	}
	return c.Findings()
}

// checkRegistry checks the name of a registry, which is the name of its cluster. Clusters may have an underscore in their name.
func checkRegistry(name string) string {
	if isQualified(name) {
		return ""
	}
	return fmt.Sprintf("%s is not the name of a registry, which is that of its cluster: at most %d letters, digits and inner \"-\", \"_\", \".\"", document.Quote(name), maxLabel)
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
			c.rule(at.Field("fromRegistry"), checkRegistry(is.FromRegistry))
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
				c.warn(at.Field("address"), "is a name, and names of gateways are not resolved yet, so nobody is sent through this one; write its IP address")
			}
		default:
			c.fail(at, "say where the gateway is: address or registryServiceName")
		}
		c.port(at.Field("port"), g.GetPort())
	}
}
