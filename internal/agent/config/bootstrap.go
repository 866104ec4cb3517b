package config

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/pilotmesh/pilot/internal/agent/disk"
)

// connectionsKey is the entry of runtimeValues that limits the connections of all listeners; connectionSettings have a field for it, which counts where the
// entry is absent. Envoy has deprecated it in favour of a
// resource monitor, so the bootstrap gets a resource monitor instead.
const connectionsKey = "overload.global_downstream_max_connections"

// Annotations that set how often Envoy sends and evicts statistics.
const (
	flushAnnotation = "sidecar.istio.io/statsFlushInterval"
	evictAnnotation = "sidecar.istio.io/statsEvictionInterval"
)

// loadBootstrap reads the settings of the bootstrap other than statistics and backends.
func (s *Settings) loadBootstrap(errs *problems) {
	env := s.lookup
	s.Runtime = maps.Clone(s.Proxy.GetRuntimeValues())
	s.MaxConnections = uint32(s.Proxy.GetConnectionSettings().GetGlobalDownstreamConnectionLimit().GetValue())
	if text := s.Runtime[connectionsKey]; text != "" {
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil || n == 0 {
			errs.add("runtimeValues."+connectionsKey, "%q is not a number of connections above 0", text)
		}
		s.MaxConnections = uint32(n)
	}
	delete(s.Runtime, connectionsKey)
	s.CompressMetrics = s.Proxy.GetStatsCompression() == nil || s.Proxy.GetStatsCompression().GetValue()
	s.SecureMetricsPort = port("ENVOY_SECURE_METRICS_PORT", env("ENVOY_SECURE_METRICS_PORT"), errs)
	s.SecureMergedMetricsPort = port("ENVOY_SECURE_MERGED_METRICS_PORT", env("ENVOY_SECURE_MERGED_METRICS_PORT"), errs)
	s.HealthProxyProtocol = s.boolean("ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL", false, errs)
	s.NoEnvoy = s.boolean("DISABLE_ENVOY", false, errs)
	s.PatchedBootstrap = s.boolean("BOOTSTRAP_XDS_AGENT", false, errs)
	if s.PatchedBootstrap && s.NoEnvoy {
		s.warn("BOOTSTRAP_XDS_AGENT has no effect: without Envoy there is no bootstrap that an EnvoyFilter could patch")
	}
	s.GRPCBootstrap = env("GRPC_XDS_BOOTSTRAP")
	if s.NoEnvoy && s.HotRestart {
		errs.add("DISABLE_ENVOY", "there is no Envoy that a hot restart could replace; leave out --hotRestart")
	}
	s.loadTemplate(errs)
	s.loadTimes(errs)
}

// loadTemplate reads the template of the bootstrap.
func (s *Settings) loadTemplate(errs *problems) {
	from, path := s.templatePath()
	if path == "" {
		return
	}
	text, err := disk.Read(path)
	switch {
	case err != nil:
		errs.add(from, "%w; name a file that this user can read, or leave it out", err)
	case len(text) == 0:
		errs.add(from, "%s is empty; write a bootstrap of Envoy or a template of one", path)
	}
	s.Template = string(text)
}

// templatePath returns the file with the template of the bootstrap, and the setting that names it; empty for none.
func (s *Settings) templatePath() (from, path string) {
	for _, c := range []struct{ from, path string }{
		{"ISTIO_BOOTSTRAP", s.lookup("ISTIO_BOOTSTRAP")}, {"--templateFile", s.flags.template},
		{"customConfigFile", s.Proxy.GetCustomConfigFile()}, {"proxyBootstrapTemplatePath", s.Proxy.GetProxyBootstrapTemplatePath()},
	} {
		if c.path != "" {
			return c.from, c.path
		}
	}
	return "", ""
}

// loadTimes reads how often statistics are sent, and how long unused ones are kept.
func (s *Settings) loadTimes(errs *problems) {
	for _, t := range []struct {
		annotation string
		into       *time.Duration
	}{{flushAnnotation, &s.Stats.Flush}, {evictAnnotation, &s.Stats.Evict}} {
		text := s.Annotations[t.annotation]
		if text == "" {
			continue
		}
		d, err := time.ParseDuration(text)
		if err != nil || d < time.Millisecond {
			errs.add(t.annotation, "%q is not a duration such as 10s", text)
			continue
		}
		*t.into = d
	}
	const longest, usual = 5 * time.Minute, 5 * time.Second // of Envoy
	if s.Stats.Flush > longest {
		errs.add(flushAnnotation, "%v is longer than %v, the longest that Envoy takes", s.Stats.Flush, longest)
	}
	if flush := cmp.Or(s.Stats.Flush, usual); s.Stats.Evict%flush != 0 {
		errs.add(evictAnnotation, "%v is not a multiple of %v, the time between two flushes (%s)", s.Stats.Evict, flush, flushAnnotation)
	}
}

// DualStack reports whether the workload has addresses of both versions.
func (s *Settings) DualStack() bool {
	return !s.IPv6Only() && slices.ContainsFunc(s.Addresses, func(a string) bool {
		ip, err := netip.ParseAddr(a)
		return err == nil && !ip.Unmap().Is4()
	})
}

// lookup returns a variable of the environment, or of ProxyConfig's proxyMetadata.
func (s *Settings) lookup(name string) string {
	return s.env.get(name, s.Proxy.GetProxyMetadata()[name])
}

// boolean returns a variable that is true or false.
func (s *Settings) boolean(name string, otherwise bool, errs *problems) bool {
	text := s.lookup(name)
	if text == "" {
		return otherwise
	}
	v, err := strconv.ParseBool(text)
	if err != nil {
		errs.add(name, "%q is neither true nor false", text)
	}
	return v
}
