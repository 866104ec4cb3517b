// Package config owns the settings of pilot-discovery: the flags and the few environment variables that are their defaults. It
// validates them and explains how to correct them.
//
// Settings are a value that is read once at start, validated as a whole, and passed on field by field. Flags have Istio's names
// and defaults. Flags of Istio that have no effect yet are accepted; their help says so, and setting one of them logs a warning.
//
// Goroutines: none. The package only checks whether files exist, and has no other side effects.
package config

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/mesh"
)

// forever is an unlimited duration.
const forever = time.Duration(math.MaxInt64)

// Settings are the settings of pilot-discovery.
type Settings struct {
	// ConfigDir is the directory of configuration documents. If it is empty, the Kubernetes cluster has the configuration.
	ConfigDir string
	// CredentialsDir is the folder of Secrets that credentialName refers to: NAMESPACE/NAME/{tls.crt,tls.key,ca.crt,ca.crl}; empty for
	// none.
	CredentialsDir string
	// Kubeconfig is the kubeconfig file with the address of the API server. If it is empty, the control plane runs as a pod of the cluster.
	Kubeconfig string
	// KubernetesQPS and KubernetesBurst limit the requests to the API server per second.
	KubernetesQPS   float32
	KubernetesBurst int
	// Revision is the revision of the control plane. It reads objects of its revision and objects without one.
	Revision string
	// LeaderElection is true if the replicas elect the one that writes to the cluster; otherwise each of them writes. PodName is the
	// name of this replica. Validate sets LeaderElection from the environment.
	LeaderElection bool
	leaderElection string
	PodName        string
	// RemoteNamespace is the namespace of the Secrets that describe remote clusters; empty for the namespace of the control plane.
	// RemoteClusterTimeout is how long remote clusters that do not answer delay readiness. Validate sets it from the environment.
	RemoteNamespace      string
	RemoteClusterTimeout time.Duration
	remoteTimeout        string
	// Allocate is true if addresses are allocated to ServiceEntries, from AllocateIPv4 and AllocateIPv6.
	Allocate                   bool
	AllocateIPv4, AllocateIPv6 netip.Prefix
	// Register is true if proxies that name a WorkloadGroup are registered as its workloads. RegistrationGrace is how long the entry
	// of a proxy stays after it has disconnected.
	Register          bool
	RegistrationGrace time.Duration
	// Untaint is true if the taint of nodes is removed once a CNI plugin captures traffic there. PluginNamespace is the namespace of its agents; empty for
	// the namespace of the control plane.
	Untaint         bool
	PluginNamespace string
	// ScopeGateways is true if Gateways are for gateways of their own namespace only.
	ScopeGateways bool
	// QUIC is true if gateways take HTTP/3 where their Service has a UDP port.
	QUIC bool
	// StripHostPort is true if gateways remove the port from the Host of requests.
	StripHostPort bool
	// FilterGatewayClusters is true if gateways have the clusters of the services only to which they route.
	FilterGatewayClusters bool
	// Sessions is true if requests of services with sessions reach the endpoint of their session.
	Sessions bool
	// DualStack is true if proxies with addresses of both IP versions use both.
	DualStack bool
	// Unready says whether proxies know endpoints that are not ready.
	Unready mesh.UnreadyEndpoints
	// SidecarRemoteAddress is true if sidecars add the address of the application to x-forwarded-for.
	SidecarRemoteAddress bool
	// ServicesBesideIngress is true if the ports of services count beside the ingress listeners of a Sidecar.
	ServicesBesideIngress bool
	// HTTP10 is true if all proxies accept HTTP/1.0.
	HTTP10 bool
	// TraceSampling is the percentage of new requests that are traced if the mesh sets none.
	TraceSampling float64
	// IgnoreRefused is true if refused access policies without a known good version are ignored; otherwise such a policy denies everything
	// that it is about. PolicyWait is how long a file must be unchanged before a policy is withdrawn that is no longer in it.
	IgnoreRefused bool
	PolicyWait    time.Duration
	// RegistriesConfig is the file with the registries outside Kubernetes; empty for none. ConsulURL is one more of them, of Consul, and
	// ConsulInterval the longest wait of one of its queries. Registries are the kinds of registries that are switched on.
	RegistriesConfig string
	ConsulURL        string
	ConsulInterval   time.Duration
	Registries       []string
	// OpenConfiguration is true if clients that have not shown who they are may read configuration.
	OpenConfiguration bool
	// KeyRefresh is the time between two fetches of a key set for tokens. BlockedKeyServers are addresses that no key set is fetched
	// from, besides loopback addresses and their like. InsecureKeyServers is true to accept any certificate of key servers.
	KeyRefresh         time.Duration
	BlockedKeyServers  []netip.Prefix
	InsecureKeyServers bool
	// KeyFetcher is the component that fetches key sets that have an address.
	KeyFetcher mesh.KeyFetcher
	// SharedMeshConfig is the name of a ConfigMap with mesh settings that the settings of the ConfigMap "istio" override; empty
	// for none.
	SharedMeshConfig string
	// MeshConfig is the file with the mesh configuration. The default file need not exist.
	MeshConfig string
	// NetworksConfig is the file with the mesh networks. The default file need not exist.
	NetworksConfig string
	// Domain is the DNS suffix of the cluster's services.
	Domain string
	// Namespace is the namespace of the control plane.
	Namespace string
	// ClusterID is the name of the cluster in which the control plane runs.
	ClusterID string

	// HTTPAddr and MonitoringAddr are the addresses of the HTTP pages; GRPCAddr is the address of xDS without TLS, and SecureGRPCAddr
	// the address of xDS and the certificate authority over TLS. An empty address disables the server.
	HTTPAddr, MonitoringAddr, GRPCAddr, SecureGRPCAddr string
	// HTTPSAddr is the address of the webhooks.
	HTTPSAddr string
	Injection Injection
	// CA are the settings of the certificate authority, and of authentication over TLS.
	CA CA
	// Profile enables /debug/pprof.
	Profile bool
	// DebugNamespaces are the namespaces whose workloads may read all debug pages through their agents.
	DebugNamespaces []string
	// DebugRemote allows clients on other hosts to read /debug.
	DebugRemote bool

	// KeepaliveInterval and KeepaliveTimeout are the interval and timeout of gRPC keepalive pings.
	KeepaliveInterval, KeepaliveTimeout time.Duration
	// KeepaliveMaxServerConnectionAge is the age at which the server asks a proxy to reconnect.
	KeepaliveMaxServerConnectionAge time.Duration
	// ShutdownDuration limits the time from the signal to stop until the process exits.
	ShutdownDuration time.Duration

	// MinCommitInterval is the shortest time between two commits.
	MinCommitInterval time.Duration
	// Workers is the number of goroutines that compute configuration; 0 means one per processor.
	Workers int
	// MaxRecvMsgSize is the largest message that a proxy may send, in bytes after decompression.
	MaxRecvMsgSize int
	// WriteTimeout is the time after which a connection is closed if its proxy does not read.
	WriteTimeout time.Duration

	// LogLevels are the lowest levels that are logged, in the form of package logging.
	LogLevels string
	// LogJSON selects JSON lines.
	LogJSON bool

	flags flags
	// environment has the errors in environment variables.
	environment []error
}

// Defaults that other code refers to.
const (
	defaultMeshConfig = "./etc/istio/config/mesh"
	defaultNetworks   = "./etc/istio/config/meshNetworks"
	defaultNamespace  = "istio-system"
	defaultCluster    = "Kubernetes"
	kubernetes        = "Kubernetes"
	consul            = "Consul"
	mcpServers        = "MCP"
	defaultRevision   = "default"

	defaultRemoteTimeout = "30s"
)

// Injection are the settings of the webhooks.
type Injection struct {
	// Off is true if the webhooks are not served.
	Off bool
	// Native says whether proxies are native sidecars: true, false, or auto.
	Native string
	// OpenShift makes the user of a proxy follow from its namespace.
	OpenShift bool
	// Webhooks is the name of the configuration of the injecting webhook, without suffixes for revision and namespace; Checks is the name of the
	// validating one.
	Webhooks, Checks string
}

// Kubernetes reports whether a Kubernetes cluster is read. With a directory of configuration, it is read only if a kubeconfig file
// is set, so that a directory suffices on a laptop.
func (s *Settings) Kubernetes() bool { return s.ConfigDir == "" || s.Kubeconfig != "" }

// New returns the settings before flags are parsed. lookup has the signature of os.LookupEnv.
func New(lookup func(name string) (string, bool)) *Settings {
	env := func(name, otherwise string) string {
		if v, ok := lookup(name); ok && v != "" {
			return v
		}
		return otherwise
	}
	s := &Settings{
		MeshConfig: defaultMeshConfig, NetworksConfig: defaultNetworks, Domain: "cluster.local",
		KubernetesQPS: 80, KubernetesBurst: 160, Revision: env("REVISION", defaultRevision), SharedMeshConfig: env("SHARED_MESH_CONFIG", ""),
		remoteTimeout:  env("PILOT_REMOTE_CLUSTER_TIMEOUT", defaultRemoteTimeout),
		leaderElection: env("ENABLE_LEADER_ELECTION", "true"), PodName: env("POD_NAME", ""),
		Namespace: env("POD_NAMESPACE", defaultNamespace), ClusterID: env("CLUSTER_ID", defaultCluster),
		HTTPAddr: ":8080", MonitoringAddr: ":15014", GRPCAddr: ":15010", SecureGRPCAddr: ":15012", HTTPSAddr: ":15017", Profile: true,
		Injection: Injection{
			Off: env("INJECT_ENABLED", "true") == "false", Native: env("ENABLE_NATIVE_SIDECARS", "auto"), OpenShift: env("PLATFORM", "") == "openshift",
			Webhooks: env("INJECTION_WEBHOOK_CONFIG_NAME", "istio-sidecar-injector"), Checks: env("VALIDATION_WEBHOOK_CONFIG_NAME", "istio-istio-system"),
		},
		KeepaliveInterval: 30 * time.Second, KeepaliveTimeout: 10 * time.Second, KeepaliveMaxServerConnectionAge: forever,
		ConsulInterval: 5 * time.Minute, OpenConfiguration: env("ENABLE_XDS_API_GENERATOR_AUTH", "true") == "false",
		ShutdownDuration: 10 * time.Second,
		MaxRecvMsgSize:   8 << 20, WriteTimeout: 10 * time.Second,
		Allocate:              env("PILOT_ENABLE_IP_AUTOALLOCATE", "true") != "false",
		Untaint:               env("PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS", "false") == "true",
		ScopeGateways:         env("PILOT_SCOPE_GATEWAY_TO_NAMESPACE", "false") == "true",
		QUIC:                  env("PILOT_ENABLE_QUIC_LISTENERS", "false") == "true",
		FilterGatewayClusters: env("PILOT_FILTER_GATEWAY_CLUSTER_CONFIG", "false") == "true",
		StripHostPort:         env("ISTIO_GATEWAY_STRIP_HOST_PORT", "false") == "true",
		Sessions:              env("PILOT_ENABLE_PERSISTENT_SESSION_FILTER", "false") == "true",
		DualStack:             env("ISTIO_DUAL_STACK", "false") == "true",
		SidecarRemoteAddress:  env("PILOT_SIDECAR_USE_REMOTE_ADDRESS", "false") == "true",
		ServicesBesideIngress: env("PILOT_ALLOW_SIDECAR_SERVICE_INBOUND_LISTENER_MERGE", "false") == "true",
		HTTP10:                env("PILOT_HTTP10", "false") == "true",
		Register:              env("PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION", "true") != "false",
	}
	for name := range strings.SplitSeq(env("DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES", ""), ",") {
		if name = strings.TrimSpace(name); name != "" {
			s.DebugNamespaces = append(s.DebugNamespaces, name)
		}
	}
	s.CA.environment(env, lookup)
	s.AllocateIPv4 = s.prefix(env, "PILOT_IP_AUTOALLOCATE_IPV4_PREFIX", "240.240.0.0/16")
	s.AllocateIPv6 = s.prefix(env, "PILOT_IP_AUTOALLOCATE_IPV6_PREFIX", "2001:2::/48")
	s.unready(env)
	s.keyServers(env)
	s.sampling(env)
	s.refusedPolicies(env)
	grace, err := time.ParseDuration(env("PILOT_WORKLOAD_ENTRY_GRACE_PERIOD", "10s"))
	if s.RegistrationGrace = grace; err != nil || grace < 0 {
		s.environment = append(s.environment, fmt.Errorf("PILOT_WORKLOAD_ENTRY_GRACE_PERIOD: %q is not a duration such as 10s", env("PILOT_WORKLOAD_ENTRY_GRACE_PERIOD", "")))
	}
	return s
}

// prefix reads a range of addresses.
func (s *Settings) prefix(env func(name, otherwise string) string, name, otherwise string) netip.Prefix {
	text, usual := env(name, otherwise), netip.MustParsePrefix(otherwise)
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().BitLen() != usual.Addr().BitLen() || p.Addr().BitLen()-p.Bits() < minRangeBits {
		s.environment = append(s.environment, fmt.Errorf("%s: %q is not a range of at least %d addresses like %s", name, text, 1<<minRangeBits, otherwise))
		return usual
	}
	return p.Masked()
}

// unready reads whether proxies know endpoints that are not ready.
func (s *Settings) unready(env func(name, otherwise string) string) {
	switch {
	case env("PILOT_SEND_UNHEALTHY_ENDPOINTS", "false") == "true":
		s.Unready = mesh.UnreadyAlways
	case env("PILOT_AUTO_SEND_UNHEALTHY_ENDPOINTS", "true") == "false":
		s.Unready = mesh.UnreadyNever
	}
}

// refusedPolicies reads the settings for access policies that are refused or lost.
func (s *Settings) refusedPolicies(env func(name, otherwise string) string) {
	const refused, wait = "PILOT_REFUSED_POLICIES", "PILOT_POLICY_REMOVAL_DELAY"
	switch value := env(refused, "deny"); value {
	case "deny", "ignore":
		s.IgnoreRefused = value == "ignore"
	default:
		s.environment = append(s.environment, fmt.Errorf("%s: %q is neither deny nor ignore", refused, value))
	}
	d, err := time.ParseDuration(env(wait, "5s"))
	if s.PolicyWait = d; err != nil || d < minPolicyWait || d > maxPolicyWait {
		s.environment = append(s.environment, fmt.Errorf("%s: %q is not a duration from %v to %v such as 5s", wait, env(wait, ""), minPolicyWait, maxPolicyWait))
	}
}

// The limits of how long a policy stays that is no longer in its file.
const (
	minPolicyWait = 100 * time.Millisecond
	maxPolicyWait = 10 * time.Minute
)

// minRangeBits is the least number of bits of an address that a range of allocated addresses leaves open.
const minRangeBits = 8

// sampling reads the percentage of requests that are traced if the mesh sets none.
func (s *Settings) sampling(env func(name, otherwise string) string) {
	const name = "PILOT_TRACE_SAMPLING"
	percent, err := strconv.ParseFloat(env(name, "1"), 64)
	if s.TraceSampling = percent; err != nil || !(percent >= 0 && percent <= 100) {
		s.environment = append(s.environment, fmt.Errorf("%s: %q is not a percentage from 0 to 100 such as 1.0", name, env(name, "")))
	}
}

// keyServers reads the settings for fetching key sets.
func (s *Settings) keyServers(env func(name, otherwise string) string) {
	const interval, blocked = "PILOT_JWT_PUB_KEY_REFRESH_INTERVAL", "BLOCKED_CIDRS_IN_JWKS_URIS"
	switch value := env("PILOT_JWT_ENABLE_REMOTE_JWKS", "false"); value {
	case "false", "istiod":
	case "true", "hybrid":
		s.KeyFetcher = mesh.ProxyMayFetch
	case "envoy":
		s.KeyFetcher = mesh.ProxyFetches
	default:
		s.environment = append(s.environment, fmt.Errorf("PILOT_JWT_ENABLE_REMOTE_JWKS: %q is none of false, istiod, true, hybrid and envoy", value))
	}
	s.InsecureKeyServers = env("JWKS_RESOLVER_INSECURE_SKIP_VERIFY", "false") == "true"
	refresh, err := time.ParseDuration(env(interval, "20m"))
	if s.KeyRefresh = refresh; err != nil || refresh < time.Second {
		s.environment = append(s.environment, fmt.Errorf("%s: %q is not a duration of at least 1s such as 20m", interval, env(interval, "")))
	}
	for text := range strings.SplitSeq(env(blocked, ""), ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		p, err := netip.ParsePrefix(text)
		if err != nil {
			s.environment = append(s.environment, fmt.Errorf("%s: %q is not a range of addresses such as 10.0.0.0/8", blocked, text))
			continue
		}
		s.BlockedKeyServers = append(s.BlockedKeyServers, p.Masked())
	}
}
