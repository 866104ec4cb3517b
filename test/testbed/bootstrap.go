package testbed

import (
	"maps"
	"net"
	"strconv"
)

// Node is who an Envoy says it is, and how it talks to the control plane.
type Node struct {
	Name, Namespace string
	IP              string // a loopback address of its own: the server at this address is taken for its workload
	Discovery       string // address of xDS
	SotW            bool   // State-of-the-World instead of delta
	Gateway         bool   // a gateway instead of a sidecar
	Metadata        map[string]any

	// Resolver is the address of the DNS server this Envoy asks; the machine's if empty.
	Resolver string
	// Secrets is the socket where this Envoy asks for secrets; it knows none if it is empty.
	Secrets string

	// MaxRegex is the largest RE2 program this Envoy accepts; 0 means what the agent sets.
	MaxRegex int
}

// Variant names the protocol variant, for the names of tests: sotw, or delta with virtual hosts as resources of their own, or whole, which
// is delta without.
func (n Node) Variant() string {
	if n.SotW {
		return "sotw"
	}
	if n.Metadata["VHDS"] == "false" {
		return "whole"
	}
	return "delta"
}

// object is a JSON object.
type object = map[string]any

// agentMaxRegex is the RE2 program size that an agent's bootstrap allows.
const agentMaxRegex = 32768

// bootstrap is what a sidecar starts with. Nothing is captured: its outbound listeners really bind.
func (n Node) bootstrap(admin string) object {
	if n.IP == "" {
		n.IP = "127.1.0.1"
	}
	role := "sidecar"
	if n.Gateway {
		role = "router"
	}
	metadata := object{
		"NAME": n.Name, "NAMESPACE": n.Namespace, "INSTANCE_IPS": n.IP, "INTERCEPTION_MODE": "NONE",
		"CLUSTER_ID": "Kubernetes", "MESH_ID": "cluster.local", "ISTIO_VERSION": "1.32.0",
		"LABELS": object{"app": n.Name},
	}
	if n.Secrets == "" {
		metadata["WORKLOAD_CERTIFICATES"] = "none"
	}
	maps.Copy(metadata, n.Metadata)
	api := "DELTA_GRPC"
	if n.SotW {
		api = "GRPC"
	}
	maxRegex := n.MaxRegex
	if maxRegex == 0 {
		maxRegex = agentMaxRegex
	}
	ads := object{"ads": object{}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"}
	clusters := []object{discoveryCluster(n.Discovery)}
	if n.Secrets != "" {
		clusters = append(clusters, upstream("sds-grpc", object{"pipe": object{"path": n.Secrets}}))
	}
	config := object{
		"node": object{
			"id":      role + "~" + n.IP + "~" + n.Name + "." + n.Namespace + "~" + n.Namespace + ".svc.cluster.local",
			"cluster": n.Name + "." + n.Namespace, "metadata": metadata,
		},
		"admin": object{"address": object{"pipe": object{"path": admin}}},
		"layered_runtime": object{"layers": []object{{
			"name": "static", "static_layer": object{"re2.max_program_size.error_level": strconv.Itoa(maxRegex)},
		}}},
		"dynamic_resources": object{
			"lds_config": ads, "cds_config": ads,
			"ads_config": object{
				"api_type": api, "transport_api_version": "V3", "set_node_on_first_message_only": true,
				"grpc_services": []object{{"envoy_grpc": object{
					"cluster_name": "xds-grpc",
					// Far quicker than by default (500 ms to 30 s): tests restart control planes often.
					"retry_policy": object{"retry_back_off": object{"base_interval": "0.1s", "max_interval": "0.5s"}},
				}}},
			},
		},
		"static_resources": object{"clusters": clusters},
	}
	if n.Resolver != "" {
		config["typed_dns_resolver_config"] = object{"name": "envoy.network.dns_resolver.cares", "typed_config": object{
			"@type":     "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
			"resolvers": []object{socketAddress(n.Resolver)},
		}}
	}
	return config
}

func socketAddress(address string) object {
	host, port, _ := net.SplitHostPort(address)
	number, _ := strconv.Atoi(port)
	return object{"socket_address": object{"address": host, "port_value": number}}
}

// discoveryCluster is how the control plane is reached.
func discoveryCluster(address string) object { return upstream("xds-grpc", socketAddress(address)) }

// upstream is a static cluster that speaks gRPC.
func upstream(name string, address object) object {
	return object{
		"name": name, "type": "STATIC", "connect_timeout": "1s",
		"load_assignment": object{"cluster_name": name, "endpoints": []object{{"lb_endpoints": []object{{
			"endpoint": object{"address": address},
		}}}}},
		"typed_extension_protocol_options": object{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": object{
			"@type":                "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
			"explicit_http_config": object{"http2_protocol_options": object{}},
		}},
	}
}
