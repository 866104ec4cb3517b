package state

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// Networks are the mesh networks. Which endpoints are in a network and which gateways lead into it are separate rows, because an edit
// of a gateway does not concern queries for the network of an endpoint.
type Networks struct {
	// Spec are the mesh networks as they are configured, for debug pages. No query reads it.
	Spec store.Table[struct{}, *meshconfig.MeshNetworks]
	// Members map endpoints without a network label to their network.
	Members store.Table[struct{}, *NetworkMembers]
	// Gateways are the gateways that the mesh networks name, by network, and Named lists, under the empty key, the networks with such
	// gateways. Labelled lists, under the empty key, the Services that lead into some network, as their label says.
	Gateways store.Table[string, []NetworkGateway]
	Named    store.Index[struct{}, omap.Name]
	Labelled store.Index[struct{}, api.Key]
	// Resolved are the host names of gateways that were looked up in the DNS. A name without a row is not looked up yet.
	Resolved store.Table[string, Resolution]
	// LabelledFor lists the Services that lead into a network, as their label says. At lists, by host, Services with addresses that other
	// networks reach.
	LabelledFor store.Index[string, api.Key]
	At          store.Index[string, api.Key]
	// Entrances are the Services of LabelledFor and At.
	Entrances store.Table[api.Key, kube.Entrance]
	// Nodes are the nodes that others reach from outside, and NodesIn lists them by cluster.
	Nodes   store.Table[api.Key, NodeEntrance]
	NodesIn store.Index[string, api.Key]
}

// NodeEntrance is a node that others reach from outside its network, at its first external address.
type NodeEntrance struct {
	Address string
	Labels  mesh.Labels
}

// NetworkGateway is a gateway that the mesh networks name: either Address, or the Service with the host Service.
type NetworkGateway struct {
	Address, Service string
	Port             uint32
}

// NetworkMembers maps endpoints to networks.
type NetworkMembers struct {
	clusters map[string]string // networks by cluster
	blocks   []networkBlock    // the narrowest block first
}

type networkBlock struct {
	block   netip.Prefix
	network string
}

func (m *NetworkMembers) equal(o *NetworkMembers) bool {
	return m == o || maps.Equal(m.clusters, o.clusters) && slices.Equal(m.blocks, o.blocks)
}

// Of returns the network of an endpoint in a cluster; empty if the mesh networks contain neither. The cluster counts before the address.
func (m *NetworkMembers) Of(cluster, address string) string {
	if network := m.clusters[cluster]; network != "" && cluster != "" {
		return network
	}
	if len(m.blocks) == 0 {
		return ""
	}
	a, err := netip.ParseAddr(address)
	if err != nil {
		return ""
	}
	for _, b := range m.blocks {
		if b.block.Contains(a.Unmap()) {
			return b.network
		}
	}
	return ""
}

func (t *Tables) defineNetworks(db *store.DB) {
	n := &t.Networks
	n.Spec = store.NewTable[struct{}, *meshconfig.MeshNetworks](db, "meshNetworks", func(a, b *meshconfig.MeshNetworks) bool { return proto.Equal(a, b) })
	n.Members = store.NewTable[struct{}, *NetworkMembers](db, "networkMembers", (*NetworkMembers).equal)
	n.Gateways = store.NewTable[string, []NetworkGateway](db, "networkGateways", slices.Equal[[]NetworkGateway])
	n.Named = store.NewIndex(n.Gateways, "namedNetworks", func(network string, _ []NetworkGateway, add func(struct{}, omap.Name)) {
		add(struct{}{}, omap.Name(network))
	})
	n.Resolved = store.NewTable[string, Resolution](db, "resolvedGateways", same[Resolution])
	n.Entrances = store.NewTable[api.Key, kube.Entrance](db, "entrances", same[kube.Entrance])
	n.LabelledFor = store.NewIndex(n.Entrances, "entrancesFor", func(k api.Key, e kube.Entrance, add func(string, api.Key)) {
		if e.Network != "" {
			add(e.Network, k)
		}
	})
	n.Labelled = store.NewIndex(n.Entrances, "labelledEntrances", func(k api.Key, e kube.Entrance, add func(struct{}, api.Key)) {
		if e.Network != "" {
			add(struct{}{}, k)
		}
	})
	n.At = store.NewIndex(n.Entrances, "entrancesAt", func(k api.Key, _ kube.Entrance, add func(string, api.Key)) {
		add(t.ServiceHost(k), k)
	})
	n.Nodes = store.NewTable[api.Key, NodeEntrance](db, "nodeEntrances", same[NodeEntrance])
	n.NodesIn = store.NewIndex(n.Nodes, "nodeEntrancesIn", func(k api.Key, _ NodeEntrance, add func(string, api.Key)) { add(k.Cluster, k) })
}

// writeNetworks replaces the mesh networks.
func (t *Tables) writeNetworks(tx *store.Txn, spec *meshconfig.MeshNetworks) {
	t.Networks.Spec.Set(tx, struct{}{}, spec)
	members := &NetworkMembers{clusters: map[string]string{}}
	for _, name := range slices.Sorted(maps.Keys(spec.GetNetworks())) {
		for _, e := range spec.Networks[name].GetEndpoints() {
			members.add(name, e)
		}
		var list []NetworkGateway
		for _, g := range spec.Networks[name].GetGateways() {
			service := strings.ToLower(strings.TrimSuffix(g.GetRegistryServiceName(), "."))
			list = append(list, NetworkGateway{Address: g.GetAddress(), Service: service, Port: g.GetPort()})
		}
		if len(list) > 0 {
			t.Networks.Gateways.Set(tx, name, list)
		} else {
			t.Networks.Gateways.Delete(tx, name)
		}
	}
	var gone []string
	for name := range t.Networks.Gateways.All() {
		if _, ok := spec.GetNetworks()[name]; !ok {
			gone = append(gone, name)
		}
	}
	for _, name := range gone {
		t.Networks.Gateways.Delete(tx, name)
	}
	slices.SortStableFunc(members.blocks, func(a, b networkBlock) int {
		return cmp.Or(b.block.Bits()-a.block.Bits(), a.block.Addr().Compare(b.block.Addr()))
	})
	t.Networks.Members.Set(tx, struct{}{}, members)
}

// add adds endpoints to a network. Endpoints that an earlier network, in the order of names, has already stay there.
func (m *NetworkMembers) add(network string, e *meshconfig.Network_NetworkEndpoints) {
	if cluster := e.GetFromRegistry(); cluster != "" && m.clusters[cluster] == "" {
		m.clusters[cluster] = network
	}
	if block, err := netip.ParsePrefix(e.GetFromCidr()); err == nil {
		m.blocks = append(m.blocks, networkBlock{block.Masked(), network})
	}
}

// NetworkOf returns the network of a workload in a cluster, from its label, or else the label of the control plane's namespace
// there, or else the mesh networks; empty if none of them names one.
func (t *Tables) NetworkOf(r store.Reader, labels mesh.Labels, cluster, address string) string {
	if network, _ := mesh.LabelValue(labels, mesh.NetworkLabel); network != "" {
		return network
	}
	if cluster != "" {
		system := namespaceKey(cluster, cmp.Or(t.options.ControlNamespace, t.RootNamespace(r)))
		if n, ok := t.Kube.Namespaces.Get(r, system); ok && n.Network != "" {
			return n.Network
		}
	}
	if m, ok := t.Networks.Members.Get(r, struct{}{}); ok {
		return m.Of(cluster, address)
	}
	return ""
}

// writeEntrance writes whether a Service may lead into a network.
func (t *Tables) writeEntrance(tx *store.Txn, k api.Key, s *kube.Service) {
	write(tx, t.Networks.Entrances, k, s.Entrance, s.Entrance != kube.Entrance{})
}

// writeNodeEntrance writes whether others reach a node from outside its network.
func (t *Tables) writeNodeEntrance(tx *store.Txn, k api.Key, n *kube.Node) {
	var e NodeEntrance
	for address := range n.Addresses.All() {
		e = NodeEntrance{address, n.Labels}
		break
	}
	write(tx, t.Networks.Nodes, k, e, e.Address != "")
}
