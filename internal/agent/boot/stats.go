package boot

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// Stats selects and shapes Envoy's statistics.
type Stats struct {
	// Prefixes, Suffixes and Regexes select, by name, the statistics that Envoy keeps besides the ones that the agent needs. If all three
	// are empty, Envoy keeps all.
	Prefixes, Suffixes, Regexes []string
	// Buckets are the upper bounds of the buckets of histograms, by prefixes of the histograms' names.
	Buckets map[string][]float64
	// Bins is with how many bins each histogram of the mesh's metrics begins; 0 for Envoy's default, 100.
	Bins uint32
	// Flush is how often statistics are sent to the backends, and Evict how long unused ones are kept: a multiple of Flush; 0
	// for Envoy's defaults, 5 s and never.
	Flush, Evict time.Duration
	// Statsd is the UDP address of a statsd server to which statistics are sent, if it is valid. Service receives them by gRPC.
	Statsd  netip.AddrPort
	Service Backend
}

// setTimes sets how often statistics are sent and evicted.
func (s Stats) setTimes(b *bootstrapv3.Bootstrap) {
	if s.Flush != 0 {
		b.StatsFlushInterval = durationpb.New(s.Flush)
	}
	if s.Evict != 0 {
		b.StatsEviction = &bootstrapv3.Bootstrap_StatsEvictionInterval{StatsEvictionInterval: durationpb.New(s.Evict)}
	}
}

// sinks returns the sinks of statistics.
func (s Stats) sinks() (list []*metricsv3.StatsSink) {
	if s.Statsd.IsValid() {
		at := envoy.Address(s.Statsd.Addr().String(), uint32(s.Statsd.Port()))
		at.GetSocketAddress().Protocol = corev3.SocketAddress_UDP
		list = append(list, &metricsv3.StatsSink{Name: "envoy.stat_sinks.statsd", ConfigType: &metricsv3.StatsSink_TypedConfig{
			TypedConfig: envoy.Pack(&metricsv3.StatsdSink{StatsdSpecifier: &metricsv3.StatsdSink_Address{Address: at}}),
		}})
	}
	if s.Service.set() {
		list = append(list, &metricsv3.StatsSink{Name: "envoy.stat_sinks.metrics_service", ConfigType: &metricsv3.StatsSink_TypedConfig{
			TypedConfig: envoy.Pack(&metricsv3.MetricsServiceConfig{TransportApiVersion: corev3.ApiVersion_V3, GrpcService: service(metricsServiceCluster)}),
		}})
	}
	return list
}

// Statistics that are always kept: the agent decides by them whether Envoy is ready and whether connections are left, and they
// show whether Envoy reaches the control plane and accepts its configuration. Metrics of the mesh are kept, because Telemetries select them.
var (
	neededPrefixes = []string{"cluster." + discoveryCluster + ".", "cluster_manager.", "control_plane.", "istio_", "istio.", "listener_manager.", "server."}
	neededSuffixes = []string{".downstream_cx_active"}
)

// matcher returns which statistics Envoy keeps; nil for all.
func (s Stats) matcher() *metricsv3.StatsMatcher {
	if len(s.Prefixes)+len(s.Suffixes)+len(s.Regexes) == 0 {
		return nil
	}
	list := &matcherv3.ListStringMatcher{}
	for _, prefix := range slices.Concat(neededPrefixes, s.Prefixes) {
		list.Patterns = append(list.Patterns, hasPrefix(prefix))
	}
	for _, suffix := range slices.Concat(neededSuffixes, s.Suffixes) {
		list.Patterns = append(list.Patterns, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: suffix}})
	}
	for _, regex := range s.Regexes {
		list.Patterns = append(list.Patterns, &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: regex}},
		})
	}
	return &metricsv3.StatsMatcher{StatsMatcher: &metricsv3.StatsMatcher_InclusionList{InclusionList: list}}
}

// buckets returns the buckets of histograms. Envoy uses the first match, so longer prefixes come first.
func (s Stats) buckets() (all []*metricsv3.HistogramBucketSettings) {
	prefixes := slices.Sorted(maps.Keys(s.Buckets))
	slices.Reverse(prefixes)
	named := false // whether an entry is about all metrics of the mesh
	for _, prefix := range prefixes {
		of := &metricsv3.HistogramBucketSettings{Match: hasPrefix(prefix), Buckets: s.Buckets[prefix]}
		wide := strings.HasPrefix(meshMetrics, prefix)
		if s.Bins != 0 && (wide || strings.HasPrefix(prefix, meshMetrics)) {
			of.Bins = wrapperspb.UInt32(s.Bins)
		}
		named = named || wide
		all = append(all, of)
	}
	if s.Bins != 0 && !named {
		all = append(all, &metricsv3.HistogramBucketSettings{Match: hasPrefix(meshMetrics), Bins: wrapperspb.UInt32(s.Bins)})
	}
	return all
}

// meshMetrics is the prefix of the metrics of the mesh.
const meshMetrics = "istio_"

func hasPrefix(prefix string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: prefix}}
}

// standardTags are tags of Envoy by their own names and without a regex, because Envoy searches only the names that contain "_rq_" for its own
// regexes, but all names for the regexes of a bootstrap. With regexes for these two, Envoy's start with 1,000 clusters takes three times as long.
// Source: well_known_names.cc and tag_extractor_impl.cc of Envoy.
var standardTags = []string{"envoy.response_code", "envoy.response_code_class"}

// statsConfig extracts tags from the names of statistics. The names of clusters and listeners from the control plane contain
// dots and end with a semicolon; other names have neither.
func (s Stats) statsConfig() *metricsv3.StatsConfig {
	config := &metricsv3.StatsConfig{UseAllDefaultTags: envoy.Bool(false), StatsMatcher: s.matcher(), HistogramBucketSettings: s.buckets()}
	for _, t := range []struct{ name, regex string }{
		{"cluster_name", `^cluster\.(([^;.|]+|[^;]+);?\.)`},
		{"http_conn_manager_prefix", `^http\.(([^.;]+(?:\.\d+)*(?:_\d+)?);?\.)`},
		{"tcp_prefix", `^tcp\.(([^;.|]+|[^;]+);?\.)`},
		{"listener_address", `^listener\.(([0-9a-fA-F_.\[\]]+_\d+)\.)`},
		{"http_conn_manager_listener_prefix", `^listener\..*?\.http\.(([^.;]+(?:\.\d+)*(?:_\d+)?);?\.)`},
	} {
		config.StatsTags = append(config.StatsTags, &metricsv3.TagSpecifier{
			TagName: t.name, TagValue: &metricsv3.TagSpecifier_Regex{Regex: t.regex},
		})
	}
	for _, name := range standardTags {
		config.StatsTags = append(config.StatsTags, &metricsv3.TagSpecifier{TagName: name})
	}
	return config
}
