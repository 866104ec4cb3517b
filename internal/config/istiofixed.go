package config

import "github.com/pilotmesh/pilot/internal/config/variables"

// fixedTraffic are variables about the configuration of proxies that has no such choice here.
func fixedTraffic() []variables.Variable {
	const remaining, sessions = "Envoy's statistics always have the remaining capacity of clusters", "the label has Istio's usual name always"
	return []variables.Variable{
		{Name: "AMBIENT_ENABLE_BAGGAGE", Lacks: noAmbient},
		{Name: "AMBIENT_ENABLE_DRY_RUN_AUTHORIZATION_POLICY", Lacks: noAmbient},
		{Name: "AMBIENT_ENABLE_MULTI_NETWORK_INGRESS", Lacks: noAmbient},
		{Name: "AMBIENT_ENABLE_MULTI_NETWORK_WAYPOINT", Usual: "true", Lacks: noAmbient},
		{Name: "AMBIENT_SCOPED_ADDRESS_PUSHES", Usual: "true", Lacks: noAmbient},
		{Name: "ENABLE_LAYERED_WAYPOINT_AUTHORIZATION_POLICIES", Lacks: noAmbient},
		{Name: "PILOT_HBONE_INITIAL_CONNECTION_WINDOW_SIZE", Lacks: noAmbient},
		{Name: "PILOT_HBONE_INITIAL_STREAM_WINDOW_SIZE", Lacks: noAmbient},
		{Name: "DISABLE_SHADOW_HOST_SUFFIX", Usual: "true", Lacks: "mirrored requests keep their host always"},
		{Name: "DISABLE_TRACK_REMAINING_CB_METRICS", Lacks: remaining},
		{Name: "ENABLE_100_CONTINUE_HEADERS", Usual: "true", Lacks: "the server, and never a proxy, answers whether the client should send the body"},
		{Name: "ENABLE_HCM_INTERNAL_NETWORKS", Lacks: "addresses of other networks are not internal ones for Envoy"},
		{Name: "ENABLE_LOCALITY_WEIGHTED_LB_CONFIG", Lacks: "localities have weights where a DestinationRule or the mesh settings distribute requests"},
		{Name: "ENABLE_WILDCARD_HOST_SERVICE_ENTRIES_FOR_TLS", Lacks: "connections to wildcard hosts go where their client sends them"},
		{Name: "ISTIO_ENABLE_IPV4_OUTBOUND_LISTENER_FOR_IPV6_CLUSTERS", Lacks: "listeners have the IP versions of their proxy"},
		{Name: "LABEL_CANONICAL_SERVICES_FOR_MESH_EXTERNAL_SERVICE_ENTRIES", Lacks: "metrics name a service outside the mesh by its host"},
		{Name: "MAX_CONNECTIONS_PER_SOCKET_EVENT_LOOP", Usual: "1", Lacks: "Envoy accepts as many connections at a time as wait"},
		{Name: "PILOT_ALLOW_ANY_DYNAMIC_DNS_MAX_HOSTS", Usual: "1024", Lacks: "a proxy keeps the addresses of 1,024 hosts that it looks up by name"},
		{Name: "PILOT_DNS_CARES_UDP_MAX_QUERIES", Usual: "100", Lacks: "Envoy decides how many queries go over one socket"},
		{Name: "PILOT_DNS_JITTER_DURATION", Usual: "100ms", Lacks: "names are looked up again up to 100 ms late"},
		{Name: "PILOT_DRAINING_LABEL", Usual: "istio.io/draining", Lacks: sessions},
		{Name: "PILOT_PERSISTENT_SESSION_LABEL", Usual: "istio.io/persistent-session", Lacks: sessions},
		{Name: "PILOT_PERSISTENT_SESSION_HEADER_LABEL", Usual: "istio.io/persistent-session-header", Lacks: sessions},
		{Name: "PILOT_ENABLE_ABSOLUTE_FQDN_VHOST_DOMAIN", Usual: "true", Lacks: "hosts that end with a dot are served always"},
		{Name: "PILOT_ENABLE_EDS_FOR_HEADLESS_SERVICES", Lacks: "requests to a headless service go to the address that the client has chosen"},
		{Name: "PILOT_ENABLE_HEADLESS_FILTER_CHAIN_LISTENER", Lacks: "TCP ports of headless services have a listener for each address"},
		{Name: "PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS", Lacks: "one provider is asked about the requests to a workload (Problem policy-two-providers)"},
		{Name: "PILOT_ENABLE_ROUTE_COLLAPSE_OPTIMIZATION", Usual: "true", Lacks: "each virtual host is encoded once, and shared"},
		{Name: "PILOT_ENABLE_STRICT_GATEWAY_MERGING", Usual: "true", Lacks: "servers merge by one rule; Problems name the ones that lose"},
		{Name: "PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT", Usual: "15s", Lacks: "a client of a gateway has 15 s for the TLS handshake"},
		{Name: "PILOT_MX_ADDITIONAL_LABELS", Lacks: stock},
		{Name: "PREFER_DESTINATIONRULE_TLS_FOR_EXTERNAL_SERVICES", Usual: "true", Lacks: "a DestinationRule decides about TLS, and not the protocol of the ServiceEntry"},
	}
}

// fixedSources are variables about services, objects and the control plane itself that have no such choice here.
func fixedSources() []variables.Variable {
	const best = "one rule chooses between services with the same host"
	return []variables.Variable{
		{Name: "ENABLE_DEBUG_ENDPOINT_AUTH", Usual: "true", Lacks: "debug pages answer to this host, and to workloads of DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES"},
		{Name: "ENABLE_ENHANCED_DESTINATIONRULE_MERGE", Usual: "true", Lacks: "DestinationRules of a host merge if the same namespaces see them"},
		{Name: "ENABLE_MULTICLUSTER_HEADLESS", Usual: "true", Lacks: "names of headless services have the addresses of all clusters"},
		{Name: "ENABLE_PROXY_FIND_POD_BY_IP", Lacks: "the pod of a proxy is found by its name, and then by its addresses, always"},
		{Name: "MCS_API_GROUP", Lacks: noMCS},
		{Name: "MCS_API_VERSION", Usual: "v1alpha1", Lacks: noMCS},
		{Name: "PILOT_ANALYSIS_INTERVAL", Usual: "10s", Lacks: "problems are found at once"},
		{Name: "PILOT_CA_CERT_CONFIGMAP", Usual: "istio-ca-root-cert", Lacks: "roots are in the ConfigMap istio-ca-root-cert always"},
		{Name: "PILOT_CRL_CONFIGMAP", Usual: "istio-ca-crl", Lacks: "lists of revoked certificates are in the ConfigMap istio-ca-crl always"},
		{Name: "PILOT_ENABLE_AGENTGATEWAY", Lacks: noGateway},
		{Name: "PILOT_ENABLE_GATEWAY_API_COPY_LABELS_ANNOTATIONS", Usual: "true", Lacks: noGateway},
		{Name: "PILOT_ENABLE_CA_CRL", Usual: "true", Lacks: "the list of revoked certificates of a plugged-in authority is always distributed"},
		{Name: "PILOT_ENABLE_CROSS_CLUSTER_WORKLOAD_ENTRY", Lacks: "WorkloadEntries are read in the cluster of the configuration only"},
		{Name: "PILOT_ENABLE_K8S_SELECT_WORKLOAD_ENTRIES", Usual: "true", Lacks: "Services select WorkloadEntries always"},
		{Name: "PILOT_ENABLE_SERVICEENTRY_SELECT_PODS", Usual: "true", Lacks: "ServiceEntries select pods always"},
		{Name: "PILOT_ENABLE_REMOTE_CREDENTIALS_CONTROLLER", Lacks: "Secrets of gateways are read in the cluster of the control plane only"},
		{Name: "PILOT_ENABLE_WORKLOAD_ENTRY_HEALTHCHECKS", Usual: "true", Lacks: "the health that agents report is always written"},
		{Name: "PILOT_ENABLE_XDS_IDENTITY_CHECK", Usual: "true", Lacks: "a proxy gets only the configuration of its own namespace and service account"},
		{Name: "PILOT_MULTICLUSTER_KUBECONFIG_PATH", Lacks: "Secrets describe remote clusters"},
		{Name: "PILOT_SIDECAR_PICK_BEST_SERVICE_NAMESPACE", Usual: "true", Lacks: best},
		{Name: "PILOT_UNIFIED_SIDECAR_SCOPE", Usual: "true", Lacks: best},
		{Name: "PILOT_STATUS_MAX_WORKERS", Usual: "100", Lacks: "one replica writes statuses, as many at a time as the API server allows"},
		{Name: "TOKEN_ISSUER", Lacks: "set JWT_RULE"},
		{Name: "USE_REMOTE_CERTS", Lacks: "an authority is plugged in as files; set ROOT_CA_DIR"},
	}
}

// removedVariables are variables of Istio 1.4 that later versions do not have.
func removedVariables() []variables.Variable {
	const detected = "the protocol of ports that declare none is detected always"
	return []variables.Variable{
		{Name: "PILOT_BLOCK_HTTP_ON_443", Usual: "true", Lacks: "a port has the protocol that it declares"},
		{Name: "PILOT_CERT_DIR", Lacks: "set --tlsCertFile, --tlsKeyFile and --caCertFile"},
		{Name: "PILOT_ENABLE_HEADLESS_SERVICE_POD_LISTENERS", Usual: "true", Lacks: "TCP ports of headless services have a listener for each address"},
		{Name: "PILOT_ENABLE_PROTOCOL_SNIFFING_FOR_INBOUND", Usual: "true", Lacks: detected},
		{Name: "PILOT_ENABLE_PROTOCOL_SNIFFING_FOR_OUTBOUND", Usual: "true", Lacks: detected},
		{Name: "PILOT_INBOUND_PROTOCOL_DETECTION_TIMEOUT", Lacks: "set protocolDetectionTimeout in the mesh settings"},
		{Name: "PILOT_RESPECT_DNS_TTL", Usual: "true", Lacks: "names are looked up again when the DNS says so"},
		{Name: "PILOT_RESTRICT_POD_UP_TRAFFIC_LOOP", Usual: "true", Lacks: "calls of a workload to itself do not loop"},
		{Name: "PILOT_SCOPE_PUSHES", Usual: "true", Lacks: "a change is sent to the proxies that it concerns"},
	}
}
