package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pilotmesh/pilot/internal/agent/disk"
	"github.com/pilotmesh/pilot/internal/config/variables"
)

// flags are command line values that Load combines with other sources.
type flags struct {
	set                     *pflag.FlagSet
	meshConfig              string
	ip                      string
	healthPort, metricsPort string
	tokenFile               string
	stsPort                 string
	// envoyLevel and envoyComponents are the log levels of Envoy as they are written.
	envoyLevel, envoyComponents string
	template                    string
	explicitTLS                 bool // a source has set how to authenticate to the control plane
}

// Flags adds the command line flags to fs.
func (s *Settings) Flags(fs *pflag.FlagSet) {
	s.flags.set = fs
	fs.StringVar(&s.Domain, "domain", "", "DNS suffix of the workload's namespace (default NAMESPACE.svc.cluster.local)")
	fs.StringVar(&s.Namespace, "namespace", s.Namespace, "namespace of the workload (default $POD_NAMESPACE, $ISTIO_META_NAMESPACE, or default)")
	fs.StringVar(&s.flags.ip, "ip", s.flags.ip, "IP addresses of the workload, separated by commas (default $INSTANCE_IP, $ISTIO_SVC_IP, or the addresses of the host)")
	fs.StringVar(&s.ID, "id", "", "NAME.NAMESPACE in the node id (default: name and namespace of the pod)")
	fs.StringVar(&s.flags.meshConfig, "meshConfig", "./"+meshFile, "file with the mesh settings; only its defaultConfig is used")
	fs.String("discoveryAddress", "", "host:port of the control plane; its port 15012 is called over TLS")
	fs.String("controlPlaneAuthPolicy", "", "MUTUAL_TLS or NONE: call the control plane over TLS or not, whatever the port is")
	fs.StringVar(&s.flags.tokenFile, "tokenFile", "", "file with the token that shows the control plane whose proxy this is (default "+tokenFile+")")
	fs.BoolVar(&s.SotW, "sotw", false, "use State-of-the-World xDS instead of delta xDS (also ISTIO_DELTA_XDS=false)")
	fs.String("serviceCluster", "", "service name of Envoy in traces (default derived from the labels)")

	fs.String("proxyAdminPort", "15000", "port of Envoy's admin interface, on loopback")
	fs.String("statusPort", "15020", "port of the agent's status server; 0 for none")
	fs.StringVar(&s.flags.healthPort, "envoyStatusPort", s.flags.healthPort, "port of Envoy's listener for readiness probes; 0 for none")
	fs.StringVar(&s.flags.metricsPort, "envoyPrometheusPort", s.flags.metricsPort, "port of Envoy's listener for scrapes; 0 for none")

	fs.StringVar(&s.flags.stsPort, "stsPort", "0", "port of the agent's token exchange, on loopback; 0 for none")

	fs.StringVar(&s.Envoy, "envoy", "", "the envoy binary (default $ENVOY, ProxyConfig's binaryPath, or the one on PATH)")
	fs.String("binaryPath", "", "the same as --envoy, which takes precedence")
	fs.String("configPath", DefaultConfigPath, "directory for the bootstrap; if it is not the default, also for the socket for certificates")
	fs.StringVar(&s.flags.template, "templateFile", "", "file with a bootstrap of Envoy, or a template of one, used instead of the built-in one")
	fs.String("customConfigFile", "", "the same as --templateFile, which takes precedence")
	fs.String("zipkinAddress", "", "host:port of a Zipkin collector (tracing.zipkin.address)")
	fs.String("datadogAgentAddress", "", "host:port of a Datadog agent (tracing.datadog.address)")
	fs.String("statsdUdpAddress", "", "host:port of a statsd server to which Envoy sends its statistics")
	fs.StringVar(&s.flags.envoyLevel, "proxyLogLevel", s.flags.envoyLevel, "Envoy's log level: trace, debug, info, warning, error, critical or off; levels of components may follow: info,upstream:debug")
	fs.StringVar(&s.flags.envoyComponents, "proxyComponentLogLevel", s.flags.envoyComponents, "log levels of components of Envoy, such as upstream:debug,config:trace")
	fs.StringVar(&s.OutlierLog, "outlierLogPath", "", "file in which Envoy logs ejections of endpoints")
	fs.Int("concurrency", 0, "number of Envoy's worker threads; 0 to use the CPU limit")

	fs.String("drainDuration", "45s", "how long Envoy keeps the connections of removed listeners")
	fs.String("terminationDrainDuration", "5s", "how long running requests may take after SIGTERM")
	fs.BoolVar(&s.HotRestart, "hotRestart", s.HotRestart, "replace Envoy by a hot restart when its bootstrap changes (also HOT_RESTART=true)")
	fs.DurationVar(&s.ParentShutdown, "parentShutdownDuration", time.Minute, "after a hot restart, how long the old Envoy may take to complete its requests")
	fs.IntVar(&s.Restarts, "restarts", s.Restarts, "how many times in a row Envoy is restarted after a crash")

	fs.StringVar(&s.LogLevels, "log_output_level", "info", "the agent's log level: debug, info, warn, error or none, for all parts, or as PART:LEVEL,... for some; /debug/logging of --statusPort lists the parts, and changes levels at run time")
	fs.BoolVar(&s.LogJSON, "log_as_json", false, "log JSON lines")
	for _, f := range istioFlags {
		if f.lacks == "" || fs.Lookup(f.name) != nil {
			continue
		}
		fs.String(f.name, "", "accepted for compatibility, without effect: "+f.lacks)
		added := fs.Lookup(f.name)
		added.Hidden = true
		if f.boolean { // all other flags need a value: they take the next word
			added.NoOptDefVal = "true"
		}
	}
}

// warnAboutFlags adds warnings about flags that were set and have no effect.
func (s *Settings) warnAboutFlags() {
	for _, of := range istioFlags {
		f := s.flags.set.Lookup(of.name)
		if of.lacks != "" && f.Changed && !slices.Contains(variables.Disabled(), f.Value.String()) {
			s.warn("--%s=%s has no effect: %s", of.name, f.Value, of.lacks)
		}
	}
}

// WithoutUnknown returns the arguments of the proxy command without flags that it does not have, and remembers a remark about each. Istio's agent
// ignores such flags, so command lines may have flags of any of its versions. The word behind such a flag counts as its value, unless the
// word is another flag or the role of the proxy.
func (s *Settings) WithoutUnknown(args []string) []string {
	var known []string
	for n := 0; n < len(args); n++ {
		arg := args[n]
		if arg == "--" {
			return append(known, args[n:]...)
		}
		if len(arg) < 2 || arg[0] != '-' {
			known = append(known, arg)
			continue
		}
		name, _, joined := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		f := s.flags.set.Lookup(name)
		switch next := n + 1; {
		case arg == "-h" || name == "help":
			known = append(known, arg)
		case f != nil && strings.HasPrefix(arg, "--"):
			known = append(known, arg)
			if !joined && f.NoOptDefVal == "" && next < len(args) {
				known, n = append(known, args[next]), next
			}
		default:
			if !joined && next < len(args) && !strings.HasPrefix(args[next], "-") && !slices.Contains([]string{Sidecar, router, waypoint}, args[next]) {
				n = next
			}
			s.unknown = append(s.unknown, fmt.Sprintf("%s has no effect: there is no such flag; is it mistyped? (pilot-agent proxy --help lists them)", arg))
		}
	}
	return known
}

// unusedFields are the fields of ProxyConfig that the agent should use and does not use yet, with the reason. All other fields
// are used in the bootstrap, by the control plane (which gets them in the node metadata), or by the injector.
var unusedFields = map[protoreflect.Name]string{
	"availability_zone":       "the locality of the workload follows from its labels",
	"discovery_refresh_delay": "the control plane sends changes at once",
	"stat_name_length":        "Envoy limits the length of names no longer",
	"connection_settings":     "the control plane does not act on it yet",
	"extra_stat_tags":         "the filter that adds such tags is not part of standard Envoy",
	"private_key_provider":    "keys are kept in memory; providers of keys are not supported yet",
	"sds":                     "where certificates come from follows from the files and sockets that there are",
}

// checkRole checks the role and the remaining settings of the agent.
func (s *Settings) checkRole(errs *problems) {
	if s.Role != Sidecar && s.Role != router {
		errs.add("proxy "+s.Role, "there is no such role here; write `proxy %s` or `proxy %s`", Sidecar, router)
	}
	if s.Restarts < 0 {
		errs.add("--restarts", "%d is negative; 0 means that the first crash ends the agent", s.Restarts)
	}
	if drain := s.Proxy.GetDrainDuration().AsDuration(); s.HotRestart && s.ParentShutdown <= drain {
		errs.add("--parentShutdownDuration", "%v is not longer than the drain duration, %v, which the old Envoy needs to ask its clients to connect again", s.ParentShutdown, drain)
	}
	if c := s.Proxy.GetConcurrency().GetValue(); c < 0 || c > maxConcurrency {
		errs.add("--concurrency", "%d is not between 0 (what the CPU limit allows) and %d", c, maxConcurrency)
	}
	s.splitLogLevel(errs)
	s.warnAboutFlags()
	s.warnings = append(s.warnings, s.unknown...)
}

// envoyLevels are the log levels of Envoy.
var envoyLevels = []string{"trace", "debug", "info", "warning", "warn", "error", "critical", "off"}

// splitLogLevel takes the levels of components out of --proxyLogLevel, which may have both: info,misc:error,upstream:debug. They are put before
// the levels in --proxyComponentLogLevel.
func (s *Settings) splitLogLevel(errs *problems) {
	const remedy = "write trace, debug, info, warning, error, critical or off"
	level, components := "", strings.Split(s.flags.envoyComponents, ",")
	for part := range strings.SplitSeq(s.flags.envoyLevel, ",") {
		component, of, scoped := strings.Cut(part, ":")
		switch {
		case scoped && (component == "" || !slices.Contains(envoyLevels, of)):
			errs.add("--proxyLogLevel", "%q is not a component of Envoy with a log level, such as upstream:debug", part)
		case scoped:
			components = slices.DeleteFunc(components, func(c string) bool { return c == "" || strings.HasPrefix(c, component+":") })
			components = append(components, part)
		case level != "":
			errs.add("--proxyLogLevel", "%q and %q are both levels for all components; write one", level, part)
		default:
			level = part
		}
	}
	if level = cmp.Or(level, defaultEnvoyLevel); !slices.Contains(envoyLevels, level) {
		errs.add("--proxyLogLevel", "%q is not a log level of Envoy; %s", level, remedy)
	}
	s.EnvoyLogLevel, s.EnvoyComponentLogLevel = level, strings.Join(components, ",")
}

// defaultEnvoyLevel is Envoy's log level if none is set.
const defaultEnvoyLevel = "warning"

// maxConcurrency is an upper limit for worker threads, beyond any practical use.
const maxConcurrency = 1 << 10

// loadOverride reads the YAML file that is merged over the bootstrap.
func (s *Settings) loadOverride(path string, errs *problems) {
	if path == "" {
		return
	}
	text, err := disk.Read(path)
	if err != nil {
		errs.add("ISTIO_BOOTSTRAP_OVERRIDE", "%w; set a file that this user can read, or unset the variable", err)
	}
	s.Override = string(text)
}
