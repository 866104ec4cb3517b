// Package boot is what Envoy starts with: a typed value that becomes a bootstrap message and then JSON.
//
// It holds what cannot come from the control plane: who the proxy is, how the control plane is reached, the admin
// interface, and the two listeners and few clusters between Envoy and its agent. Everything else is xDS.
//
// Invariants: the same value gives the same bytes; every bootstrap is one that a real Envoy accepts (tests ask it). The
// package is pure: no goroutines, files or environment. It must not import settings, processes or servers.
package boot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	overloadv3 "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	internalv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/bootstrap/internal_listener/v3"
	connectionsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// Names of the clusters that are not the control plane's to give. Configuration from there refers to some of them.
const (
	// DiscoveryCluster is the control plane.
	DiscoveryCluster = "xds-grpc"
	// SecretsCluster is where Envoy gets certificates and keys.
	SecretsCluster = "sds-grpc"
	// AgentCluster is the agent's status server.
	AgentCluster = "agent"
	// MetricsCluster is Envoy's own admin interface.
	MetricsCluster = "prometheus_stats"
)

// Stat prefixes of the listeners that are not the control plane's to give: what they count is no traffic.
const (
	HealthPrefix  = "agent_health"
	MetricsPrefix = "agent_metrics"
)

// Config says what is particular about one bootstrap.
type Config struct {
	// Node is who the proxy is.
	Node *corev3.Node
	// Discovery is the control plane's address, SotW that it speaks State-of-the-World instead of delta.
	Discovery Address
	SotW      bool
	// AdminPort is that of the admin interface, on loopback.
	AdminPort uint32
	// StatusPort is that of the agent's status server, 0 if there is none.
	StatusPort uint32
	// HealthPort and MetricsPort are those of the listeners for probes and for scrapes; 0 for none.
	HealthPort, MetricsPort uint32
	// IPv6 says that the workload has IPv6 only.
	IPv6 bool
	// SecretsSocket is where certificates and keys are served.
	SecretsSocket string
	// Runtime is laid over the defaults of Envoy's runtime; an empty value removes a default.
	Runtime map[string]string
	// OutlierLog is a file for ejections of endpoints, empty for none.
	OutlierLog string
}

// Address is where something listens.
type Address struct {
	Host string // a name or an IP address
	Port uint32
}

// JSON is the bootstrap as Envoy reads it.
func (c Config) JSON() ([]byte, error) {
	b, err := (protojson.MarshalOptions{UseProtoNames: true}).Marshal(c.Message())
	if err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	// The encoder varies its white space on purpose.
	var out bytes.Buffer
	if err := json.Indent(&out, b, "", "  "); err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	return append(out.Bytes(), '\n'), nil
}

// Message is the bootstrap.
func (c Config) Message() *bootstrapv3.Bootstrap {
	return &bootstrapv3.Bootstrap{
		Node:             c.Node,
		Admin:            &bootstrapv3.Admin{Address: envoy.Address(c.loopback(), c.AdminPort)},
		LayeredRuntime:   c.runtime(),
		DynamicResources: c.dynamic(),
		StaticResources:  &bootstrapv3.Bootstrap_StaticResources{Clusters: c.clusters(), Listeners: c.listeners()},
		ClusterManager:   c.clusterManager(),
		StatsConfig:      statsConfig(),
		// Most clusters of a mesh are never called by a given workload: their statistics are made at first use.
		DeferredStatOptions: &bootstrapv3.Bootstrap_DeferredStatOptions{EnableDeferredCreationStats: true},
		OverloadManager:     connectionLimit(),
		BootstrapExtensions: []*corev3.TypedExtensionConfig{{
			Name:        "envoy.bootstrap.internal_listener",
			TypedConfig: envoy.Pack(&internalv3.InternalListener{BufferSizeKb: wrapperspb.UInt32(64)}),
		}},
	}
}

func (c Config) loopback() string {
	if c.IPv6 {
		return "::1"
	}
	return "127.0.0.1"
}

func (c Config) wildcard() string {
	if c.IPv6 {
		return "::"
	}
	return "0.0.0.0"
}

// dynamic says that everything comes on one stream.
func (c Config) dynamic() *bootstrapv3.Bootstrap_DynamicResources {
	kind := corev3.ApiConfigSource_DELTA_GRPC
	if c.SotW {
		kind = corev3.ApiConfigSource_GRPC
	}
	return &bootstrapv3.Bootstrap_DynamicResources{
		LdsConfig: envoy.ADS(),
		CdsConfig: envoy.ADS(),
		AdsConfig: &corev3.ApiConfigSource{
			ApiType: kind, TransportApiVersion: corev3.ApiVersion_V3, SetNodeOnFirstMessageOnly: true,
			GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{
				ClusterName: DiscoveryCluster,
				RetryPolicy: &corev3.RetryPolicy{RetryBackOff: &corev3.BackoffStrategy{
					BaseInterval: envoy.Duration(reconnectFirst), MaxInterval: envoy.Duration(reconnectLongest),
				}},
			}}}},
		},
	}
}

func (c Config) clusterManager() *bootstrapv3.ClusterManager {
	if c.OutlierLog == "" {
		return nil
	}
	return &bootstrapv3.ClusterManager{OutlierDetection: &bootstrapv3.ClusterManager_OutlierDetection{EventLogPath: c.OutlierLog}}
}

// runtime has the defaults that mesh configuration is written for, what the user wants besides, and a layer for the
// admin interface.
func (c Config) runtime() *bootstrapv3.LayeredRuntime {
	values := map[string]string{
		// Regular expressions of routes may be as large as people write them; Envoy's own limit is 100.
		"re2.max_program_size.error_level": "32768",
		// A path with a fragment is served without it instead of refused.
		"envoy.reloadable_features.http_reject_path_with_fragment": "false",
	}
	for name, v := range c.Runtime {
		if values[name] = v; v == "" {
			delete(values, name)
		}
	}
	fields := make(map[string]*structpb.Value, len(values))
	for name, v := range values {
		switch v {
		case "true", "false": // Envoy does not take flags as text
			fields[name] = structpb.NewBoolValue(v == "true")
		default:
			fields[name] = structpb.NewStringValue(v)
		}
	}
	return &bootstrapv3.LayeredRuntime{Layers: []*bootstrapv3.RuntimeLayer{
		{Name: "static", LayerSpecifier: &bootstrapv3.RuntimeLayer_StaticLayer{StaticLayer: &structpb.Struct{Fields: fields}}},
		{Name: "admin", LayerSpecifier: &bootstrapv3.RuntimeLayer_AdminLayer_{AdminLayer: &bootstrapv3.RuntimeLayer_AdminLayer{}}},
	}}
}

// connectionLimit says that there is none: a sidecar refuses nobody that its workload would take.
func connectionLimit() *overloadv3.OverloadManager {
	return &overloadv3.OverloadManager{ResourceMonitors: []*overloadv3.ResourceMonitor{{
		Name: "envoy.resource_monitors.global_downstream_max_connections",
		ConfigType: &overloadv3.ResourceMonitor_TypedConfig{TypedConfig: envoy.Pack(&connectionsv3.DownstreamConnectionsConfig{
			MaxActiveDownstreamConnections: 1<<31 - 1,
		})},
	}}}
}

// Check says what about a bootstrap Envoy or the mesh would not take, nil if nothing.
func (c Config) Check() error {
	taken := map[uint32]string{}
	for _, p := range []struct {
		port uint32
		what string
	}{
		{c.AdminPort, "Envoy's admin interface"}, {c.StatusPort, "the agent's status server"},
		{c.HealthPort, "the listener for probes"}, {c.MetricsPort, "the listener for scrapes"},
	} {
		switch {
		case p.port == 0:
		case taken[p.port] != "":
			return fmt.Errorf("port %d is meant for both %s and %s: give one of them another, or 0 for none", p.port, taken[p.port], p.what)
		default:
			taken[p.port] = p.what
		}
	}
	switch {
	case c.AdminPort == 0:
		return errors.New("Envoy's admin interface has no port: the agent cannot look after an Envoy it cannot ask")
	case c.HealthPort != 0 && c.StatusPort == 0:
		return fmt.Errorf("the listener for probes on port %d would ask the agent's status server, which is off: switch both on or both off", c.HealthPort)
	}
	return nil
}

func (c Config) clusters() []*clusterv3.Cluster {
	list := []*clusterv3.Cluster{c.discovery(), secrets(c.SecretsSocket), local(MetricsCluster, c.loopback(), c.AdminPort)}
	if c.StatusPort != 0 {
		list = append(list, local(AgentCluster, c.loopback(), c.StatusPort))
	}
	slices.SortFunc(list, func(a, b *clusterv3.Cluster) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (c Config) listeners() []*listenerv3.Listener {
	var list []*listenerv3.Listener
	if c.MetricsPort != 0 {
		list = append(list, c.listener(MetricsPrefix, c.MetricsPort, "/stats/prometheus", MetricsCluster))
	}
	if c.HealthPort != 0 {
		list = append(list, c.listener(HealthPrefix, c.HealthPort, "/healthz/ready", AgentCluster))
	}
	return list
}
