package config

import (
	"strings"

	"github.com/pilotmesh/pilot/internal/config/variables"
)

// istioFlag is a flag of Istio's agent, of any of its versions. Exactly one text is set: its effect (does), or the reason why it has none.
type istioFlag struct {
	name        string
	does, lacks string
	boolean     bool // it needs no value
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
	{name: "templateFile", does: "template of the bootstrap, in the language of Go's text/template; methods cannot be called, fields can"},
	{name: "outlierLogPath", does: "file with ejections of endpoints"},
	{name: "profiling", lacks: "the agent serves no profiles", boolean: true},
	{name: "log_output_level", does: "the agent's log levels; its parts have other names than Istio's scopes, which are taken for them"},
	{name: "log_as_json", does: "JSON lines", boolean: true},
	{name: "log_caller", lacks: "messages name the object, not a line of code"},
	{name: "log_stacktrace_level", lacks: "the log has no stack traces"},
	{name: "log_target", lacks: "the agent logs to its standard error; redirect that"},
	{name: "log_rotate", lacks: "the agent logs to its standard error, and rotates no files"},
	{name: "log_rotate_max_age", lacks: "the agent logs to its standard error, and rotates no files"},
	{name: "log_rotate_max_backups", lacks: "the agent logs to its standard error, and rotates no files"},
	{name: "log_rotate_max_size", lacks: "the agent logs to its standard error, and rotates no files"},
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

// istioVariables are the environment variables of the proxy command of Istio's agent.
var istioVariables = []variables.Variable{
	{Name: "POD_NAME", Does: "name of the workload"},
	{Name: "POD_NAMESPACE", Does: "namespace of the workload"},
	{Name: "INSTANCE_IP", Does: "IP addresses of the workload"},
	{Name: "SERVICE_ACCOUNT", Does: "service account of the workload"},
	{Name: "PROXY_CONFIG", Does: "ProxyConfig, as YAML"},
	{Name: "ISTIO_META_CERT_SIGNER", Does: "signer that the certificate authority shall use"},
	{Name: "ISTIO_META_DNS_CAPTURE", Does: "answer the workload's DNS queries"},
	{Name: "ISTIO_META_ENABLE_DNS_SERVER", Lacks: "set ISTIO_META_DNS_CAPTURE=true, which starts the DNS server at gateways, too"},
	{Name: "ISTIO_META_*", Does: "node metadata, as text"},
	{Name: "ISTIO_METAJSON_*", Does: "node metadata, as JSON"},
	{Name: "DNS_PROXY_ADDR", Does: "where DNS queries arrive"},
	{Name: "DNS_FORWARD_PARALLEL", Does: "ask all name servers at once"},
	{Name: "DNS_FORWARD_TIMEOUT", Does: "how long name servers may take"},
	{Name: "CA_ADDR", Does: "address of the certificate authority"},
	{Name: "CA_PROVIDER", Does: "the value must be Citadel"},
	{Name: "CA_ROOT_CA", Does: "roots that vouch for the certificate authority"},
	{Name: "CA_CRL", Does: "lists of revoked certificates"},
	{Name: "CA_HEADER_*", Lacks: "requests to the certificate authority have no headers of their own"},
	{Name: "XDS_ROOT_CA", Does: "roots that vouch for the control plane"},
	{Name: "XDS_AUTH_PROVIDER", Lacks: "tokens are read from a file (--tokenFile)"},
	{Name: "XDS_HEADER_*", Lacks: "requests to the control plane have no headers of their own"},
	{Name: "ISTIOD_SAN", Does: "name in the certificate of the control plane"},
	{Name: "PILOT_CERT_PROVIDER", Usual: "istiod", Lacks: "the roots that vouch for the control plane are set with XDS_ROOT_CA"},
	{Name: "TRUST_DOMAIN", Does: "hint for the certificate authority"},
	{Name: "JWT_POLICY", Does: "which token is shown"},
	{Name: "CREDENTIAL_FETCHER_TYPE", Usual: "JWT", Lacks: "tokens are read from a file (--tokenFile)"},
	{Name: "CREDENTIAL_IDENTITY_PROVIDER", Usual: "GoogleComputeEngine", Lacks: "tokens are read from a file (--tokenFile)"},
	{Name: "PROV_CERT", Does: "folder of a certificate that is shown to the authority"},
	{Name: "OUTPUT_CERTS", Does: "folder to which certificates are written"},
	{Name: "FILE_MOUNTED_CERTS", Does: "certificates come from mounted files only"},
	{Name: "FILE_DEBOUNCE_DURATION", Usual: "100ms", Lacks: "files are read when they have not changed for a moment"},
	{Name: "SECRET_TTL", Does: "how long a certificate shall be valid"},
	{Name: "SECRET_GRACE_PERIOD_RATIO", Does: "part of the validity that is left at the renewal"},
	{Name: "SECRET_GRACE_PERIOD_RATIO_JITTER", Usual: "0.01", Lacks: "renewals vary by a hundredth of the validity"},
	{Name: "SECRET_ROTATION_CHECK_INTERVAL", Usual: "5m0s", Lacks: "a certificate is renewed at its time, not at a check"},
	{Name: "STALED_CONNECTION_RECYCLE_RUN_INTERVAL", Usual: "5m0s", Lacks: "connections of Envoy end with Envoy"},
	{Name: "WORKLOAD_RSA_KEY_SIZE", Does: "size of RSA keys"},
	{Name: "ECC_SIGNATURE_ALGORITHM", Does: "the value must be ECDSA"},
	{Name: "ECC_CURVE", Does: "curve of ECDSA keys"},
	{Name: "PKCS8_KEY", Does: "format of keys"},
	{Name: "COMPLIANCE_POLICY", Does: "restrictions of TLS"},
	{Name: "WORKLOAD_IDENTITY_SOCKET_FILE", Does: "socket of another SDS server"},
	{Name: "PROXY_CONFIG_XDS_AGENT", Does: "trust bundles of the control plane"},
	{Name: "BOOTSTRAP_XDS_AGENT", Does: "patches of the bootstrap, from EnvoyFilters"},
	{Name: "PROXY_XDS_VIA_AGENT", Usual: "true", Lacks: "Envoy always reaches the control plane through the agent"},
	{Name: "PROXY_XDS_DEBUG_VIA_AGENT", Does: "debug pages of the control plane"},
	{Name: "PROXY_XDS_DEBUG_VIA_AGENT_PORT", Does: "port of these pages"},
	{Name: "ISTIO_DELTA_XDS", Does: "delta or State-of-the-World xDS"},
	{Name: "ISTIO_GPRC_MAXRECVMSGSIZE", Lacks: "the size of messages of the control plane is not limited"},
	{Name: "PEER_METADATA_DISCOVERY", Lacks: "the extension is not part of standard Envoy"},
	{Name: "ISTIO_AGENT_ENABLE_WASM_REMOTE_LOAD_CONVERSION", Usual: "true", Lacks: "the agent always fetches modules of Wasm filters"},
	{Name: "WASM_INSECURE_REGISTRIES", Does: "servers of modules that need no TLS"},
	{Name: "WASM_MODULE_EXPIRY", Does: "when a module that nothing needs is removed"},
	{Name: "WASM_PURGE_INTERVAL", Does: "how often that is checked"},
	{Name: "WASM_HTTP_REQUEST_TIMEOUT", Does: "how long a server of modules may be silent"},
	{Name: "WASM_HTTP_REQUEST_MAX_RETRIES", Does: "further attempts to fetch a module"},
	{Name: "ENVOY_STATUS_PORT", Does: "port of Envoy's listener for probes"},
	{Name: "ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL", Does: "PROXY protocol there"},
	{Name: "ENVOY_PROMETHEUS_PORT", Does: "port of Envoy's listener for scrapes"},
	{Name: "ENVOY_SECURE_METRICS_PORT", Does: "the same over mutual TLS"},
	{Name: "ENVOY_SECURE_MERGED_METRICS_PORT", Does: "merged metrics over mutual TLS"},
	{Name: "METRICS_LOCALHOST_ACCESS_ONLY", Does: "metrics in plain text over loopback only"},
	{Name: "ISTIO_PROMETHEUS_ANNOTATIONS", Does: "where the application serves metrics"},
	{Name: "ISTIO_KUBE_APP_PROBERS", Does: "probes of the application"},
	{Name: "ISTIO_ENABLE_HTTP2_PROBING", Does: "HTTP/2 in probes by HTTPS"},
	{Name: "ENABLE_PROBE_KEEPALIVE_CONNECTIONS", Does: "keep the connections of probes"},
	{Name: "REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION", Does: "probe the application at localhost"},
	{Name: "MINIMUM_DRAIN_DURATION", Does: "shortest time to drain"},
	{Name: "EXIT_ON_ZERO_ACTIVE_CONNECTIONS", Does: "drain until no connection is open"},
	{Name: "TERMINATION_DRAIN_DURATION_SECONDS", Usual: "5", Lacks: "set terminationDrainDuration in ProxyConfig, or --terminationDrainDuration"},
	{Name: "ENVOY_SKIP_DEPRECATED_LOGS", Usual: "true", Lacks: "Envoy warns of deprecated fields, unless the agent itself sets one"},
	{Name: "GRPC_XDS_BOOTSTRAP", Does: "bootstrap for gRPC libraries; there is none unless a file is named"},
	{Name: "DISABLE_ENVOY", Does: "run without Envoy"},
	{Name: "ISTIO_BOOTSTRAP", Does: "template of the bootstrap"},
	{Name: "ISTIO_BOOTSTRAP_OVERRIDE", Does: "YAML that is merged over the bootstrap"},
	{Name: "ISTIO_CPU_LIMIT", Does: "number of Envoy's worker threads, unless concurrency is set"},
	{Name: "CLOUD_PLATFORM", Does: "which cloud is asked for region and zone"},
	{Name: "GCP_METADATA", Lacks: "the agent asks the cloud (CLOUD_PLATFORM)"},
}

// isIstioVariable reports whether a name has a row of its own in the table.
func isIstioVariable(name string) bool {
	for _, v := range istioVariables {
		if v.Name == name {
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
		row(v.Name, v.Does, v.Lacks)
	}
	out.WriteString(`
## Node metadata

The control plane treats the metadata of a node alike, whichever agent sends it. An agent sends ` + "`ISTIO_META_KEY`" + ` of its environment as ` + "`KEY`" + `.
Switches are texts: "true" or "1".

| Key | Effect |
|---|---|
`)
	for _, v := range nodeMetadata {
		row(v.Name, v.Does, v.Lacks)
	}
	return out.String()
}
