// Package config owns the settings of pilot-agent: its flags, its environment, the files a pod is described by, and the
// ProxyConfig that all of them make up; what is legal, and what to tell somebody who wrote something else.
//
// Settings are a value: read once at start, judged as a whole, handed down by field. What is said nearer to the proxy
// wins: defaults, then the mesh's defaultConfig, PROXY_CONFIG, the pod's annotation proxy.istio.io/config, environment,
// flags. Names and defaults are Istio's. What Istio has and this program does not use yet is accepted and named in a
// remark when somebody sets it; nothing is ignored in silence.
//
// The package reads files and is otherwise pure: the environment is handed in. It starts no goroutines and must not
// import anything that serves or runs processes.
package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
)

// Settings are what pilot-agent is told at start.
type Settings struct {
	// Role is what the proxy does.
	Role string
	// Name, Namespace and ServiceAccount are the workload's. ID stands for the first two in the node's identifier.
	Name, Namespace, ServiceAccount, ID string
	// Domain is where DNS names of the workload's namespace end.
	Domain string
	// ClusterID names the cluster the workload is in.
	ClusterID string
	// Addresses are the workload's.
	Addresses []string
	// Labels and Annotations are the pod's, from the files it is described by.
	Labels, Annotations map[string]string
	// Metadata is what the environment adds to the node's.
	Metadata map[string]any

	// Proxy is the merged ProxyConfig.
	Proxy *meshv1alpha1.ProxyConfig
	// HealthPort and MetricsPort are those of Envoy's listeners for probes and for scrapes; 0 for none.
	HealthPort, MetricsPort uint32
	// SotW asks for State-of-the-World xDS instead of delta.
	SotW bool

	// Envoy is the binary, EnvoyFromEnv the same from the environment.
	Envoy, EnvoyFromEnv string
	// EnvoyLogLevel and EnvoyComponentLogLevel are Envoy's own.
	EnvoyLogLevel, EnvoyComponentLogLevel string
	// OutlierLog is Envoy's file for ejections of endpoints.
	OutlierLog string
	// Override is YAML to be laid over the bootstrap.
	Override string

	// IdentitySocket is the file, in IdentityDir, of a socket at which somebody else serves secrets; empty: the agent does.
	IdentitySocket string

	// Restarts is how many crashes of Envoy in a row are made good.
	Restarts int
	// ExitOnZeroConnections waits at the end until no connection is left, at least MinDrain.
	ExitOnZeroConnections bool
	MinDrain              time.Duration

	// LogLevel is the least level that is logged, LogJSON logs JSON lines.
	LogLevel slog.Level
	LogJSON  bool

	env     environment
	flags   flags
	dir     string // what relative names of Istio's files begin at
	remarks []string
}

// The files a pod is described by.
const (
	meshFile        = "etc/istio/config/mesh"
	labelsFile      = "etc/istio/pod/labels"
	annotationsFile = "etc/istio/pod/annotations"
)

// IdentityDir is where the socket is at which Envoy gets certificates and keys.
const IdentityDir = "./var/run/secrets/workload-spiffe-uds"

// DefaultConfigPath is where the bootstrap is written to if nobody says otherwise.
const DefaultConfigPath = "./etc/istio/proxy"

// Sidecar is the only role so far.
const Sidecar = "sidecar"

// New returns the settings before any flag is read. environ is os.Environ(), or what stands for it.
func New(environ []string) *Settings {
	env := readEnvironment(environ)
	s := &Settings{
		Role: Sidecar, env: env, dir: ".",
		Name: env.get("POD_NAME", ""), Namespace: env.get("POD_NAMESPACE", "default"), ServiceAccount: env.get("SERVICE_ACCOUNT", ""),
		EnvoyFromEnv:  env.get("ENVOY", ""),
		EnvoyLogLevel: "warning", EnvoyComponentLogLevel: "misc:error",
		Restarts: 10,
	}
	s.flags.ip = env.get("INSTANCE_IP", "")
	s.flags.healthPort = env.get("ENVOY_STATUS_PORT", "15021")
	s.flags.metricsPort = env.get("ENVOY_PROMETHEUS_PORT", "15090")
	return s
}

// Load reads the files, merges everything and judges it. The error names each thing that is wrong and what to do.
func (s *Settings) Load() error {
	var errs mistakes
	s.loadProxy(&errs)
	s.loadPod(&errs)
	s.loadMetadata(&errs)
	s.loadSwitches(&errs)
	s.loadIdentity(&errs)
	s.checkRole(&errs)
	s.checkDiscovery(&errs)
	level, err := parseLevel(s.flags.logLevel)
	if err != nil {
		errs.add("--log_output_level", "%v", err)
	}
	s.LogLevel = level
	return errors.Join(errs...)
}

// mistakes collects what is wrong.
type mistakes []error

func (m *mistakes) add(where, format string, args ...any) {
	*m = append(*m, fmt.Errorf("%s: %w", where, fmt.Errorf(format, args...)))
}

// loadPod reads the files the pod is described by. They need not be there.
func (s *Settings) loadPod(errs *mistakes) {
	for _, f := range []struct {
		name string
		into *map[string]string
	}{{labelsFile, &s.Labels}, {annotationsFile, &s.Annotations}} {
		path := filepath.Join(s.dir, f.name)
		text, err := os.ReadFile(path)
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

// parseDownward reads lines of name="value", as Kubernetes writes them.
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

// loadIdentity completes who the workload is.
func (s *Settings) loadIdentity(errs *mistakes) {
	if s.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			errs.add("POD_NAME", "it is not set, and the host has no name either: %w", err)
		}
		s.Name = host
	}
	for _, n := range []struct{ from, text string }{{"POD_NAME", s.Name}, {"POD_NAMESPACE", s.Namespace}, {"--id", s.ID}, {"--domain", s.Domain}} {
		if strings.ContainsAny(n.text, "~ \t\n") {
			errs.add(n.from, "%q has a character that names in a mesh do not have", n.text)
		}
	}
	if strings.Contains(s.Namespace, ".") {
		errs.add("POD_NAMESPACE", "%q is not a namespace: it has a dot", s.Namespace)
	}
	if s.Domain == "" {
		s.Domain = s.Namespace + ".svc.cluster.local"
	}
	s.ClusterID = s.text("CLUSTER_ID", "Kubernetes")
	var err error
	if s.Addresses, err = addresses(s.flags.ip); err != nil {
		errs.add("INSTANCE_IP", "%w", err)
	}
}

// text is a key of the metadata.
func (s *Settings) text(key, otherwise string) string {
	if v, ok := s.Metadata[key].(string); ok && v != "" {
		return v
	}
	return otherwise
}

// addresses are those given; the first one's network interface may have more, such as the pod's address of the other
// family. With none given, they are those of the first interface that is not loopback.
func addresses(given string) ([]string, error) {
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
	interfaces, err := net.Interfaces()
	if err != nil {
		interfaces = nil // what was given suffices, or it is said below
	}
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		own := global(i)
		switch {
		case len(list) == 0:
			list = own
		case slices.Contains(own, list[0]):
			list = append(list, slices.DeleteFunc(own, func(a string) bool { return slices.Contains(list, a) })...)
			return list, nil
		}
	}
	if len(list) == 0 {
		return nil, errors.New("it is not set, and the host has no address but loopback; set it to the workload's address")
	}
	return list, nil
}

// global are the addresses of an interface that others can reach.
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

// IPv6Only says that the workload has no IPv4 address.
func (s *Settings) IPv6Only() bool {
	return !slices.ContainsFunc(s.Addresses, func(a string) bool {
		ip, err := netip.ParseAddr(a)
		return err == nil && ip.Unmap().Is4()
	})
}
