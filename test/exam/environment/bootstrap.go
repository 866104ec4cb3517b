package environment

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/pilotmesh/pilot/test/exam/casefile"
)

type obj = map[string]any

// sockets are the unix sockets Envoy talks to.
type sockets struct{ xds, sds, admin string }

// meshDefaults is the neutral MeshConfig a case is merged over.
func meshDefaults() obj {
	return obj{"rootNamespace": "istio-system", "trustDomain": "cluster.local"}
}

// merge lays b over a, map by map.
func merge(a, b obj) obj {
	out := maps.Clone(a)
	for k, v := range b {
		if bm, ok := v.(obj); ok {
			if am, ok := out[k].(obj); ok {
				out[k] = merge(am, bm)
				continue
			}
		}
		out[k] = v
	}
	return out
}

// nodeMetadata is what Istio's agent would send for this proxy.
func nodeMetadata(c *casefile.Case) obj {
	p := &c.Proxy
	workload := p.Name
	if i := strings.LastIndex(workload, "-"); i > 0 {
		workload = workload[:i]
	}
	proxyConfig := obj{
		"configPath": "./etc/istio/proxy", "binaryPath": "/usr/local/bin/envoy", "serviceCluster": "istio-proxy", "drainDuration": "45s",
		"discoveryAddress": "istiod.istio-system.svc:15012", "proxyAdminPort": 15000, "controlPlaneAuthPolicy": "MUTUAL_TLS", "statNameLength": 189,
		"statusPort": 15020, "terminationDrainDuration": "5s",
	}
	if d, ok := c.Mesh["defaultConfig"].(obj); ok {
		proxyConfig = merge(proxyConfig, d)
	}
	m := obj{
		"NAME": p.Name, "NAMESPACE": p.Namespace, "SERVICE_ACCOUNT": p.SA, "WORKLOAD_NAME": workload,
		"OWNER":  "kubernetes://apis/apps/v1/namespaces/" + p.Namespace + "/deployments/" + workload,
		"LABELS": p.Labels, "INSTANCE_IPS": "10.76.0.2,fd76::2", "CLUSTER_ID": "Kubernetes", "MESH_ID": "cluster.local",
		"ISTIO_VERSION": "1.32.0", "ISTIO_PROXY_SHA": "stock", "NODE_NAME": "exam-node", "PILOT_SAN": []string{"istiod.istio-system.svc"},
		"PROXY_CONFIG": proxyConfig, "ENVOY_STATUS_PORT": 15021, "ENVOY_PROMETHEUS_PORT": 15090,
	}
	if p.Type == "sidecar" {
		m["INTERCEPTION_MODE"] = "REDIRECT"
	}
	if p.Network != "" {
		m["NETWORK"] = p.Network
	}
	for k, v := range p.Metadata {
		if v == nil {
			delete(m, k)
			continue
		}
		m = merge(m, obj{k: v})
	}
	return m
}

func nodeOf(c *casefile.Case) obj {
	p := &c.Proxy
	n := obj{
		"id":      p.Type + "~10.76.0.2~" + p.Name + "." + p.Namespace + "~" + p.Namespace + ".svc.cluster.local",
		"cluster": p.Name + "." + p.Namespace, "metadata": nodeMetadata(c),
	}
	if p.Locality != "" {
		l := obj{}
		for i, part := range strings.SplitN(p.Locality, "/", 3) {
			l[[]string{"region", "zone", "sub_zone"}[i]] = part
		}
		n["locality"] = l
	}
	return n
}

func staticCluster(name string, address obj, h2 bool) obj {
	c := obj{
		"name": name, "type": "STATIC", "connect_timeout": "1s",
		"load_assignment": obj{"cluster_name": name, "endpoints": []obj{{"lb_endpoints": []obj{{"endpoint": obj{"address": address}}}}}},
	}
	if h2 {
		c["typed_extension_protocol_options"] = obj{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": obj{
			"@type":                "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
			"explicit_http_config": obj{"http2_protocol_options": obj{}},
		}}
	}
	return c
}

func pipe(path string) obj { return obj{"pipe": obj{"path": path}} }

func socketAddress(ip string, port int) obj {
	return obj{"socket_address": obj{"address": ip, "port_value": port}}
}

// bootstrap is the Envoy configuration of a case: everything but the four xDS types comes from the control plane.
func bootstrap(c *casefile.Case, s sockets, sotw bool) ([]byte, error) {
	api := "DELTA_GRPC"
	if sotw {
		api = "GRPC"
	}
	ads := obj{"ads": obj{}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"}
	return json.MarshalIndent(obj{
		"node":  nodeOf(c),
		"admin": obj{"address": pipe(s.admin)},
		"layered_runtime": obj{"layers": []obj{
			{"name": "static", "static_layer": obj{
				"re2.max_program_size.error_level":                         "32768",
				"envoy.reloadable_features.http_reject_path_with_fragment": false,
			}},
			{"name": "admin", "admin_layer": obj{}},
		}},
		"bootstrap_extensions": []obj{{
			"name":         "envoy.bootstrap.internal_listener",
			"typed_config": obj{"@type": "type.googleapis.com/envoy.extensions.bootstrap.internal_listener.v3.InternalListener", "buffer_size_kb": 64},
		}},
		"dynamic_resources": obj{
			"lds_config": ads, "cds_config": ads,
			"ads_config": obj{
				"api_type": api, "transport_api_version": "V3", "set_node_on_first_message_only": true,
				"grpc_services": []obj{{"envoy_grpc": obj{"cluster_name": "xds-grpc"}}},
			},
		},
		"static_resources": obj{"clusters": []obj{
			staticCluster("xds-grpc", pipe(s.xds), true),
			staticCluster("sds-grpc", pipe(s.sds), true),
			staticCluster("prometheus_stats", socketAddress("127.0.0.1", 15000), false),
			staticCluster("agent", socketAddress("127.0.0.1", 15020), false),
			staticCluster("zipkin", socketAddress("127.0.0.1", 9411), false),
		}},
	}, "", " ")
}
