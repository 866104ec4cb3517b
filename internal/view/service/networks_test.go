package service_test

import (
	"fmt"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/meshtest"
)

// TestGatewaysByNode: a Service of type NodePort with a selector of nodes leads into a network at the external addresses of these nodes, in its
// own cluster, and at the ports that nodes have for its ports.
func TestGatewaysByNode(t *testing.T) {
	node := func(pool string, addresses ...string) *kube.Node {
		return &kube.Node{Addresses: intern.Of(addresses...), Labels: mesh.LabelsOf(map[string]string{"pool": pool, "x": "y"})}
	}
	key := func(cluster, name string) api.Key { return api.Key{Kind: kube.KindNode, Name: name, Cluster: cluster} }
	entrance := kube.Entrance{
		Network: "north", ByNode: true, NodeLabels: mesh.LabelsOf(map[string]string{"pool": "edge"}),
		NodePorts: intern.Of(kube.NodePort{Port: 15443, Node: 31443}, kube.NodePort{Port: 16443, Node: 31444}), Addresses: intern.Of("192.0.2.99"),
	}
	gateway := in("west", kube.KindService, "gateway")
	w := meshtest.New(t)
	got := func() string {
		return fmt.Sprint(w.Queries.Services.Gateways(w.Graph.Naive(), "north", "west"))
	}
	for _, step := range []struct {
		name   string
		values values
		want   string
	}{
		{"nodes of the selector", values{
			gateway:           &kube.Service{Entrance: entrance},
			key("west", "n1"): node("edge", "192.0.2.1", "192.0.2.2"), key("west", "n2"): node("inner", "192.0.2.3"),
			key("west", "n3"): node("edge"), key("east", "n4"): node("edge", "192.0.2.4"),
		}, "[{west 192.0.2.1 31443}]"},
		{"a node gets the label", values{key("west", "n2"): node("edge", "192.0.2.3")}, "[{west 192.0.2.1 31443} {west 192.0.2.3 31443}]"},
		{"a node goes", values{key("west", "n1"): nil}, "[{west 192.0.2.3 31443}]"},
		{"another port", values{gateway: &kube.Service{Entrance: kube.Entrance{
			Network: "north", Port: 16443, ByNode: true, NodeLabels: entrance.NodeLabels, NodePorts: entrance.NodePorts,
		}}}, "[{west 192.0.2.3 31444}]"},
		{"a port without one of nodes", values{gateway: &kube.Service{Entrance: kube.Entrance{Network: "north", ByNode: true}}}, "[{west 192.0.2.3 15443}]"},
		{"the Service goes", values{gateway: nil}, "[]"},
	} {
		w.Observe(step.values)
		if got := got(); got != step.want {
			t.Errorf("%s: got %s, want %s", step.name, got, step.want)
		}
	}
}

// TestGatewaysByVersion: where a network has gateways of both versions of IP, a client uses the ones of its versions: all if it has
// addresses of both.
func TestGatewaysByVersion(t *testing.T) {
	const both = "networks: {north: {gateways: [{address: 192.0.2.1, port: 1}, {address: '2001:db8::1', port: 1}]}}\n"
	w := meshtest.New(t)
	for _, c := range []struct{ networks, ipv4, ipv6, all string }{
		{both, "[{ 192.0.2.1 1}]", "[{ 2001:db8::1 1}]", "[{ 192.0.2.1 1} { 2001:db8::1 1}]"},
		{"networks: {north: {gateways: [{address: 192.0.2.1, port: 1}]}}\n", "[{ 192.0.2.1 1}]", "[{ 192.0.2.1 1}]", "[{ 192.0.2.1 1}]"},
		{"networks: {north: {gateways: [{address: '2001:db8::1', port: 1}]}}\n", "[{ 2001:db8::1 1}]", "[{ 2001:db8::1 1}]", "[{ 2001:db8::1 1}]"},
		{"networks: {north: {gateways: [{address: gw.example.com, port: 1}]}}\n", "[]", "[]", "[]"},
	} {
		w.ConfigureNetworks(c.networks)
		r, s := w.Graph.Naive(), w.Queries.Services
		of := func(f mesh.Families) string { return fmt.Sprint(s.GatewaysFor(r, "north", "", f)) }
		ipv4, ipv6 := of(mesh.OnlyIPv4), of(mesh.OnlyIPv6)
		for _, f := range []mesh.Families{mesh.BothFamilies, mesh.DualStack} {
			if got := of(f); got != c.all {
				t.Errorf("%s: with both versions %s, want %s", c.networks, got, c.all)
			}
		}
		if ipv4 != c.ipv4 || ipv6 != c.ipv6 || s.MixedGateways(r) != (c.networks == both) || !s.HasGateways(r, "north") {
			t.Errorf("%s: %s, %s; want %s, %s", c.networks, ipv4, ipv6, c.ipv4, c.ipv6)
		}
	}
}

// TestGatewaysByRegistry: a Service that the mesh networks name leads into a network from the clusters of this network. Other clusters may
// have a Service with the same host.
func TestGatewaysByRegistry(t *testing.T) {
	const gateway = "gateways: [{registryServiceName: gw.shop.svc.cluster.local, port: 15443}]"
	at := func(address string) *kube.Service {
		return &kube.Service{Entrance: kube.Entrance{Addresses: intern.Of(address)}}
	}
	w := meshtest.New(t)
	w.Observe(values{in("west", kube.KindService, "gw"): at("192.0.2.1"), in("east", kube.KindService, "gw"): at("192.0.2.2")})
	for _, c := range []struct{ networks, want string }{
		{"networks: {north: {endpoints: [{fromRegistry: west}], " + gateway + "}, south: {endpoints: [{fromRegistry: east}]}}\n", "[{west 192.0.2.1 15443}]"},
		{"networks: {north: {endpoints: [{fromRegistry: east}], " + gateway + "}, south: {endpoints: [{fromRegistry: west}]}}\n", "[{east 192.0.2.2 15443}]"},
		{"networks: {north: {" + gateway + "}, south: {endpoints: [{fromRegistry: east}, {fromRegistry: west}]}}\n", "[]"},
		{"networks: {north: {endpoints: [{fromCidr: 10.0.0.0/8}], " + gateway + "}}\n", "[{east 192.0.2.2 15443} {west 192.0.2.1 15443}]"},
	} {
		w.ConfigureNetworks(c.networks)
		if got := fmt.Sprint(w.Queries.Services.Gateways(w.Graph.Naive(), "north", "")); got != c.want {
			t.Errorf("%s: got %s, want %s", c.networks, got, c.want)
		}
	}
}
