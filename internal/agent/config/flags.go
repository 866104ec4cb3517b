package config

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// flags are command line values that Load combines with other sources.
type flags struct {
	set                     *pflag.FlagSet
	meshConfig, logLevel    string
	ip                      string
	healthPort, metricsPort string
	tokenFile               string
	stsPort, stsPlugin      string
	template                string
	explicitTLS             bool // some source has set how to authenticate to the control plane
}

// Flags adds the command line flags to fs.
func (s *Settings) Flags(fs *pflag.FlagSet) {
	s.flags.set = fs
	fs.StringVar(&s.Domain, "domain", "", "DNS suffix of the workload's namespace (default NAMESPACE.svc.cluster.local)")
	fs.StringVar(&s.Namespace, "namespace", s.Namespace, "namespace of the workload (default $POD_NAMESPACE, $ISTIO_META_NAMESPACE, or default)")
	fs.StringVar(&s.flags.ip, "ip", s.flags.ip, "IP addresses of the workload, separated by commas (default $INSTANCE_IP, $ISTIO_SVC_IP, or those of the host)")
	fs.StringVar(&s.ID, "id", "", "NAME.NAMESPACE in the node id (default those of the pod)")
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
	fs.StringVar(&s.flags.stsPlugin, "tokenManagerPlugin", "", "accepted for compatibility: tokens are exchanged at $STS_TOKEN_ENDPOINT")

	fs.StringVar(&s.Envoy, "envoy", "", "the envoy binary (default $ENVOY, ProxyConfig's binaryPath, or the one on PATH)")
	fs.String("binaryPath", "", "the same as --envoy, which takes precedence")
	fs.String("configPath", DefaultConfigPath, "directory for the bootstrap; if it is not the default, also for the socket for certificates")
	fs.StringVar(&s.flags.template, "templateFile", "", "file with a bootstrap of Envoy, or a template of one, used instead of the built-in one")
	fs.String("customConfigFile", "", "the same as --templateFile, which takes precedence")
	fs.String("zipkinAddress", "", "host:port of a Zipkin collector (tracing.zipkin.address)")
	fs.String("datadogAgentAddress", "", "host:port of a Datadog agent (tracing.datadog.address)")
	fs.String("statsdUdpAddress", "", "host:port of a statsd server to which Envoy sends its statistics")
	fs.StringVar(&s.EnvoyLogLevel, "proxyLogLevel", s.EnvoyLogLevel, "Envoy's log level: trace, debug, info, warning, error, critical or off")
	fs.StringVar(&s.EnvoyComponentLogLevel, "proxyComponentLogLevel", s.EnvoyComponentLogLevel, "log levels of components of Envoy, such as upstream:debug,config:trace")
	fs.StringVar(&s.OutlierLog, "outlierLogPath", "", "file in which Envoy logs ejections of endpoints")
	fs.Int("concurrency", 0, "number of Envoy's worker threads; 0 to use the CPU limit")

	fs.String("drainDuration", "45s", "how long Envoy keeps the connections of removed listeners")
	fs.String("terminationDrainDuration", "5s", "how long running requests may take after SIGTERM")
	fs.BoolVar(&s.HotRestart, "hotRestart", s.HotRestart, "replace Envoy by a hot restart when its bootstrap changes (also HOT_RESTART=true)")
	fs.DurationVar(&s.ParentShutdown, "parentShutdownDuration", time.Minute, "after a hot restart, how long the old Envoy may take to complete its requests")
	fs.IntVar(&s.Restarts, "restarts", s.Restarts, "how many times in a row Envoy is restarted after a crash")

	fs.StringVar(&s.flags.logLevel, "log_output_level", "info", "the agent's log level: debug, info, warn, error or none")
	fs.BoolVar(&s.LogJSON, "log_as_json", false, "log JSON lines")
	for _, name := range unsupportedFlags {
		fs.String(name, "", "accepted for compatibility, without effect")
		added := fs.Lookup(name)
		added.Hidden = true
		added.NoOptDefVal = "true" // some of them are boolean flags
	}
}

// unsupportedFlags are flags of present and former Istio agents that have no effect here.
var unsupportedFlags = []string{
	"profiling", "serviceregistry", "trust-domain", "applicationPorts",
	"disableInternalTelemetry", "controlPlaneBootstrap", "connectTimeout",
	"lightstepAddress", "lightstepAccessToken", "lightstepSecure", "lightstepCacertPath",
	"stackdriverTracingEnabled", "availabilityZone", "kubeAppProberConfig", "dnsRefreshRate",
	"mixerIdentity", "pilotIdentity", "bootstrapv2", "caCertPath", "log_caller", "log_rotate", "log_rotate_max_age",
	"log_rotate_max_backups", "log_rotate_max_size", "log_stacktrace_level", "log_target", "vklog",
}

// disabledValues are values of unsupported flags that disable the feature, so they need no warning.
var disabledValues = []string{"", "0", "false"}

// ignoredSilently are unsupported flags that need no warning, because users do not notice their absence.
var ignoredSilently = []string{"profiling", "serviceregistry", "connectTimeout", "log_caller", "log_stacktrace_level", "log_target", "vklog"}

// warnAboutFlags adds warnings about flags that were set and have no effect.
func (s *Settings) warnAboutFlags() {
	for _, name := range unsupportedFlags {
		f := s.flags.set.Lookup(name)
		if f.Changed && !slices.Contains(disabledValues, f.Value.String()) && !slices.Contains(ignoredSilently, name) {
			s.warn("--%s=%s has no effect: it is not supported yet", name, f.Value)
		}
	}
	if level := s.flags.logLevel; strings.ContainsAny(level, ",:") && !strings.HasPrefix(level, "default:") {
		s.warn("--log_output_level: there is one level for all messages; levels of single scopes have no effect")
	}
}

// unusedFields are the fields of ProxyConfig that the agent should use and does not use yet, with the reason. All other fields
// are used in the bootstrap, by the control plane (which gets them in the node metadata), or by the injector.
var unusedFields = map[protoreflect.Name]string{
	"availability_zone":       "the locality of the workload follows from its labels",
	"discovery_refresh_delay": "the control plane sends changes at once",
	"stat_name_length":        "Envoy limits the length of names no longer",
	"connection_settings":     "the control plane does not act on it yet",
	"extra_stat_tags":         "the filter that adds such tags is not part of standard Envoy",
	"ca_certificates_pem":     "further roots are not supported yet; the certificate authority gives all roots of the mesh",
	"private_key_provider":    "keys are kept in memory; providers of keys are not supported yet",
	"sds":                     "where certificates come from follows from the files and sockets that there are",
}

// checkRole checks the role and the remaining settings of the agent.
func (s *Settings) checkRole(errs *problems) {
	if s.Role != Sidecar && s.Role != Router {
		errs.add("proxy "+s.Role, "there is no such role here; write `proxy %s` or `proxy %s`", Sidecar, Router)
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
	if !slices.Contains([]string{"", "trace", "debug", "info", "warning", "warn", "error", "critical", "off"}, s.EnvoyLogLevel) {
		errs.add("--proxyLogLevel", "%q is not a log level of Envoy; write trace, debug, info, warning, error, critical or off", s.EnvoyLogLevel)
	}
	s.warnAboutFlags()
}

// maxConcurrency is an upper limit for worker threads, beyond any practical use.
const maxConcurrency = 1 << 10

// loadOverride reads the YAML file that is merged over the bootstrap.
func (s *Settings) loadOverride(path string, errs *problems) {
	if path == "" {
		return
	}
	text, err := os.ReadFile(path)
	if err != nil {
		errs.add("ISTIO_BOOTSTRAP_OVERRIDE", "%w; set a file that this user can read, or unset the variable", err)
	}
	s.Override = string(text)
}

// parseLevel parses a log level in Istio's notation: LEVEL, or SCOPE:LEVEL separated by commas, of which only the scope
// "default" has an effect.
func parseLevel(text string) (slog.Level, error) {
	level := slog.LevelInfo
	for part := range strings.SplitSeq(text, ",") {
		scope, name, scoped := strings.Cut(strings.TrimSpace(part), ":")
		if !scoped {
			scope, name = "default", scope
		}
		l, ok := map[string]slog.Level{
			"debug": slog.LevelDebug, "info": slog.LevelInfo, "": slog.LevelInfo, "warn": slog.LevelWarn,
			"error": slog.LevelError, "fatal": slog.LevelError, "none": math.MaxInt,
		}[name]
		if !ok {
			return 0, fmt.Errorf("%q is not a level; write debug, info, warn, error or none", name)
		}
		if scope == "default" || scope == "all" {
			level = l
		}
	}
	return level, nil
}
