package proxy

import (
	"net/netip"
	"testing"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/connection"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// TestClassHash: classes that differ in any facet have different hashes, also where one facet ends as the next begins.
func TestClassHash(t *testing.T) {
	seen := map[omap.Hash]Class{}
	for _, c := range []Class{
		{}, {Namespace: "a"}, {Sidecar: api.Key{Kind: "a"}}, {Sidecar: api.Key{Namespace: "a"}}, {Sidecar: api.Key{Name: "a"}},
		{Mode: None}, {ShortNames: true}, {HTTP10: true}, {Balance: Balance{Inbound: true}}, {Balance: Balance{Outbound: true}}, {Idle: 1}, {Idle: 256}, {OldStats: 38}, {Telemetry: api.Key{Name: "a"}}, {Telemetry: api.Key{Kind: "a"}}, {Extensions: intern.Of(api.Key{Name: "a"})}, {Gateway: true}, {Cluster: "a"}, {Network: "a"},
		{Families: mesh.OnlyIPv6}, {Families: mesh.BothFamilies}, {Own: intern.Of(netip.MustParseAddrPort("10.0.0.1:80"))},
		{Labels: labelSet("a", "")}, {Labels: labelSet("", "a")}, {Labels: labelSet("a", "", "", "")}, {Bind: "a"},
		{Rules: intern.Of("a")}, {Rules: intern.Of("a", "")}, {Policies: intern.Of(api.Key{Name: "a"})}, {Policies: intern.Of(api.Key{Kind: "a"})}, {Labels: labelSet("a", ""), Rules: intern.Of("a")},
		{Unprivileged: true}, {Ingress: true}, {OnDemand: true}, {OtherAuthority: true}, {NoCertificate: true}, {Networks: intern.Of("a")}, {Networks: intern.Of("a", "")}, {Rules: intern.Of("a"), Networks: intern.Of("a")},
		limited(connection.Settings{}), limited(connection.Of(&meshconfig.ProxyConfig_ConnectionSettings{Profile: meshconfig.ProxyConfig_ConnectionSettings_EDGE})), limited(connection.Settings{ListenerBuffer: connection.Limit[uint32]{Set: true, Value: 0}}), limited(connection.Settings{ClusterBuffer: connection.Limit[uint32]{Set: true, Value: 0}}),
		limited(connection.Settings{Streams: connection.Limit[uint32]{Set: true, Value: 1}}), limited(connection.Settings{StreamWindow: connection.Limit[uint32]{Set: true, Value: 1}}), limited(connection.Settings{ConnectionWindow: connection.Limit[uint32]{Set: true, Value: 1}}),
		limited(connection.Settings{Idle: connection.Limit[time.Duration]{Set: true, Value: 0}}), limited(connection.Settings{MaxAge: connection.Limit[time.Duration]{Set: true, Value: 0}}), limited(connection.Settings{Drain: connection.Limit[time.Duration]{Set: true, Value: 0}}),
		limited(connection.Settings{Request: connection.Limit[time.Duration]{Set: true, Value: 0}}), limited(connection.Settings{Headers: connection.Limit[time.Duration]{Set: true, Value: 0}}), limited(connection.Settings{StreamIdle: connection.Limit[time.Duration]{Set: true, Value: 0}}),
		limited(connection.Settings{MaxStream: connection.Limit[time.Duration]{Set: true, Value: 0}}), limited(connection.Settings{Underscores: 1}), limited(connection.Settings{Slashes: 1}),
		limited(connection.Settings{MergeSlashes: connection.Limit[bool]{Set: true, Value: false}}), limited(connection.Settings{MergeSlashes: connection.Limit[bool]{Set: true, Value: true}}),
		{Topology: Topology{Own: true}}, {Topology: Topology{ProxyProtocol: true}}, {Topology: Topology{TrustedProxies: 1}}, {Topology: Topology{ClientCert: "a"}}, {Selectors: intern.Of(GatewaySelector{})}, {Selectors: intern.Of(GatewaySelector{Namespace: "a"})}, {Selectors: intern.Of(GatewaySelector{Labels: labelSet("a", "")})}, {Targets: intern.Of(PortTarget{1, 2})}, {Targets: intern.Of(PortTarget{2, 1})}, {Datagrams: intern.Of(PortTarget{1, 2})},
		ports(InboundPort{}), ports(InboundPort{Number: 1}), ports(InboundPort{Port: 1}), ports(InboundPort{Bound: true}),
		ports(InboundPort{Protocol: 1}), ports(InboundPort{Host: "a"}), ports(InboundPort{Namespace: "a"}), ports(InboundPort{Name: "a"}),
		ports(InboundPort{Bind: "a"}), ports(InboundPort{To: "a"}), ports(InboundPort{Limited: api.Key{Name: "a"}}),
		ports(InboundPort{}, InboundPort{}),
		{Site: mesh.Site{Labels: labelSet("a", "")}}, {Site: mesh.Site{Locality: mesh.Locality{Region: "a"}}},
		{Site: mesh.Site{Locality: mesh.Locality{Zone: "a"}}}, {Site: mesh.Site{Locality: mesh.Locality{SubZone: "a"}}},
	} {
		if other, ok := seen[c.Hash()]; ok {
			t.Errorf("%+v and %+v have one hash", c, other)
		}
		seen[c.Hash()] = c
	}
}

// labelSet is a set of labels: names, each before its value.
func labelSet(list ...string) mesh.Labels {
	var set []mesh.Label
	for i := 0; i < len(list); i += 2 {
		set = append(set, mesh.Label{Name: list[i], Value: list[i+1]})
	}
	return intern.Of(set...)
}

func limited(c connection.Settings) Class { return Class{Connections: intern.Of(c)} }

func ports(list ...InboundPort) Class { return Class{Inbound: intern.Of(list...)} }
