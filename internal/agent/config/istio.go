package config

import "strings"

// istioFlag is a flag of Istio's agent, of any of its versions. Exactly one of does and lacks is set: its effect, or the reason why it has none.
type istioFlag struct {
	name        string
	does, lacks string
	boolean     bool // it may stand without a value
}

// istioFlags are the flags of the proxy command of Istio's agent.
var istioFlags = []istioFlag{
	{name: "domain", does: "DNS suffix of the workload's namespace"},
	{name: "meshConfig", does: "file with the mesh settings"},
	{name: "stsPort", does: "port of the token exchange, with STS_TOKEN_ENDPOINT"},
	{name: "tokenManagerPlugin", lacks: "tokens are exchanged at the service that STS_TOKEN_ENDPOINT names"},
	{name: "serviceCluster", does: "service name of Envoy in traces"},
	{name: "proxyLogLevel", does: "Envoy's log level, and levels of components"},
	{name: "proxyComponentLogLevel", does: "log levels of components of Envoy"},
	{name: "concurrency", does: "number of Envoy's worker threads"},
	{name: "templateFile", does: "template of the bootstrap, in Go's text/template"},
	{name: "outlierLogPath", does: "file with ejections of endpoints"},
	{name: "profiling", lacks: "the agent serves no profiles", boolean: true},
	{name: "log_output_level", does: "the agent's log level; one for all scopes"},
	{name: "log_as_json", does: "JSON lines", boolean: true},
	{name: "log_caller", lacks: "messages name the object, not a line of code"},
	{name: "log_stacktrace_level", lacks: "the log has no stack traces"},
	{name: "log_target", lacks: "the agent logs to its standard error; redirect that"},
	{name: "log_rotate", lacks: "the agent logs to its standard error; whoever stores that rotates it"},
	{name: "log_rotate_max_age", lacks: "the agent logs to its standard error; whoever stores that rotates it"},
	{name: "log_rotate_max_backups", lacks: "the agent logs to its standard error; whoever stores that rotates it"},
	{name: "log_rotate_max_size", lacks: "the agent logs to its standard error; whoever stores that rotates it"},
	{name: "vklog", lacks: "the agent has no Kubernetes client whose messages it could log"},
	// Flags of former versions.
	{name: "ip", does: "IP addresses of the workload"},
	{name: "id", does: "NAME.NAMESPACE in the node id"},
	{name: "statusPort", does: "port of the status server"},
	{name: "configPath", does: "directory for the bootstrap"},
	{name: "binaryPath", does: "the envoy binary"},
	{name: "customConfigFile", does: "template of the bootstrap"},
	{name: "discoveryAddress", does: "host:port of the control plane"},
	{name: "controlPlaneAuthPolicy", does: "whether the control plane is called over TLS"},
	{name: "proxyAdminPort", does: "port of Envoy's admin interface"},
	{name: "drainDuration", does: "how long Envoy keeps the connections of removed listeners"},
	{name: "parentShutdownDuration", does: "how long the old Envoy may take, with --hotRestart"},
	{name: "zipkinAddress", does: "collector of spans"},
	{name: "datadogAgentAddress", does: "collector of spans"},
	{name: "statsdUdpAddress", does: "server for statistics"},
	{name: "serviceregistry", lacks: "addresses and names come from the environment, whatever the platform is"},
	{name: "trust-domain", lacks: "the certificate authority says what the trust domain is; TRUST_DOMAIN is a hint for it"},
	{name: "applicationPorts", lacks: "the proxy is ready when it has its configuration, whatever ports that has"},
	{name: "connectTimeout", lacks: "the agent connects to the control plane with time limits of its own"},
	{name: "disableInternalTelemetry", lacks: "Envoy sends no telemetry to a mixer", boolean: true},
	{name: "controlPlaneBootstrap", lacks: "the bootstrap is for a proxy; name another one with ISTIO_BOOTSTRAP", boolean: true},
	{name: "bootstrapv2", lacks: "there is one kind of bootstrap", boolean: true},
	{name: "availabilityZone", lacks: "the locality follows from labels of the workload, or from the cloud"},
	{name: "kubeAppProberConfig", lacks: "probes are described in ISTIO_KUBE_APP_PROBERS"},
	{name: "dnsRefreshRate", lacks: "the addresses of the control plane are looked up with each connection"},
	{name: "mixerIdentity", lacks: "there is no mixer"},
	{name: "pilotIdentity", lacks: "the name in the certificate of the control plane is set with ISTIOD_SAN"},
	{name: "caCertPath", lacks: "the roots that vouch for the control plane are set with XDS_ROOT_CA and CA_ROOT_CA"},
	{name: "lightstepAddress", lacks: "set tracing in ProxyConfig, or a provider in the mesh settings"},
	{name: "lightstepAccessToken", lacks: "set tracing in ProxyConfig, or a provider in the mesh settings"},
	{name: "lightstepSecure", lacks: "set tracing in ProxyConfig, or a provider in the mesh settings", boolean: true},
	{name: "lightstepCacertPath", lacks: "set tracing in ProxyConfig, or a provider in the mesh settings"},
	{name: "stackdriverTracingEnabled", lacks: "set tracing in ProxyConfig, or a provider in the mesh settings", boolean: true},
}

// istioVariable is an environment variable of Istio's agent, of any of its versions. A name that ends with a star means all names with that prefix.
type istioVariable struct {
	name        string
	does, lacks string
	usual       string // the value without a remark; if it is empty, values that disable a feature have none
}

// is reports whether the variable has a name.
func (v istioVariable) is(name string) bool {
	prefix, many := strings.CutSuffix(v.name, "*")
	return name == v.name || many && strings.HasPrefix(name, prefix)
}

// needsRemark reports whether the variable is set to something that has no effect.
func (v istioVariable) needsRemark(value string) bool {
	if v.usual != "" {
		return value != "" && value != v.usual
	}
	for _, disabled := range disabledValues {
		if value == disabled {
			return false
		}
	}
	return true
}

// istioVariables are the environment variables of the proxy command of Istio's agent.
var istioVariables = []istioVariable{
	{name: "POD_NAME", does: "name of the workload"},
	{name: "POD_NAMESPACE", does: "namespace of the workload"},
	{name: "INSTANCE_IP", does: "IP addresses of the workload"},
	{name: "SERVICE_ACCOUNT", does: "service account of the workload"},
	{name: "PROXY_CONFIG", does: "ProxyConfig, as YAML"},
	{name: "ISTIO_META_CERT_SIGNER", does: "signer that the certificate authority shall use"},
	{name: "ISTIO_META_DNS_CAPTURE", does: "answer the workload's DNS queries"},
	{name: "ISTIO_META_ENABLE_DNS_SERVER", lacks: "set ISTIO_META_DNS_CAPTURE=true, which starts the DNS server at gateways, too"},
	{name: "ISTIO_META_*", does: "node metadata, as text"},
	{name: "ISTIO_METAJSON_*", does: "node metadata, as JSON"},
	{name: "DNS_PROXY_ADDR", does: "where DNS queries arrive"},
	{name: "DNS_FORWARD_PARALLEL", does: "ask all name servers at once"},
	{name: "DNS_FORWARD_TIMEOUT", does: "how long name servers may take"},
	{name: "CA_ADDR", does: "address of the certificate authority"},
	{name: "CA_PROVIDER", does: "the value must be Citadel"},
	{name: "CA_ROOT_CA", does: "roots that vouch for the certificate authority"},
	{name: "CA_CRL", does: "lists of revoked certificates"},
	{name: "CA_HEADER_*", lacks: "requests to the certificate authority have no headers of their own"},
	{name: "XDS_ROOT_CA", does: "roots that vouch for the control plane"},
	{name: "XDS_AUTH_PROVIDER", lacks: "tokens are read from a file (--tokenFile)"},
	{name: "XDS_HEADER_*", lacks: "requests to the control plane have no headers of their own"},
	{name: "ISTIOD_SAN", does: "name in the certificate of the control plane"},
	{name: "PILOT_CERT_PROVIDER", usual: "istiod", lacks: "the roots that vouch for the control plane are set with XDS_ROOT_CA"},
	{name: "TRUST_DOMAIN", does: "hint for the certificate authority"},
	{name: "JWT_POLICY", does: "which token is shown"},
	{name: "CREDENTIAL_FETCHER_TYPE", usual: "JWT", lacks: "tokens are read from a file (--tokenFile)"},
	{name: "CREDENTIAL_IDENTITY_PROVIDER", usual: "GoogleComputeEngine", lacks: "tokens are read from a file (--tokenFile)"},
	{name: "PROV_CERT", does: "folder of a certificate that is shown to the authority"},
	{name: "OUTPUT_CERTS", does: "folder to which certificates are written"},
	{name: "FILE_MOUNTED_CERTS", does: "certificates come from mounted files only"},
	{name: "FILE_DEBOUNCE_DURATION", usual: "100ms", lacks: "files are read when they have not changed for a moment"},
	{name: "SECRET_TTL", does: "how long a certificate shall be valid"},
	{name: "SECRET_GRACE_PERIOD_RATIO", does: "part of the validity that is left at the renewal"},
	{name: "SECRET_GRACE_PERIOD_RATIO_JITTER", usual: "0.01", lacks: "renewals vary by a hundredth of the validity"},
	{name: "SECRET_ROTATION_CHECK_INTERVAL", usual: "5m0s", lacks: "a certificate is renewed at its time, not at a check"},
	{name: "STALED_CONNECTION_RECYCLE_RUN_INTERVAL", usual: "5m0s", lacks: "connections of Envoy end with Envoy"},
	{name: "WORKLOAD_RSA_KEY_SIZE", does: "size of RSA keys"},
	{name: "ECC_SIGNATURE_ALGORITHM", does: "the value must be ECDSA"},
	{name: "ECC_CURVE", does: "curve of ECDSA keys"},
	{name: "PKCS8_KEY", does: "format of keys"},
	{name: "COMPLIANCE_POLICY", does: "restrictions of TLS"},
	{name: "WORKLOAD_IDENTITY_SOCKET_FILE", does: "socket of another SDS server"},
	{name: "PROXY_CONFIG_XDS_AGENT", does: "trust bundles of the control plane"},
	{name: "BOOTSTRAP_XDS_AGENT", lacks: "the bootstrap follows from the settings of the agent"},
	{name: "PROXY_XDS_VIA_AGENT", usual: "true", lacks: "Envoy always reaches the control plane through the agent"},
	{name: "PROXY_XDS_DEBUG_VIA_AGENT", does: "debug pages of the control plane"},
	{name: "PROXY_XDS_DEBUG_VIA_AGENT_PORT", does: "port of these pages"},
	{name: "ISTIO_DELTA_XDS", does: "delta or State-of-the-World xDS"},
	{name: "ISTIO_GPRC_MAXRECVMSGSIZE", lacks: "the size of messages of the control plane is not limited"},
	{name: "PEER_METADATA_DISCOVERY", lacks: "the extension is not part of standard Envoy"},
	{name: "ISTIO_AGENT_ENABLE_WASM_REMOTE_LOAD_CONVERSION", usual: "true", lacks: "the agent always fetches modules of Wasm filters"},
	{name: "WASM_INSECURE_REGISTRIES", does: "servers of modules that need no TLS"},
	{name: "WASM_MODULE_EXPIRY", does: "when a module that nothing needs is removed"},
	{name: "WASM_PURGE_INTERVAL", does: "how often that is checked"},
	{name: "WASM_HTTP_REQUEST_TIMEOUT", does: "how long a server of modules may be silent"},
	{name: "WASM_HTTP_REQUEST_MAX_RETRIES", does: "further attempts to fetch a module"},
	{name: "ENVOY_STATUS_PORT", does: "port of Envoy's listener for probes"},
	{name: "ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL", does: "PROXY protocol there"},
	{name: "ENVOY_PROMETHEUS_PORT", does: "port of Envoy's listener for scrapes"},
	{name: "ENVOY_SECURE_METRICS_PORT", does: "the same over mutual TLS"},
	{name: "ENVOY_SECURE_MERGED_METRICS_PORT", does: "merged metrics over mutual TLS"},
	{name: "METRICS_LOCALHOST_ACCESS_ONLY", does: "metrics in plain text over loopback only"},
	{name: "ISTIO_PROMETHEUS_ANNOTATIONS", does: "where the application serves metrics"},
	{name: "ISTIO_KUBE_APP_PROBERS", does: "probes of the application"},
	{name: "ISTIO_ENABLE_HTTP2_PROBING", does: "HTTP/2 in probes by HTTPS"},
	{name: "ENABLE_PROBE_KEEPALIVE_CONNECTIONS", does: "keep the connections of probes"},
	{name: "REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION", does: "probe the application at localhost"},
	{name: "MINIMUM_DRAIN_DURATION", does: "shortest time to drain"},
	{name: "EXIT_ON_ZERO_ACTIVE_CONNECTIONS", does: "drain until no connection is open"},
	{name: "TERMINATION_DRAIN_DURATION_SECONDS", usual: "5", lacks: "set terminationDrainDuration in ProxyConfig, or --terminationDrainDuration"},
	{name: "ENVOY_SKIP_DEPRECATED_LOGS", usual: "true", lacks: "Envoy warns of deprecated fields, unless the agent itself sets one"},
	{name: "GRPC_XDS_BOOTSTRAP", does: "bootstrap for gRPC libraries; there is none unless a file is named"},
	{name: "DISABLE_ENVOY", does: "run without Envoy"},
	{name: "ISTIO_BOOTSTRAP", does: "template of the bootstrap"},
	{name: "ISTIO_BOOTSTRAP_OVERRIDE", does: "YAML that is merged over the bootstrap"},
	{name: "ISTIO_CPU_LIMIT", does: "number of Envoy's worker threads, unless concurrency is set"},
	{name: "CLOUD_PLATFORM", does: "which cloud is asked for region and zone"},
	{name: "GCP_METADATA", lacks: "the agent asks the cloud (CLOUD_PLATFORM)"},
}

// isIstioVariable reports whether a name has a row of its own in the table.
func isIstioVariable(name string) bool {
	for _, v := range istioVariables {
		if v.name == name {
			return true
		}
	}
	return false
}

// IstioSettings returns the page of the reference about the flags and variables of Istio's agent, in Markdown.
func IstioSettings() string {
	var out strings.Builder
	out.WriteString(`# Settings of Istio's agent

` + "`pilot-agent proxy`" + ` takes the flags and environment variables of Istio's agent, of all its versions. This page says which of them act. A setting
without effect is no error: the agent logs a remark, unless the value is the usual one or disables a feature. The same holds for flags that neither
agent has. Variables can also be set in proxyMetadata of ProxyConfig.

This page is generated from the program by ` + "`make docs`" + `.

## Flags

| Flag | Effect |
|---|---|
`)
	row := func(name, does, lacks string) {
		if lacks != "" {
			does = "none: " + lacks
		}
		out.WriteString("| `" + name + "` | " + does + " |\n")
	}
	for _, f := range istioFlags {
		row("--"+f.name, f.does, f.lacks)
	}
	out.WriteString("\n## Environment variables\n\n| Variable | Effect |\n|---|---|\n")
	for _, v := range istioVariables {
		row(v.name, v.does, v.lacks)
	}
	return out.String()
}
