// Package node builds the Envoy node of a proxy: the id, the cluster, the locality and the metadata that Envoy sends to the
// control plane with its first request.
//
// Invariants: equal facts yield equal nodes. Metadata has Istio's keys and formats, because control planes, EnvoyFilters and
// dashboards read them. Values from the environment replace the agent's values, except for addresses, labels and ports, which
// the agent knows better.
//
// Goroutines: none. The package is pure.
package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
)

// Facts are the input for a node: the known facts about a proxy and its workload.
type Facts struct {
	Role            string
	Name, Namespace string
	// ID replaces name and namespace in the node id if it is not empty.
	ID string
	// Domain is the suffix of the workload's DNS names: its namespace and the cluster domain.
	Domain         string
	Addresses      []string // at least one
	ServiceAccount string
	ClusterID      string
	Labels         map[string]string
	Annotations    map[string]string
	// ServiceCluster is Envoy's service cluster name; derived from the labels if it is empty.
	ServiceCluster string
	// Version is the Istio version that the agent reports.
	Version string
	Proxy   *meshv1alpha1.ProxyConfig
	// HealthPort and MetricsPort are the ports of Envoy's listeners for probes and scrapes.
	HealthPort, MetricsPort uint32
	ExitOnZeroConnections   bool
	OutlierLog              string
	// NoCertificate is true if the proxy has no certificate of the mesh and cannot get one. The control plane then configures it for
	// plain text where it would accept mutual TLS as well.
	NoCertificate bool
	// OtherAuthority is true if the certificates of the proxy come from an authority other than the control plane. They do not name the workload, so
	// the proxy does, in a header.
	OtherAuthority bool
	// Region and Zone are where the machine is, if its cloud reports that; locality labels of the workload have precedence. Platform
	// is the other metadata that the cloud reports of the machine.
	Region, Zone string
	Platform     map[string]string
	// Metadata is the metadata from the environment, by key.
	Metadata map[string]any
}

// certificatesKey is the key of where the certificates of a proxy come from, if that is not the control plane.
const (
	certificatesKey = "WORKLOAD_CERTIFICATES"
	otherAuthority  = "other-authority"
)

// ephemeralLabel changes with every rollout. It is left out, because it would distinguish proxies that are otherwise equal.
const ephemeralLabel = "pod-template-hash"

// Labels with the locality of a workload. The first one has precedence.
const (
	localityLabel    = "topology.istio.io/locality"
	oldLocalityLabel = "istio-locality"
	regionLabel      = "topology.kubernetes.io/region"
	zoneLabel        = "topology.kubernetes.io/zone"
	subZoneLabel     = "topology.istio.io/subzone"
)

// Node returns the node.
func (f Facts) Node() (*corev3.Node, error) {
	if len(f.Addresses) == 0 {
		return nil, errors.New("the workload has no address")
	}
	f.Labels = f.labels()
	metadata, err := f.metadata()
	if err != nil {
		return nil, err
	}
	return &corev3.Node{Id: f.id(), Cluster: f.cluster(), Locality: f.locality(), Metadata: metadata}, nil
}

func (f Facts) id() string {
	name := f.ID
	if name == "" {
		name = f.Name + "." + f.Namespace
	}
	return strings.Join([]string{f.Role, f.Addresses[0], name, f.Domain}, "~")
}

// unnamed is Istio's name for a proxy without a name.
const unnamed = "istio-proxy"

// cluster returns the service cluster, which identifies the workload in traces and access logs.
func (f Facts) cluster() string {
	if c := f.ServiceCluster; c != "" && c != unnamed {
		return c
	}
	canonical := first(f.Labels["service.istio.io/canonical-name"], f.Labels["app.kubernetes.io/name"], f.Labels["app"], f.workload(), unnamed)
	switch f.Proxy.GetTracingServiceName() {
	case meshv1alpha1.ProxyConfig_CANONICAL_NAME_ONLY:
		return canonical
	case meshv1alpha1.ProxyConfig_CANONICAL_NAME_AND_NAMESPACE:
		return canonical + "." + f.Namespace
	case meshv1alpha1.ProxyConfig_APP_LABEL_AND_NAMESPACE:
	}
	return first(f.Labels["app"], f.workload(), unnamed) + "." + f.Namespace
}

func (f Facts) workload() string {
	s, _ := f.Metadata["WORKLOAD_NAME"].(string)
	return s
}

func first(candidates ...string) string {
	for _, c := range candidates {
		if c != "" {
			return c
		}
	}
	return ""
}

// locality returns the locality from the workload's labels, or else the machine's. Istio's label has slashes between the levels, or dots,
// because label values cannot contain slashes.
func (f Facts) locality() *corev3.Locality {
	if l := first(f.Labels[localityLabel], f.Labels[oldLocalityLabel]); l != "" {
		cut := "."
		if strings.Contains(l, "/") {
			cut = "/"
		}
		levels := append(strings.SplitN(l, cut, 3), "", "")
		return &corev3.Locality{Region: levels[0], Zone: levels[1], SubZone: levels[2]}
	}
	l := &corev3.Locality{Region: f.Labels[regionLabel], Zone: f.Labels[zoneLabel], SubZone: f.Labels[subZoneLabel]}
	if l.Region == "" {
		l = &corev3.Locality{Region: f.Region, Zone: f.Zone}
	}
	if l.Region == "" {
		return nil
	}
	return l
}

// metadata returns the node metadata.
func (f Facts) metadata() (*structpb.Struct, error) {
	proxy, err := asAny(f.Proxy)
	if err != nil {
		return nil, err
	}
	known := map[string]any{
		"NAME": f.Name, "NAMESPACE": f.Namespace, "CLUSTER_ID": f.ClusterID, "SERVICE_ACCOUNT": f.ServiceAccount,
		"ISTIO_VERSION": f.Version, "INTERCEPTION_MODE": f.Proxy.GetInterceptionMode().String(), "MESH_ID": f.Proxy.GetMeshId(),
		"OUTLIER_LOG_PATH": f.OutlierLog, "ANNOTATIONS": texts(f.Annotations),
		"PLATFORM_METADATA": texts(f.Platform),
	}
	switch {
	case f.NoCertificate:
		known[certificatesKey] = "none"
	case f.OtherAuthority:
		known[certificatesKey] = otherAuthority
	}
	maps.Copy(known, f.Metadata)
	// Only the agent may set the following keys.
	known["INSTANCE_IPS"] = strings.Join(f.Addresses, ",")
	known["LABELS"] = texts(f.Labels)
	known["PROXY_CONFIG"] = proxy
	known["ENVOY_STATUS_PORT"] = float64(f.HealthPort)
	known["ENVOY_PROMETHEUS_PORT"] = float64(f.MetricsPort)
	if f.ExitOnZeroConnections {
		known["EXIT_ON_ZERO_ACTIVE_CONNECTIONS"] = "true"
	}
	maps.DeleteFunc(known, func(_ string, v any) bool { return empty(v) })
	m, err := structpb.NewStruct(known)
	if err != nil {
		return nil, fmt.Errorf("node metadata: %w", err)
	}
	return m, nil
}

// labels returns the labels of the workload, merged over the labels from the environment.
func (f Facts) labels() map[string]string {
	all := map[string]string{}
	if given, ok := f.Metadata["LABELS"].(map[string]any); ok {
		for _, name := range slices.Sorted(maps.Keys(given)) {
			if v, ok := given[name].(string); ok {
				all[name] = v
			}
		}
	}
	maps.Copy(all, f.Labels)
	delete(all, ephemeralLabel)
	return all
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case float64:
		return v == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

func texts(m map[string]string) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// asAny returns ProxyConfig as a JSON value.
func asAny(p *meshv1alpha1.ProxyConfig) (map[string]any, error) {
	b, err := protojson.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("node metadata: proxy settings: %w", err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("node metadata: proxy settings: %w", err)
	}
	return m, nil
}
