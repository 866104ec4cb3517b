// Package boot generates Envoy's bootstrap: a typed value becomes a bootstrap message and then JSON.
//
// The bootstrap contains what cannot come from the control plane: the node, the admin interface, and the listeners and clusters between
// Envoy and the agent, through which the control plane is reached. Everything else comes by xDS.
//
// Invariants: equal values yield equal bytes. A real Envoy accepts every bootstrap (a test checks this).
//
// Goroutines: none. The package is pure: it reads no files and no environment.
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

// Names of the clusters of the bootstrap. Configuration from the control plane refers to some of them.
const (
	// DiscoveryCluster is the cluster of the control plane.
	DiscoveryCluster = "xds-grpc"
	// SecretsCluster is the cluster of the SDS server from which Envoy gets certificates and keys.
	SecretsCluster = "sds-grpc"
	// AgentCluster is the cluster of the agent's status server.
	AgentCluster = "agent"
	// MetricsCluster is the cluster of Envoy's own admin interface.
	MetricsCluster = "prometheus_stats"
)

// Stat prefixes of the listeners of the bootstrap. The connections that they count are not traffic of the workload.
const (
	HealthPrefix  = "agent_health"
	MetricsPrefix = "agent_metrics"
)

// Config holds the values that differ between bootstraps.
type Config struct {
	// Node identifies the proxy to the control plane.
	Node *corev3.Node
	// Relay is the path of the unix socket at which the agent passes xDS on to the control plane. SotW selects State-of-the-World xDS
	// instead of delta xDS.
	Relay string
	SotW  bool
	// AdminPort is the port of the admin interface, on loopback.
	AdminPort uint32
	// StatusPort is the port of the agent's status server; 0 if there is none.
	StatusPort uint32
	// HealthPort and MetricsPort are the ports of the listeners for readiness probes and for metrics scrapes; 0 for none.
	HealthPort, MetricsPort uint32
	// IPv6 reports that the workload has IPv6 addresses only.
	IPv6 bool
	// SecretsSocket is the path of the unix socket of the SDS server.
	SecretsSocket string
	// Runtime overrides the defaults of Envoy's runtime. An empty value removes a default.
	Runtime map[string]string
	// Stats selects and shapes Envoy's statistics.
	Stats Stats
	// OutlierLog is the file in which Envoy logs ejections of endpoints; empty for none.
	OutlierLog string
}

// JSON returns the bootstrap as JSON.
func (c Config) JSON() ([]byte, error) {
	b, err := (protojson.MarshalOptions{UseProtoNames: true}).Marshal(c.Message())
	if err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	// The protobuf encoder varies its white space deliberately, so it is normalised.
	var out bytes.Buffer
	if err := json.Indent(&out, b, "", "  "); err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	return append(out.Bytes(), '\n'), nil
}

// Message returns the bootstrap as a message.
func (c Config) Message() *bootstrapv3.Bootstrap {
	return &bootstrapv3.Bootstrap{
		Node:             c.Node,
		Admin:            &bootstrapv3.Admin{Address: envoy.Address(c.loopback(), c.AdminPort)},
		LayeredRuntime:   c.runtime(),
		DynamicResources: c.dynamic(),
		StaticResources:  &bootstrapv3.Bootstrap_StaticResources{Clusters: c.clusters(), Listeners: c.listeners()},
		ClusterManager:   c.clusterManager(),
		StatsConfig:      c.Stats.statsConfig(),
		// A workload calls few of the clusters of a mesh, so statistics are created at their first use.
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

// dynamic returns the configuration of the single ADS stream that delivers all resources.
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

// runtime returns Envoy's runtime: defaults that mesh configuration relies on, the user's overrides, and a layer for the admin
// interface.
func (c Config) runtime() *bootstrapv3.LayeredRuntime {
	values := map[string]string{
		// Regular expressions in routes may be large; Envoy's own limit is 100.
		"re2.max_program_size.error_level": "32768",
		// A path with a fragment is served without the fragment instead of being rejected.
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
		case "true", "false": // Envoy does not accept these as text
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

// connectionLimit sets the largest possible connection limit, so that a sidecar accepts all clients that its workload would.
func connectionLimit() *overloadv3.OverloadManager {
	return &overloadv3.OverloadManager{ResourceMonitors: []*overloadv3.ResourceMonitor{{
		Name: "envoy.resource_monitors.global_downstream_max_connections",
		ConfigType: &overloadv3.ResourceMonitor_TypedConfig{TypedConfig: envoy.Pack(&connectionsv3.DownstreamConnectionsConfig{
			MaxActiveDownstreamConnections: 1<<31 - 1,
		})},
	}}}
}

// Check returns an error if Envoy or the mesh would not accept the bootstrap.
func (c Config) Check() error {
	used := map[uint32]string{}
	for _, p := range []struct {
		port uint32
		what string
	}{
		{c.AdminPort, "Envoy's admin interface"}, {c.StatusPort, "the agent's status server"},
		{c.HealthPort, "the listener for probes"}, {c.MetricsPort, "the listener for scrapes"},
	} {
		switch {
		case p.port == 0:
		case used[p.port] != "":
			return fmt.Errorf("port %d is set for both %s and %s; set another port for one of them, or 0 to disable it", p.port, used[p.port], p.what)
		default:
			used[p.port] = p.what
		}
	}
	switch {
	case c.AdminPort == 0:
		return errors.New("Envoy's admin interface has no port, but the agent needs it to supervise Envoy")
	case c.HealthPort != 0 && c.StatusPort == 0:
		return fmt.Errorf("the listener for probes on port %d needs the agent's status server, which is disabled; enable both or disable both", c.HealthPort)
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
