package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/agent/platform"
	"github.com/pilotmesh/pilot/internal/config/variables"
)

// environment maps the names of environment variables to their values.
type environment map[string]string

func readEnvironment(environ []string) environment {
	env := environment{}
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok {
			env[name] = value
		}
	}
	return env
}

func (e environment) get(name, otherwise string) string {
	if v := e[name]; v != "" {
		return v
	}
	return otherwise
}

// Prefixes of environment variables that become node metadata, as text or as JSON.
const (
	metaPrefix     = "ISTIO_META_"
	metaJSONPrefix = "ISTIO_METAJSON_"
)

// metaNamespace is the key of the workload's namespace in the node metadata.
const metaNamespace = "NAMESPACE"

// metaGroup is the key of the WorkloadGroup in which the proxy asks to be registered.
const metaGroup = "AUTO_REGISTER_GROUP"

// metaSigner is the key of the signer that the certificate authority shall use.
const metaSigner = "CERT_SIGNER"

// jsonKeys are the names of JSON variables whose object becomes the value of one key. The objects of all other JSON variables
// are merged into the metadata; the name of the variable has no meaning.
var jsonKeys = []string{"LABELS", "ANNOTATIONS"}

// loadMetadata collects node metadata. ProxyConfig.proxyMetadata counts as environment with lower precedence.
func (s *Settings) loadMetadata(errs *problems) {
	s.Metadata = map[string]any{}
	var unread []string
	env := environment{}
	maps.Copy(env, s.Proxy.GetProxyMetadata())
	maps.Copy(env, s.env)
	for _, name := range slices.Sorted(maps.Keys(env)) {
		key, ok := strings.CutPrefix(name, metaPrefix)
		if !ok || key == "" {
			continue
		}
		s.Metadata[key] = env[name]
		switch i := slices.IndexFunc(nodeMetadata, func(v variables.Variable) bool { return v.Name == key }); {
		case env[name] == "" || isIstioVariable(name):
		case i < 0:
			unread = append(unread, name)
		case nodeMetadata[i].Lacks != "" && nodeMetadata[i].NeedsRemark(env[name]):
			s.warn("%s has no effect: %s", name, nodeMetadata[i].Lacks)
		}
	}
	if len(unread) > 0 {
		s.warn("%s: this metadata is sent to the control plane, but has no effect yet", strings.Join(unread, ", "))
	}
	if text, ok := s.Metadata["IDLE_TIMEOUT"].(string); ok {
		if d, err := time.ParseDuration(text); err != nil || d <= 0 {
			errs.add("ISTIO_META_IDLE_TIMEOUT", "%q is not a duration such as 1h", text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		key, ok := strings.CutPrefix(name, metaJSONPrefix)
		if !ok {
			continue
		}
		var members map[string]any
		if err := json.Unmarshal([]byte(env[name]), &members); err != nil {
			errs.add(name, "%q is not a JSON object", env[name])
			continue
		}
		if slices.Contains(jsonKeys, key) {
			s.Metadata[key] = members
			continue
		}
		maps.Copy(s.Metadata, members)
	}
}

// loadSwitches reads the variables that are settings of the agent.
func (s *Settings) loadSwitches(errs *problems) {
	env := s.lookup
	boolean := func(name string, otherwise bool) bool { return s.boolean(name, otherwise, errs) }
	if !s.flags.set.Changed("sotw") {
		s.SotW = !boolean("ISTIO_DELTA_XDS", true)
	}
	if !s.flags.set.Changed("hotRestart") {
		s.HotRestart = boolean("HOT_RESTART", false)
	}
	s.ExitOnZeroConnections = boolean("EXIT_ON_ZERO_ACTIVE_CONNECTIONS", false)
	s.MinDrain = 5 * time.Second
	if text := env("MINIMUM_DRAIN_DURATION"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			errs.add("MINIMUM_DRAIN_DURATION", "%q is not a duration such as 5s", text)
		}
		s.MinDrain = d
	}
	s.IdentitySocket = env("WORKLOAD_IDENTITY_SOCKET_FILE")
	if strings.ContainsRune(s.IdentitySocket, '/') {
		errs.add("WORKLOAD_IDENTITY_SOCKET_FILE", "%q is a path; write only the file name, of a file in %s", s.IdentitySocket, IdentityDir)
	}
	s.HealthPort = port("ENVOY_STATUS_PORT (--envoyStatusPort)", s.flags.healthPort, errs)
	s.MetricsPort = port("ENVOY_PROMETHEUS_PORT (--envoyPrometheusPort)", s.flags.metricsPort, errs)
	if boolean("PROXY_XDS_DEBUG_VIA_AGENT", true) {
		s.DebugPort = uint16(port("PROXY_XDS_DEBUG_VIA_AGENT_PORT", cmp.Or(env("PROXY_XDS_DEBUG_VIA_AGENT_PORT"), "15004"), errs))
	}
	s.loadCloud(errs)
	if text := env("ISTIO_CPU_LIMIT"); text != "" {
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			errs.add("ISTIO_CPU_LIMIT", "%q is not a number of CPUs", text)
		}
		s.CPULimit = int(n)
	}
	s.LocalMetrics = boolean("METRICS_LOCALHOST_ACCESS_ONLY", false)
	s.warnAboutVariables()
	s.loadOverride(s.overridePath(), errs)
}

// loadCloud reads the cloud to be asked where the machine is. In Kubernetes no cloud is asked, because the control plane knows the node.
func (s *Settings) loadCloud(errs *problems) {
	const name = "CLOUD_PLATFORM"
	switch text := platform.Cloud(s.lookup(name)); text {
	case platform.Amazon, platform.Google, platform.Azure, platform.None:
		s.Cloud = text
	case "":
		if s.lookup("KUBERNETES_SERVICE_HOST") != "" {
			s.Cloud = platform.None
		}
	default:
		errs.add(name, "%q is none of aws, gcp, azure and none", string(text))
	}
}

// overridePath is the file that is merged over the bootstrap; empty for none.
func (s *Settings) overridePath() string { return s.lookup("ISTIO_BOOTSTRAP_OVERRIDE") }

// warnAboutVariables adds warnings about variables of Istio's agent that were set and have no effect.
func (s *Settings) warnAboutVariables() {
	env := environment{}
	maps.Copy(env, s.Proxy.GetProxyMetadata())
	maps.Copy(env, s.env)
	for _, v := range istioVariables {
		if v.Lacks == "" {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(env)) {
			if v.Is(name) && v.NeedsRemark(env[name]) {
				s.warn("%s has no effect: %s", name, v.Lacks)
			}
		}
	}
}

// port parses a port. An empty text means 0, which disables the port.
func port(from, text string, errs *problems) uint32 {
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		errs.add(from, "%q is not a port; write a number up to 65535, or 0 for none", text)
	}
	return uint32(n)
}

func (s *Settings) warn(format string, args ...any) {
	s.warnings = append(s.warnings, fmt.Sprintf(format, args...))
}

// Warnings returns the warnings to be logged at start.
func (s *Settings) Warnings() []string { return s.warnings }
