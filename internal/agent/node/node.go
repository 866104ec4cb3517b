// Package node is who a proxy says it is: the identifier, the cluster, the locality and the metadata that it sends to the
// control plane with its first request.
//
// Invariants: the same facts give the same node; metadata has Istio's keys and forms, because control planes, patches
// and dashboards read them. What the environment says about a key wins over what the agent would say, except for the
// addresses, the labels and the ports, which the agent knows better.
//
// The package is pure: it is handed what it needs to know. It must not import settings, processes or servers.
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

// Facts are what is known of a proxy and its workload.
type Facts struct {
	Role            string
	Name, Namespace string
	// ID stands for name and namespace in the identifier if it is not empty.
	ID string
	// Domain is where the workload's DNS names end: its namespace, and what is behind that.
	Domain         string
	Addresses      []string // at least one
	ServiceAccount string
	ClusterID      string
	Labels         map[string]string
	Annotations    map[string]string
	// ServiceCluster is what Envoy calls itself towards others; made up of the labels if it is empty.
	ServiceCluster string
	// Version is the release the agent says it is.
	Version string
	Proxy   *meshv1alpha1.ProxyConfig
	// HealthPort and MetricsPort are those of Envoy's listeners for probes and scrapes.
	HealthPort, MetricsPort uint32
	ExitOnZeroConnections   bool
	OutlierLog              string
	// Metadata is what the environment says, by key.
	Metadata map[string]any
}

// ephemeralLabel changes with every rollout and would be one more facet that means nothing.
const ephemeralLabel = "pod-template-hash"

// Labels that say where a workload is, the most telling first.
const (
	localityLabel = "istio-locality"
	regionLabel   = "topology.kubernetes.io/region"
	zoneLabel     = "topology.kubernetes.io/zone"
	subZoneLabel  = "topology.istio.io/subzone"
)

// Node is what the proxy sends.
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

// unnamed is what Istio calls a proxy nobody has named.
const unnamed = "istio-proxy"

// cluster is the name by which traces and access logs of others know the workload.
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

// locality is where the workload's labels say it is; the levels of Istio's own label are cut at slashes, or at dots
// because a label cannot have slashes.
func (f Facts) locality() *corev3.Locality {
	if l := f.Labels[localityLabel]; l != "" {
		cut := "."
		if strings.Contains(l, "/") {
			cut = "/"
		}
		levels := append(strings.SplitN(l, cut, 3), "", "")
		return &corev3.Locality{Region: levels[0], Zone: levels[1], SubZone: levels[2]}
	}
	l := &corev3.Locality{Region: f.Labels[regionLabel], Zone: f.Labels[zoneLabel], SubZone: f.Labels[subZoneLabel]}
	if l.Region == "" {
		return nil
	}
	return l
}

// metadata is the map of what is known, and what the environment says.
func (f Facts) metadata() (*structpb.Struct, error) {
	proxy, err := asAny(f.Proxy)
	if err != nil {
		return nil, err
	}
	known := map[string]any{
		"NAME": f.Name, "NAMESPACE": f.Namespace, "CLUSTER_ID": f.ClusterID, "SERVICE_ACCOUNT": f.ServiceAccount,
		"ISTIO_VERSION": f.Version, "INTERCEPTION_MODE": f.Proxy.GetInterceptionMode().String(), "MESH_ID": f.Proxy.GetMeshId(),
		"OUTLIER_LOG_PATH": f.OutlierLog, "ANNOTATIONS": texts(f.Annotations),
	}
	maps.Copy(known, f.Metadata)
	// What follows is nobody's to say but the agent's.
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

// labels are the workload's, with those that the environment gives beneath.
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

// asAny is the JSON form of a proxy's settings.
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
