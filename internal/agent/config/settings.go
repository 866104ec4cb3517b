// Package config owns the settings of pilot-agent: its flags, its environment, the files that describe the pod, and the
// ProxyConfig that results from all of them. It validates them and explains how to correct them.
//
// Settings are a value that is read once at start, validated as a whole, and passed on field by field. Sources in ascending
// precedence: defaults, defaultConfig of the mesh, PROXY_CONFIG, the pod's annotation proxy.istio.io/config, other environment
// variables, flags. Names and defaults are Istio's. A setting of Istio that has no effect yet is accepted with a
// warning; nothing is ignored silently.
//
// Goroutines: none. The package reads files, resolves the name of a statsd server, and gets the environment as an argument.
package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/agent/boot"
	"github.com/pilotmesh/pilot/internal/agent/disk"
	"github.com/pilotmesh/pilot/internal/agent/platform"
	"github.com/pilotmesh/pilot/internal/config/logging"
)

// Settings are the settings of pilot-agent.
type Settings struct {
	// Role is the role of the proxy, such as sidecar.
	Role string
	// Name, Namespace and ServiceAccount belong to the workload. ID replaces name and namespace in the node id if it is set.
	Name, Namespace, ServiceAccount, ID string
	// Domain is the suffix of the DNS names in the workload's namespace.
	Domain string
	// ClusterID is the name of the cluster in which the workload runs.
	ClusterID string
	// Addresses are the IP addresses of the workload.
	Addresses []string
	// Stats selects and shapes Envoy's statistics, and names their sinks. Tracer and AccessLogs receive spans and access logs.
	Stats      boot.Stats
	Tracer     boot.Tracer
	AccessLogs boot.Backend
	// Runtime overrides Envoy's runtime. MaxConnections limits the connections of all listeners; 0 for no limit.
	Runtime        map[string]string
	MaxConnections uint32
	// Labels and Annotations are the pod's, from the downward API files.
	Labels, Annotations map[string]string
	// Metadata is the node metadata that the environment sets.
	Metadata map[string]any

	// Proxy is the merged ProxyConfig.
	Proxy *meshv1alpha1.ProxyConfig
	// HealthPort and MetricsPort are the ports of Envoy's listeners for readiness probes and for metrics scrapes; 0 for none.
	HealthPort, MetricsPort uint32
	// SecureMetricsPort and SecureMergedMetricsPort are the ports at which metrics are served to clients with a certificate of the mesh; 0
	// for none. CompressMetrics compresses scrapes, and HealthProxyProtocol accepts PROXY protocol from probes.
	SecureMetricsPort, SecureMergedMetricsPort uint32
	CompressMetrics, HealthProxyProtocol       bool
	// Cloud is the cloud that is asked where the machine is; empty to detect it.
	Cloud platform.Cloud
	// CPULimit is the number of CPUs that the container may use; 0 to find out (ISTIO_CPU_LIMIT).
	CPULimit int
	// LocalMetrics serves metrics in plain text over loopback only (METRICS_LOCALHOST_ACCESS_ONLY).
	LocalMetrics bool
	// DebugPort is the port on loopback at which the agent serves the debug pages of the control plane; 0 for none.
	DebugPort uint16
	// SotW selects State-of-the-World xDS instead of delta xDS.
	SotW bool

	// Envoy is the path of the binary from the flag, EnvoyFromEnv that from the environment.
	Envoy, EnvoyFromEnv string
	// EnvoyLogLevel and EnvoyComponentLogLevel are Envoy's log levels.
	EnvoyLogLevel, EnvoyComponentLogLevel string
	// OutlierLog is the file in which Envoy logs ejections of endpoints.
	OutlierLog string
	// Template is a bootstrap or a template of one, used instead of the built-in one; empty for none. Override is YAML to be merged over
	// the bootstrap.
	Template, Override string
	// PatchedBootstrap makes the agent ask the control plane what EnvoyFilters add to the bootstrap (BOOTSTRAP_XDS_AGENT).
	PatchedBootstrap bool
	// NoEnvoy makes the agent run without Envoy. GRPCBootstrap is the file to which a bootstrap for gRPC libraries is written; empty for none.
	NoEnvoy       bool
	GRPCBootstrap string

	// IdentitySocket is the name of a socket in IdentityDir at which another program serves secrets. If it is empty, the agent
	// serves them.
	IdentitySocket string

	// TLS is true if the control plane is called over TLS.
	TLS bool
	// Certificates are the settings of the workload's certificates, and of the agent's authentication.
	Certificates Certificates
	// DNS are the settings of the DNS proxy.
	DNS DNS
	// Wasm are for fetching modules.
	Wasm Wasm
	// STS are the settings of the token exchange.
	STS STS
	// Application are the settings for requests to the application.
	Application Application

	// HotRestart makes a changed bootstrap replace Envoy by a hot restart. ParentShutdown is how long the old Envoy runs on.
	HotRestart     bool
	ParentShutdown time.Duration
	// Restarts is how many times in a row Envoy is restarted after a crash.
	Restarts int
	// ExitOnZeroConnections makes the agent wait until no connection is left before it stops Envoy, for at least MinDrain.
	ExitOnZeroConnections bool
	MinDrain              time.Duration

	// LogLevels are the lowest levels that are logged, in the form of package logging. LogJSON selects JSON lines.
	LogLevels string
	LogJSON   bool

	env      environment
	flags    flags
	dir      string // base directory of Istio's relative file names
	warnings []string
	unknown  []string // remarks about flags that the command does not have
	environ  []string // from which the settings were made
}

// The files that describe a pod.
const (
	meshFile        = "etc/istio/config/mesh"
	labelsFile      = "etc/istio/pod/labels"
	annotationsFile = "etc/istio/pod/annotations"
)

// IdentityDir is the directory of the socket from which Envoy gets certificates and keys.
const IdentityDir = "./var/run/secrets/workload-spiffe-uds"

// DefaultConfigPath is the default directory of the bootstrap.
const DefaultConfigPath = "./etc/istio/proxy"

// The roles of proxies: beside a workload, and as a gateway.
const (
	Sidecar = "sidecar"
	router  = "router"
	// waypoint is a role of Istio's agent that is refused here.
	waypoint = "waypoint"
)

// Environ returns the environment from which the settings were made, as NAME=value.
func (s *Settings) Environ() []string { return s.environ }

// New returns the settings before flags are parsed. environ has the form of os.Environ().
func New(environ []string) *Settings {
	env := readEnvironment(environ)
	s := &Settings{
		Role: Sidecar, env: env, dir: ".", environ: environ,
		Name: env.get("POD_NAME", ""), Namespace: env.get("POD_NAMESPACE", ""),
		EnvoyFromEnv: env.get("ENVOY", ""),
		Restarts:     10,
	}
	s.flags.envoyLevel, s.flags.envoyComponents = defaultEnvoyLevel, "misc:error"
	s.flags.ip = env.get("INSTANCE_IP", env.get("ISTIO_SVC_IP", ""))
	s.flags.healthPort = env.get("ENVOY_STATUS_PORT", "15021")
	s.flags.metricsPort = env.get("ENVOY_PROMETHEUS_PORT", "15090")
	return s
}

// Load reads the files, merges all sources and validates the result. The error names each problem and its remedy.
func (s *Settings) Load() error {
	var errs problems
	s.loadProxy(&errs)
	s.loadPod(&errs)
	s.loadStats(&errs)
	s.loadMetadata(&errs)
	s.loadSwitches(&errs)
	s.loadIdentity(&errs)
	s.checkRole(&errs)
	s.checkDiscovery(&errs)
	s.loadCertificates(&errs)
	s.loadBackends(&errs)
	s.loadBootstrap(&errs)
	s.loadDNS(&errs)
	s.loadSTS(&errs)
	s.loadWasm(&errs)
	s.loadApplication(&errs)
	if err := logging.Check(s.LogLevels); err != nil {
		errs.add("--log_output_level", "%w", err)
	}
	return errors.Join(errs...)
}

// problems collects validation errors.
type problems []error

func (m *problems) add(where, format string, args ...any) {
	*m = append(*m, fmt.Errorf("%s: %w", where, fmt.Errorf(format, args...)))
}

// loadPod reads the files that describe the pod. They need not exist.
func (s *Settings) loadPod(errs *problems) {
	for _, f := range []struct {
		name string
		into *map[string]string
	}{{labelsFile, &s.Labels}, {annotationsFile, &s.Annotations}} {
		path := filepath.Join(s.dir, f.name)
		text, err := disk.Read(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			*f.into, err = parseDownward(string(text))
		}
		if err != nil {
			errs.add(path, "%w", err)
		}
	}
}

// parseDownward parses lines of the form name="value", which the downward API of Kubernetes writes.
func parseDownward(text string) (map[string]string, error) {
	m := map[string]string{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, quoted, ok := strings.Cut(line, "=")
		value, err := strconv.Unquote(quoted)
		if !ok || err != nil {
			return nil, fmt.Errorf(`line %d is not name="value"`, n)
		}
		m[name] = value
	}
	return m, nil
}

// loadIdentity completes the identity of the workload.
func (s *Settings) loadIdentity(errs *problems) {
	if s.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			errs.add("POD_NAME", "it is not set, and the host name cannot be determined: %w", err)
		}
		s.Name = host
	}
	namespaceFrom := s.loadNamespace()
	for _, n := range []struct{ from, text string }{{"POD_NAME", s.Name}, {namespaceFrom, s.Namespace}, {"--id", s.ID}, {"--domain", s.Domain}} {
		if strings.ContainsAny(n.text, "~ \t\n") {
			errs.add(n.from, "%q contains a character that is not allowed here", n.text)
		}
	}
	if strings.Contains(s.Namespace, ".") {
		errs.add(namespaceFrom, "%q is not a namespace: it has a dot", s.Namespace)
	}
	if s.Domain == "" {
		s.Domain = s.Namespace + ".svc.cluster.local"
	}
	s.ServiceAccount = s.lookup("SERVICE_ACCOUNT")
	s.ClusterID = s.text("CLUSTER_ID", "Kubernetes")
	var err error
	if s.Addresses, err = addresses(s.flags.ip, hostAddresses); err != nil {
		errs.add("INSTANCE_IP", "%w", err)
	}
}

// loadNamespace completes the namespace of the workload, and returns the setting that it is from. The flag also replaces the
// namespace in the node metadata, because flags take precedence over the environment.
func (s *Settings) loadNamespace() (from string) {
	if s.flags.set.Changed("namespace") && s.Namespace != "" {
		delete(s.Metadata, metaNamespace)
		return "--namespace"
	}
	if s.Namespace = s.lookup("POD_NAMESPACE"); s.Namespace != "" {
		return "POD_NAMESPACE"
	}
	s.Namespace = s.text(metaNamespace, "default")
	return metaPrefix + metaNamespace
}

// text returns a text value of the metadata, or otherwise if there is none.
func (s *Settings) text(key, otherwise string) string {
	if v, ok := s.Metadata[key].(string); ok && v != "" {
		return v
	}
	return otherwise
}

// addresses returns the given addresses. If none is given, or if an interface has the first one, it adds the addresses of all interfaces, for
// further networks and for the other IP version. An address that no interface has belongs to another host that forwards traffic, or to
// loopback; it is returned alone.
func addresses(given string, host func() ([]string, error)) ([]string, error) {
	var list []string
	for text := range strings.SplitSeq(given, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if _, err := netip.ParseAddr(text); err != nil {
			return nil, fmt.Errorf("%q is not an IP address", text)
		}
		list = append(list, text)
	}
	all, err := host()
	switch {
	case len(list) == 0 && err != nil:
		return nil, fmt.Errorf("it is not set, and the addresses of the host cannot be read: %w", err)
	case len(list) == 0 && len(all) == 0:
		return nil, errors.New("it is not set, and the host has only loopback addresses; set it to the workload's address")
	case len(list) == 0 || slices.Contains(all, list[0]):
		for _, a := range all {
			if !slices.Contains(list, a) && len(list) < maxAddresses {
				list = append(list, a)
			}
		}
	}
	return list, nil
}

// maxAddresses bounds the addresses of the host, which may have an interface per container.
const maxAddresses = 64

// hostAddresses returns the addresses of all interfaces of this host that other hosts can reach.
func hostAddresses() (list []string, err error) {
	interfaces, err := net.Interfaces()
	for _, i := range interfaces {
		if i.Flags&net.FlagUp != 0 && i.Flags&net.FlagLoopback == 0 {
			list = append(list, global(i)...)
		}
	}
	return list, err
}

// global returns the addresses of an interface that other hosts can reach.
func global(i net.Interface) []string {
	var list []string
	assigned, err := i.Addrs()
	if err != nil {
		return nil
	}
	for _, a := range assigned {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
			list = append(list, p.Addr().String())
		}
	}
	return list
}

// IPv6Only reports whether the workload has no IPv4 address.
func (s *Settings) IPv6Only() bool {
	return !slices.ContainsFunc(s.Addresses, func(a string) bool {
		ip, err := netip.ParseAddr(a)
		return err == nil && ip.Unmap().Is4()
	})
}
