// Package boot generates Envoy's bootstrap: a typed value becomes a bootstrap message and then JSON.
//
// The bootstrap contains the parts that cannot come from the control plane: the node, the admin interface, and the listeners and clusters between
// Envoy and the agent, through which the control plane is reached. Everything else comes by xDS. A template of the user may replace it, and
// gRPC libraries that are their own data plane get a bootstrap as well.
//
// Invariants: equal values yield equal bytes. A real Envoy accepts every bootstrap (a test checks this).
//
// Goroutines: none. The package is pure: it reads no files and no environment.
package boot

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	internalv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/bootstrap/internal_listener/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// Names of the clusters of the bootstrap. Configuration from the control plane refers to some of them.
const (
	// discoveryCluster is the cluster of the control plane.
	discoveryCluster = "xds-grpc"
	// secretsCluster is the cluster of the SDS server from which Envoy gets certificates and keys.
	secretsCluster = "sds-grpc"
	// agentCluster is the cluster of the agent's status server.
	agentCluster = "agent"
	// metricsCluster is the cluster of Envoy's own admin interface.
	metricsCluster = "prometheus_stats"
)

// Stat prefixes of the listeners of the bootstrap. The connections that they count are not traffic of the workload.
const (
	HealthPrefix  = "agent_health"
	MetricsPrefix = "agent_metrics"

	secureMetricsPrefix = MetricsPrefix + "_secure"
	mergedMetricsPrefix = MetricsPrefix + "_merged_secure"
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
	// SecureMetricsPort and SecureMergedMetricsPort are the ports of the listeners that serve the metrics of Envoy, and those merged by the
	// agent, to clients with a certificate of the mesh; 0 for none.
	SecureMetricsPort, SecureMergedMetricsPort uint32
	// HealthProxyProtocol makes the listener for readiness probes accept PROXY protocol, which load balancers may send.
	HealthProxyProtocol bool
	// LocalMetrics makes the listener for scrapes in plain text listen on loopback only.
	LocalMetrics bool
	// CompressMetrics compresses scrapes for clients that accept it.
	CompressMetrics bool
	// IPv6 reports that the workload has IPv6 addresses only, and DualStack that it has addresses of both versions.
	IPv6, DualStack bool
	// SecretsSocket is the path of the unix socket of the SDS server.
	SecretsSocket string
	// Runtime overrides the defaults of Envoy's runtime. An empty value removes a default.
	Runtime map[string]string
	// Stats selects and shapes Envoy's statistics.
	Stats Stats
	// Tracer receives spans, and AccessLogs receives access logs by gRPC if the control plane configures that.
	Tracer     Tracer
	AccessLogs Backend
	// MaxConnections is how many connections the listeners accept altogether, and HeapLimit the limit for the size of Envoy's heap
	// in bytes; 0 for no limit.
	MaxConnections uint32
	HeapLimit      uint64
	// Template is the text of a template whose output replaces the built-in bootstrap; empty for none. Proxy is the ProxyConfig that it
	// may use.
	Template string
	Proxy    *meshv1alpha1.ProxyConfig
	// OutlierLog is the file in which Envoy logs ejections of endpoints; empty for none.
	OutlierLog string
}

// JSON returns the bootstrap as JSON. It fails only if there is a template with a mistake.
func (c Config) JSON() ([]byte, error) {
	b, err := c.compact()
	if err != nil {
		return nil, err
	}
	return indented(b)
}

// compact returns the bootstrap as JSON with any white space.
func (c Config) compact() ([]byte, error) {
	if c.Template != "" {
		b, err := c.fromTemplate()
		if err != nil {
			return nil, fmt.Errorf("the template of the bootstrap: %w", err)
		}
		return b, nil
	}
	b, err := (protojson.MarshalOptions{UseProtoNames: true}).Marshal(c.Message())
	if err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	return b, nil
}

// Message returns the built-in bootstrap as a message.
func (c Config) Message() *bootstrapv3.Bootstrap {
	b := &bootstrapv3.Bootstrap{
		Node:             c.Node,
		Admin:            &bootstrapv3.Admin{Address: envoy.Address(c.loopback(), c.AdminPort)},
		LayeredRuntime:   c.runtime(),
		DynamicResources: c.dynamic(),
		StaticResources:  &bootstrapv3.Bootstrap_StaticResources{Clusters: c.clusters(), Listeners: c.listeners()},
		ClusterManager:   c.clusterManager(),
		StatsConfig:      c.Stats.statsConfig(),

		// A workload calls few of the clusters of a mesh, so statistics are created at their first use.
		DeferredStatOptions: &bootstrapv3.Bootstrap_DeferredStatOptions{EnableDeferredCreationStats: true},
		OverloadManager:     c.overload(),
		Tracing:             c.tracing(), //nolint:staticcheck // for the listeners that do not name a tracer themselves
		StatsSinks:          c.Stats.sinks(),
		BootstrapExtensions: []*corev3.TypedExtensionConfig{{
			Name:        "envoy.bootstrap.internal_listener",
			TypedConfig: envoy.Pack(&internalv3.InternalListener{BufferSizeKb: wrapperspb.UInt32(64)}),
		}},
	}
	c.Stats.setTimes(b)
	return b
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
				ClusterName: discoveryCluster,
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

// EnvoyMetricsPath is where the agent serves the metrics of Envoy alone, for Envoy's own listeners.
const EnvoyMetricsPath = "/stats/envoy"

// Check returns an error if Envoy or the mesh would not accept the bootstrap.
func (c Config) Check() error {
	used := map[uint32]string{}
	for _, p := range []struct {
		port uint32
		what string
	}{
		{c.AdminPort, "Envoy's admin interface"}, {c.StatusPort, "the agent's status server"},
		{c.HealthPort, "the listener for probes"}, {c.MetricsPort, "the listener for scrapes"},
		{c.SecureMetricsPort, "the listener for scrapes over TLS"}, {c.SecureMergedMetricsPort, "the listener for merged metrics over TLS"},
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
	case c.SecureMergedMetricsPort != 0 && c.StatusPort == 0:
		return fmt.Errorf("the listener for merged metrics on port %d needs the agent's status server, which is disabled; enable both or disable both", c.SecureMergedMetricsPort)
	case c.HealthPort != 0 && c.StatusPort == 0:
		return fmt.Errorf("the listener for probes on port %d needs the agent's status server, which is disabled; enable both or disable both", c.HealthPort)
	}
	return nil
}

func (c Config) clusters() []*clusterv3.Cluster {
	list := []*clusterv3.Cluster{c.discovery(), secrets(c.SecretsSocket), local(metricsCluster, c.loopback(), c.AdminPort)}
	list = append(list, c.backends()...)
	if c.StatusPort != 0 {
		list = append(list, local(agentCluster, c.loopback(), c.StatusPort))
	}
	slices.SortFunc(list, func(a, b *clusterv3.Cluster) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (c Config) listeners() []*listenerv3.Listener {
	metrics := page{prefix: MetricsPrefix, port: c.MetricsPort, path: "/stats/prometheus", cluster: metricsCluster, compressed: c.CompressMetrics, local: c.LocalMetrics}
	if c.StatusPort != 0 { // the agent gives the metrics of the mesh the names of Istio
		metrics.cluster, metrics.asks = agentCluster, EnvoyMetricsPath
	}
	secure, merged := metrics, metrics
	secure.local, merged.local = false, false // certificates protect them
	secure.prefix, secure.port, secure.secure = secureMetricsPrefix, c.SecureMetricsPort, true
	merged.prefix, merged.port, merged.secure, merged.cluster, merged.asks = mergedMetricsPrefix, c.SecureMergedMetricsPort, true, agentCluster, ""
	merged.compressed = false // the agent does that
	health := page{prefix: HealthPrefix, port: c.HealthPort, path: "/healthz/ready", cluster: agentCluster, proxyProtocol: c.HealthProxyProtocol}
	var list []*listenerv3.Listener
	for _, p := range []page{metrics, secure, merged, health} {
		if p.port != 0 {
			list = append(list, c.listener(p))
		}
	}
	return list
}
