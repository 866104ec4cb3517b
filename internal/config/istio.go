package config

import (
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/config/variables"
)

// ownPrefixes begin the names of variables that only a control plane reads.
func ownPrefixes() []string { return []string{"PILOT_", "CITADEL_"} }

// Reasons that several variables share.
const (
	atOnce    = "changes are sent at once, and what arrives during a computation goes with the next"
	noGateway = "objects of the Gateway API are not read yet"
	noAmbient = "there is no ambient mode: every proxy is a sidecar or a gateway"
	noMCS     = "services of the Multi-Cluster Services API are not read"
	noTest    = "it is for tests of Istio's own code"
	noCache   = "every result is kept for as long as it is in use, and nothing longer"
	stock     = "the filter is part of Istio's Envoy, and not of standard Envoy"
	own       = "the name of the workload and its labels are sent as plain node metadata"
)

// allVariables are the environment variables of Istio's control plane, of all its versions, and the variables that only this control plane has.
func allVariables() []variables.Variable {
	return append(actingVariables(), inertVariables()...)
}

// VariableRemarks are the warnings at start about variables that have no effect. environ is a list of NAME=VALUE.
func VariableRemarks(environ []string) []string {
	return variables.Vain(allVariables(), environ, ownPrefixes()...)
}

// actingVariables are the variables that have an effect.
func actingVariables() []variables.Variable {
	return []variables.Variable{
		{Name: "POD_NAME", Does: "name of this replica"},
		{Name: "POD_NAMESPACE", Does: "default of --namespace"},
		{Name: "CLUSTER_ID", Does: "default of --clusterID"},
		{Name: "REVISION", Does: "revision of the control plane"},
		{Name: "SHARED_MESH_CONFIG", Does: "ConfigMap that is merged under the mesh configuration"},
		{Name: "ENABLE_LEADER_ELECTION", Does: "false: this replica writes to the cluster without an election"},
		{Name: "PILOT_REMOTE_CLUSTER_TIMEOUT", Does: "how long the start waits for remote clusters"},
		{Name: "PILOT_ENABLE_IP_AUTOALLOCATE", Does: "false: allocate no addresses to ServiceEntries"},
		{Name: "PILOT_IP_AUTOALLOCATE_IPV4_PREFIX", Does: "range of allocated IPv4 addresses"},
		{Name: "PILOT_IP_AUTOALLOCATE_IPV6_PREFIX", Does: "range of allocated IPv6 addresses"},
		{Name: "PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION", Does: "false: make no WorkloadEntries for proxies"},
		{Name: "PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS", Does: "true: remove the taint cni.istio.io/not-ready from a node once its agent of the CNI plugin is ready"},
		{Name: "PILOT_WORKLOAD_ENTRY_GRACE_PERIOD", Does: "how long the entry of a proxy stays after it has disconnected"},
		{Name: "ISTIO_WORKLOAD_ENTRY_VALIDATE_IDENTITY", Does: "false: proxies that have not shown who they are may ask to be registered"},
		{Name: "ENABLE_XDS_API_GENERATOR_AUTH", Does: "false: clients that have not shown who they are may read configuration (MCP)"},
		{Name: "PILOT_SCOPE_GATEWAY_TO_NAMESPACE", Does: "Gateways are for gateways of their own namespace only"},
		{Name: "PILOT_FILTER_GATEWAY_CLUSTER_CONFIG", Does: "true: gateways have the clusters of the services only to which they route, instead of all that they see"},
		{Name: "PILOT_ENABLE_QUIC_LISTENERS", Does: "true: gateways take HTTP/3 at the HTTPS ports that their Service also has as UDP ports"},
		{Name: "PILOT_ENABLE_PERSISTENT_SESSION_FILTER", Does: "true: requests of a session reach one endpoint of services with the label istio.io/persistent-session"},
		{Name: "ISTIO_DUAL_STACK", Does: "true: proxies with addresses of both IP versions use both, towards services and endpoints"},
		{Name: "PILOT_SEND_UNHEALTHY_ENDPOINTS", Does: "true: proxies always know endpoints that are not ready, and never use them, whatever minHealthPercent says"},
		{Name: "PILOT_AUTO_SEND_UNHEALTHY_ENDPOINTS", Does: "false: proxies do not know endpoints that are not ready"},
		{Name: "PILOT_SIDECAR_USE_REMOTE_ADDRESS", Does: "true: sidecars add the address of the application to x-forwarded-for of its requests"},
		{Name: "PILOT_ALLOW_SIDECAR_SERVICE_INBOUND_LISTENER_MERGE", Does: "true: the ports of services count beside the ingress listeners of a Sidecar"},
		{Name: "PILOT_HTTP10", Does: "true: all proxies accept HTTP/1.0; for some, set HTTP10 in their proxyMetadata"},
		{Name: "PILOT_TRACE_SAMPLING", Does: "percentage of new requests that are traced if the mesh sets none"},
		{Name: "ISTIO_GATEWAY_STRIP_HOST_PORT", Does: "true: gateways remove the port from the Host of requests"},
		{Name: "DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES", Does: "namespaces whose workloads may read all debug pages"},
		{Name: "BLOCKED_CIDRS_IN_JWKS_URIS", Does: "addresses from which no keys are fetched"},
		{Name: "PILOT_JWT_PUB_KEY_REFRESH_INTERVAL", Does: "how often keys of issuers are fetched"},
		{Name: "PILOT_JWT_ENABLE_REMOTE_JWKS", Does: "who fetches keys of issuers: the control plane or proxies"},
		{Name: "JWKS_RESOLVER_INSECURE_SKIP_VERIFY", Does: "true: accept any certificate of a key server"},
		{Name: "ENABLE_CA_SERVER", Does: "false: sign no certificates for workloads"},
		{Name: "ROOT_CA_DIR", Does: "folder of an authority to plug in"},
		{Name: "EXTERNAL_CA", Does: "ISTIOD_RA_KUBERNETES_API: signers of Kubernetes sign"},
		{Name: "K8S_SIGNER", Does: "the signer for all workloads"},
		{Name: "CERT_SIGNER_DOMAIN", Does: "domain of the signers that proxies may wish"},
		{Name: "DEFAULT_WORKLOAD_CERT_TTL", Does: "validity of certificates that ask for none"},
		{Name: "MAX_WORKLOAD_CERT_TTL", Does: "longest validity of certificates"},
		{Name: "CITADEL_SELF_SIGNED_CA_CERT_TTL", Does: "validity of a self-signed root"},
		{Name: "CITADEL_SELF_SIGNED_CA_RSA_KEY_SIZE", Does: "an RSA key of this size for the root"},
		{Name: "CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL", Does: "how often the age of the root is looked at"},
		{Name: "CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE", Does: "part of the validity of a root in which another one takes over"},
		{Name: "TOKEN_AUDIENCES", Does: "audiences; a token must have one of them"},
		{Name: "JWT_RULE", Does: "an OIDC issuer whose tokens are accepted"},
		{Name: "CA_TRUSTED_NODE_ACCOUNTS", Does: "agents of nodes that get certificates for pods"},
		{Name: "ISTIOD_CUSTOM_HOST", Does: "more names of the control plane"},
		{Name: "COMPLIANCE_POLICY", Does: "restrictions of all TLS"},
		{Name: "PILOT_STATE_DIR", Does: "default of --stateDir (only here)"},
		{Name: "PILOT_REFUSED_POLICIES", Does: "ignore: a refused access policy without a good version has no effect (only here)"},
		{Name: "PILOT_POLICY_REMOVAL_DELAY", Does: "how long a file must be unchanged before a lost access policy is withdrawn (only here)"},
	}
}

// inertVariables are the variables that have no effect.
func inertVariables() []variables.Variable {
	list := []variables.Variable{
		{Name: "PILOT_DEBOUNCE_AFTER", Usual: "100ms", Lacks: atOnce},
		{Name: "PILOT_DEBOUNCE_MAX", Usual: "10s", Lacks: atOnce},
		{Name: "PILOT_ENABLE_EDS_DEBOUNCE", Usual: "true", Lacks: atOnce},
		{Name: "PILOT_PUSH_THROTTLE", Lacks: "as many streams are written at a time as the machine can serve"},
		{Name: "PILOT_MAX_REQUESTS_PER_SECOND", Lacks: "connecting proxies are built beside the others, and delay none"},
		{Name: "PILOT_CONVERT_SIDECAR_SCOPE_CONCURRENCY", Lacks: "set --workers"},
		{Name: "ENABLE_LAZY_SIDECAR_EVALUATION", Usual: "true", Lacks: "only what a connected proxy needs is computed"},
		{Name: "PILOT_ENABLE_XDS_CACHE", Usual: "true", Lacks: noCache},
		{Name: "PILOT_ENABLE_CDS_CACHE", Usual: "true", Lacks: noCache},
		{Name: "PILOT_ENABLE_RDS_CACHE", Usual: "true", Lacks: noCache},
		{Name: "PILOT_XDS_CACHE_SIZE", Lacks: noCache},
		{Name: "PILOT_XDS_CACHE_INDEX_CLEAR_INTERVAL", Lacks: noCache},
		{Name: "PILOT_XDS_CACHE_STATS", Lacks: noCache},
		{Name: "PILOT_XDS_SEND_TIMEOUT", Lacks: "set --writeTimeout"},
		{Name: "PILOT_INITIAL_FETCH_TIMEOUT", Usual: "0s", Lacks: "Envoy waits for its configuration"},
		{Name: "ISTIO_GPRC_MAXRECVMSGSIZE", Usual: "4194304", Lacks: "set --maxRecvMsgSize"},
		{Name: "ISTIO_GPRC_MAXSTREAMS", Usual: "100000", Lacks: "the limit is 100,000 streams per connection"},
		{Name: "ISTIO_DELTA_XDS", Usual: "true", Lacks: "the client decides between delta and state of the world"},
		{Name: "PILOT_ENABLE_DELTA_XDS", Usual: "true", Lacks: "the client decides between delta and state of the world"},
		{Name: "PILOT_ENABLE_AMBIENT", Lacks: noAmbient},
		{Name: "PILOT_ENABLE_AMBIENT_CONTROLLERS", Lacks: noAmbient},
		{Name: "PILOT_ENABLE_AMBIENT_WAYPOINTS", Lacks: noAmbient},
		{Name: "PILOT_ENABLE_HBONE", Lacks: noAmbient},
		{Name: "PILOT_ENABLE_SENDING_HBONE", Lacks: noAmbient},
		{Name: "PILOT_ENABLE_SIDECAR_LISTENING_HBONE", Lacks: noAmbient},
		{Name: "PILOT_PREFER_SENDING_HBONE", Lacks: noAmbient},
		{Name: "PILOT_AUTO_ALLOW_WAYPOINT_POLICY", Lacks: noAmbient},
		{Name: "AMBIENT_ENABLE_STATUS", Usual: "true", Lacks: noAmbient},
		{Name: "AMBIENT_ENABLE_MULTI_NETWORK", Lacks: noAmbient},
		{Name: "ENABLE_INGRESS_WAYPOINT_ROUTING", Lacks: noAmbient},
		{Name: "PILOT_ENABLE_GATEWAY_API", Usual: "true", Lacks: noGateway},
		{Name: "PILOT_ENABLE_ALPHA_GATEWAY_API", Lacks: noGateway},
		{Name: "PILOT_ENABLE_GATEWAY_API_STATUS", Usual: "true", Lacks: noGateway},
		{Name: "PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER", Usual: "true", Lacks: noGateway},
		{Name: "PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER", Usual: "true", Lacks: noGateway},
		{Name: "PILOT_GATEWAY_API_DEFAULT_GATEWAYCLASS_NAME", Usual: "istio", Lacks: noGateway},
		{Name: "PILOT_GATEWAY_API_CONTROLLER_NAME", Usual: "istio.io/gateway-controller", Lacks: noGateway},
		{Name: "PILOT_MULTI_NETWORK_DISCOVER_GATEWAY_API", Usual: "true", Lacks: noGateway},
		{Name: "ENABLE_GATEWAY_API_MANUAL_DEPLOYMENT", Usual: "true", Lacks: noGateway},
		{Name: "ENABLE_SELECTOR_BASED_K8S_GATEWAY_POLICY", Usual: "true", Lacks: noGateway},
		{Name: "ENABLE_GATEWAY_API_INFERENCE_EXTENSION", Lacks: noGateway},
		{Name: "RESOLVE_HOSTNAME_GATEWAYS", Usual: "true", Lacks: "host names of gateways between networks are always looked up"},
		{Name: "INJECT_ENABLED", Does: "serve the webhooks"},
		{Name: "INJECTION_WEBHOOK_CONFIG_NAME", Does: "name of the configuration of the injecting webhook"},
		{Name: "ENABLE_NATIVE_SIDECARS", Does: "proxies are native sidecars: true, false or auto, which is false while the versions of nodes are not read"},
		{Name: "PLATFORM", Does: "openshift: users of proxies follow from their namespaces"},
		{Name: "VALIDATION_WEBHOOK_CONFIG_NAME", Does: "name of the configuration of the validating webhook"},
		{Name: "PILOT_ENABLE_ANALYSIS", Lacks: "problems are always found, and written to the statuses of objects"},
		{Name: "PILOT_ENABLE_STATUS", Lacks: "statuses are written always"},
		{Name: "PILOT_ENABLE_CONFIG_DISTRIBUTION_TRACKING", Usual: "true", Lacks: "it is known of each object on which proxies it is live (pilotctl wait)"},
		{Name: "PILOT_DISTRIBUTION_HISTORY_RETENTION", Lacks: "it is known of each object on which proxies it is live (pilotctl wait)"},
	}
	return slices.Concat(list, otherInert(), fixedTraffic(), fixedSources(), removedVariables())
}

// otherInert are further variables without effect.
func otherInert() []variables.Variable {
	return []variables.Variable{
		{Name: "MUTEX_PROFILE_FRACTION", Lacks: "mutexes are not profiled"},
		{Name: "ENABLE_LEGACY_FSGROUP_INJECTION", Lacks: "volumes of proxies need no group"},
		{Name: "ENABLE_MCS_AUTO_EXPORT", Lacks: noMCS},
		{Name: "ENABLE_MCS_CLUSTER_LOCAL", Lacks: noMCS},
		{Name: "ENABLE_MCS_HOST", Lacks: noMCS},
		{Name: "ENABLE_MCS_SERVICE_DISCOVERY", Lacks: noMCS},
		{Name: "PILOT_ENABLE_TELEMETRY_LABEL", Usual: "true", Lacks: own},
		{Name: "PILOT_ENDPOINT_TELEMETRY_LABEL", Usual: "true", Lacks: own},
		{Name: "PILOT_ENABLE_METADATA_EXCHANGE", Usual: "true", Lacks: stock},
		{Name: "METADATA_EXCHANGE_ADDITIONAL_LABELS", Lacks: stock},
		{Name: "PILOT_DISABLE_MX_ALPN", Lacks: stock},
		{Name: "PILOT_ENABLE_ALPN_FILTER", Usual: "true", Lacks: stock},
		{Name: "PILOT_ENABLE_MYSQL_FILTER", Lacks: "connections with this protocol are passed on as TCP"},
		{Name: "PILOT_ENABLE_MONGO_FILTER", Usual: "true", Lacks: "connections with this protocol are passed on as TCP"},
		{Name: "PILOT_ENABLE_REDIS_FILTER", Lacks: "connections with this protocol are passed on as TCP"},
		{Name: "PILOT_ENABLE_THRIFT_FILTER", Lacks: "connections with this protocol are passed on as TCP"},
		{Name: "PILOT_SKIP_VALIDATE_TRUST_DOMAIN", Lacks: "identities of other trust domains are accepted if trustDomainAliases names them"},
		{Name: "ENABLE_TLS_ON_SIDECAR_INGRESS", Usual: "true", Lacks: "tls of an ingress listener counts wherever mutual TLS of the port is DISABLE"},
		{Name: "ENABLE_DEBUG_ON_HTTP", Usual: "true", Lacks: "debug pages answer to this host only; set --httpAddr and --monitoringAddr for none"},
		{Name: "UNSAFE_ENABLE_ADMIN_ENDPOINTS", Lacks: "no page ends connections or changes configuration"},
		{Name: "UNSAFE_PILOT_ENABLE_RUNTIME_ASSERTIONS", Lacks: noTest},
		{Name: "UNSAFE_PILOT_ENABLE_DELTA_TEST", Lacks: noTest},
		{Name: "EXTERNAL_ISTIOD", Lacks: "the control plane reads its configuration from one cluster or folder; name the cluster with --kubeconfig"},
		{Name: "LOCAL_CLUSTER_SECRET_WATCHER", Lacks: "Secrets of remote clusters are read in the cluster of the configuration"},
		{Name: "ISTIO_WATCH_NAMESPACE", Lacks: "all namespaces are read; discoverySelectors in the mesh settings limit them"},
		{Name: "ISTIO_KUBE_CLIENT_CONTENT_TYPE", Usual: "protobuf", Lacks: "the client chooses by the kind of object"},
		{Name: "PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS", Lacks: "plugins and paths of files in a kubeconfig are refused always"},
		{Name: "PILOT_IGNORE_RESOURCES", Lacks: "all supported kinds are read"},
		{Name: "PILOT_INCLUDE_RESOURCES", Lacks: "all supported kinds are read"},
		{Name: "PILOT_CERT_PROVIDER", Usual: "istiod", Lacks: "the certificate comes from the authority of the control plane, or from --tlsCertFile"},
		{Name: "XDS_AUTH", Usual: "true", Lacks: "callers over TLS must always show who they are"},
		{Name: "XDS_AUTH_PLAINTEXT", Lacks: "without TLS no caller has an identity; set --grpcAddr= for TLS only"},
		{Name: "TRUSTED_GATEWAY_CIDR", Lacks: "callers show who they are themselves; none does it for others by a header"},
		{Name: "JWT_POLICY", Usual: "third-party-jwt", Lacks: "tokens must be for an audience of TOKEN_AUDIENCES"},
		{Name: "REQUIRE_3P_TOKEN", Usual: "true", Lacks: "tokens must be for an audience of TOKEN_AUDIENCES"},
		{Name: "AUDIENCE", Lacks: "set TOKEN_AUDIENCES"},
		{Name: "AUTO_RELOAD_PLUGIN_CERTS", Usual: "true", Lacks: "files of a plugged-in authority are followed always"},
		{Name: "CITADEL_ENABLE_JITTER_FOR_ROOT_CERT_ROTATOR", Usual: "true", Lacks: "one replica rotates a root, so there is nothing to spread"},
		{Name: "USE_CACERTS_FOR_SELF_SIGNED_CA", Lacks: "a self-signed root has a Secret of its own"},
		{Name: "ISTIO_MULTIROOT_MESH", Lacks: "all roots that the mesh settings name are trusted always"},
		{Name: "ENABLE_CLUSTER_TRUST_BUNDLE_API", Lacks: "roots are written to ConfigMaps"},
		{Name: "METRICS_LOCALHOST_ACCESS_ONLY", Lacks: "it is for agents; set --monitoringAddr=127.0.0.1:15014 here"},
		{Name: "METRIC_ROTATION_INTERVAL", Usual: "0s", Lacks: "it is about metrics of Istio's Envoy"},
		{Name: "METRIC_GRACEFUL_DELETION_INTERVAL", Usual: "5m0s", Lacks: "it is about metrics of Istio's Envoy"},
		{Name: "PILOT_ENVOY_FILTER_STATS", Lacks: "there is no metric about single patches; Problems name patches without effect"},
		{Name: "GCP_METADATA", Lacks: "the control plane asks no cloud"},
		{Name: "CLOUD_PLATFORM", Lacks: "the control plane asks no cloud; agents do"},
		{Name: "ISTIO_BOOTSTRAP", Lacks: "it is for agents"},
	}
}

// IstioVariables returns the page of the reference about the environment variables, in Markdown.
func IstioVariables() string {
	var out strings.Builder
	out.WriteString(`# Environment variables of the control plane

` + "`pilot-discovery discovery`" + ` takes the environment variables of Istio's control plane, of all its versions. This page says which of them act. A
variable without effect is no error: the log names it at the start, with the reason, unless the value is the usual one or disables a feature. It
also names variables that begin with ` + "`PILOT_` or `CITADEL_`" + ` and that are not in this table.

This page is generated from the program by ` + "`make docs`" + `.

| Variable | Effect |
|---|---|
`)
	for _, v := range allVariables() {
		out.WriteString("| `" + v.Name + "` | " + v.Effect() + " |\n")
	}
	return out.String()
}
