package telemetry

import (
	"slices"
	"strings"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	matcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	dataaccesslogv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	statsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stats/v3"
	transformv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/actions/transform_stat/v3"
	inputv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/stats/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	telemetryapi "istio.io/api/telemetry/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	view "github.com/pilotmesh/pilot/internal/view/telemetry"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

const (
	statsLogger = "envoy.access_loggers.stats"
	// statsScope is the name of the scope that all loggers of an Envoy share, so that series survive updates of listeners.
	statsScope = "istio"
	// maxSeries is how many series of one type an Envoy keeps. Names that clients choose are among the tags, so there must be a limit.
	maxSeries = 5000
	// unknown is the value of a tag without another one.
	unknown = "unknown"
)

// stats are the loggers that count requests and connections of one filter chain.
type stats struct {
	http *accesslogv3.AccessLog
	// tcp are the loggers for connections: when they are established, and when they end.
	tcp []*accesslogv3.AccessLog
}

func (s stats) equal(o stats) bool {
	return proto.Equal(s.http, o.http) && slices.EqualFunc(s.tcp, o.tcp, func(a, b *accesslogv3.AccessLog) bool { return proto.Equal(a, b) })
}

// metricKind is how a metric is counted.
type metricKind struct {
	name string
	// value is the operator whose value is added; empty to add 1.
	value string
	// unit is the unit of a histogram.
	unit      statsv3.Config_Histogram_Unit
	histogram bool
	// moment is when a metric of connections is counted; 0 for a metric of requests.
	moment dataaccesslogv3.AccessLogType
}

// metricKindOf returns how a metric is counted; false if Envoy cannot count it.
func metricKindOf(id telemetryapi.MetricSelector_IstioMetric) (metricKind, bool) {
	const opened, ended = dataaccesslogv3.AccessLogType_TcpUpstreamConnected, dataaccesslogv3.AccessLogType_TcpConnectionEnd
	kind, ok := map[telemetryapi.MetricSelector_IstioMetric]metricKind{
		telemetryapi.MetricSelector_REQUEST_COUNT: {name: "istio_requests_total"},
		telemetryapi.MetricSelector_REQUEST_DURATION: {
			name: "istio_request_duration_milliseconds", value: "%DURATION%", histogram: true, unit: statsv3.Config_Histogram_Milliseconds,
		},
		telemetryapi.MetricSelector_REQUEST_SIZE: {
			name: "istio_request_bytes", value: "%DOWNSTREAM_WIRE_BYTES_RECEIVED%", histogram: true, unit: statsv3.Config_Histogram_Bytes,
		},
		telemetryapi.MetricSelector_RESPONSE_SIZE: {
			name: "istio_response_bytes", value: "%DOWNSTREAM_WIRE_BYTES_SENT%", histogram: true, unit: statsv3.Config_Histogram_Bytes,
		},
		telemetryapi.MetricSelector_TCP_OPENED_CONNECTIONS: {name: "istio_tcp_connections_opened_total", moment: opened},
		telemetryapi.MetricSelector_TCP_CLOSED_CONNECTIONS: {name: "istio_tcp_connections_closed_total", moment: ended},
		telemetryapi.MetricSelector_TCP_SENT_BYTES:         {name: "istio_tcp_sent_bytes_total", value: "%BYTES_SENT%", moment: ended},
		telemetryapi.MetricSelector_TCP_RECEIVED_BYTES:     {name: "istio_tcp_received_bytes_total", value: "%BYTES_RECEIVED%", moment: ended},
	}[id]
	return kind, ok
}

// stats returns the loggers for filter chains that terminate mutual TLS of the mesh, or for the others.
func (b builder) stats(metrics []view.Metric, secure bool) (s stats) {
	one := func(moment dataaccesslogv3.AccessLogType) *accesslogv3.AccessLog {
		c := &statsv3.Config{}
		for _, m := range metrics {
			if kind, ok := metricKindOf(m.ID); ok && kind.moment == moment {
				b.count(c, kind, b.metricTags(m, moment == 0, secure))
			}
		}
		if len(c.Counters)+len(c.Histograms) == 0 {
			return nil
		}
		b.place(c)
		var at *accesslogv3.AccessLogFilter
		if moment != 0 {
			at = logTypes(false, moment)
		}
		return logger{name: statsLogger, config: c}.of(at)
	}
	s.http = one(0)
	for _, moment := range []dataaccesslogv3.AccessLogType{dataaccesslogv3.AccessLogType_TcpUpstreamConnected, dataaccesslogv3.AccessLogType_TcpConnectionEnd} {
		if log := one(moment); log != nil {
			s.tcp = append(s.tcp, log)
		}
	}
	return s
}

// logTypes matches logs that are written at some moments, or at all others.
func logTypes(others bool, types ...dataaccesslogv3.AccessLogType) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_LogTypeFilter{
		LogTypeFilter: &accesslogv3.LogTypeFilter{Types: types, Exclude: others},
	}}
}

// place sets where the series of a logger are kept. An Envoy without scopes has a prefix for them.
func (b builder) place(c *statsv3.Config) {
	if b.OldStats == 0 {
		c.StatsScope = &typev3.Scope{
			MaxCounters: envoy.Uint(maxSeries), MaxHistograms: envoy.Uint(maxSeries), EnableEviction: true, SharingName: statsScope,
		}
		return
	}
	c.StatPrefix = statsScope //nolint:staticcheck // older Envoys have no other field
	cut := func(s *statsv3.Config_Stat) { s.Name = strings.TrimPrefix(s.Name, statsScope+"_") }
	for _, m := range c.Counters {
		cut(m.Stat)
	}
	for _, m := range c.Histograms {
		cut(m.Stat)
	}
}

func (b builder) count(c *statsv3.Config, kind metricKind, tags []*statsv3.Config_Tag) {
	stat := &statsv3.Config_Stat{Name: kind.name, Tags: tags}
	switch {
	case kind.histogram:
		c.Histograms = append(c.Histograms, &statsv3.Config_Histogram{Stat: stat, Unit: kind.unit, ValueFormat: kind.value})
	case kind.value != "":
		c.Counters = append(c.Counters, &statsv3.Config_Counter{Stat: stat, ValueFormat: kind.value})
	default:
		c.Counters = append(c.Counters, &statsv3.Config_Counter{Stat: stat, ValueFixed: wrapperspb.UInt64(1)})
	}
}

// metricTags returns the tags of a metric, by name.
func (b builder) metricTags(m view.Metric, http, secure bool) (list []*statsv3.Config_Tag) {
	own := map[string]bool{}
	for _, tag := range m.Tags {
		own[tag.Name] = true
	}
	for _, tag := range b.standardTags(http, secure) {
		if !own[tag.name] && !slices.Contains(m.Removed, tag.name) {
			list = append(list, b.statTag(tag))
		}
	}
	for _, tag := range m.Tags {
		if expression := api.TagExpression(tag.Value); api.CheckExpression(expression) == "" {
			list = append(list, b.statTag(metricTag{name: tag.Name, text: "%CEL(" + expression + ")%"}))
		}
	}
	slices.SortFunc(list, func(a, b *statsv3.Config_Tag) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// statTag returns a tag. An empty value becomes "unknown", unless it may be empty.
func (b builder) statTag(t metricTag) *statsv3.Config_Tag {
	tag := &statsv3.Config_Tag{Name: t.name, ValueFormat: t.format(b.OldStats == withoutRules)}
	if t.mayBeEmpty || len(t.from) == 0 && t.text != "" && !strings.HasPrefix(t.text, "%") || b.OldStats == withoutRules {
		return tag
	}
	known := map[string]*matcherv3.Matcher_OnMatch{"": becomesUnknown()}
	if len(t.from) > 0 {
		known["-"] = becomesUnknown() // a variable that is not set
	}
	tag.Rules = &matcherv3.Matcher{MatcherType: &matcherv3.Matcher_MatcherTree_{MatcherTree: &matcherv3.Matcher_MatcherTree{
		Input:    &xdscorev3.TypedExtensionConfig{Name: "value", TypedConfig: envoy.Pack(&inputv3.StatTagValueInput{})},
		TreeType: &matcherv3.Matcher_MatcherTree_ExactMatchMap{ExactMatchMap: &matcherv3.Matcher_MatcherTree_MatchMap{Map: known}},
	}}}
	return tag
}

// becomesUnknown replaces the value of a tag by "unknown".
func becomesUnknown() *matcherv3.Matcher_OnMatch {
	return &matcherv3.Matcher_OnMatch{OnMatch: &matcherv3.Matcher_OnMatch_Action{Action: &xdscorev3.TypedExtensionConfig{
		Name: unknown, TypedConfig: envoy.Pack(&transformv3.TransformStat{UpdateTag: &transformv3.TransformStat_UpdateTag{NewTagValue: unknown}}),
	}}}
}
