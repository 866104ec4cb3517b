package admin

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc/codes"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/ads/protocol/response"
	"github.com/pilotmesh/pilot/internal/ads/server"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Metrics are the metrics for Prometheus. Where Istio has such a metric, names and labels are the same, so that dashboards and
// alerts for Istio work. Names of other metrics begin with pilot_ too.
//
// The methods count events when they happen. Metrics of a state, such as connected proxies, services, cells and problems, are read
// at each scrape; see scrape.go.
type Metrics struct {
	registry *prometheus.Registry

	pushes, acks, rejects, expired         *prometheus.CounterVec   // by type: cds, eds, lds, rds
	sentBytes, sentResources               *prometheus.CounterVec   // by type
	configSize                             *prometheus.HistogramVec // by type URL
	convergence, sendTime                  prometheus.Histogram
	pushTime                               *prometheus.HistogramVec // by type
	cfgEvents, regEvents                   *prometheus.CounterVec   // by kind and event
	closed                                 *prometheus.CounterVec   // by gRPC code
	writeTimeouts, internalErrors, crowded prometheus.Counter
	unknown                                prometheus.Counter

	inbound        *prometheus.CounterVec // by type of change
	triggers       *prometheus.CounterVec
	commits        prometheus.Counter
	commitDuration prometheus.Histogram
	cellsRun       *prometheus.CounterVec // by query

	// pending holds the triggers of the next commit, one per bit.
	pending atomic.Uint32
}

// trigger is a reason for a commit.
type trigger uint32

const (
	serviceTrigger trigger = 1 << iota
	endpointTrigger
	configTrigger
	globalTrigger
	proxyTrigger
)

// triggerNames are the values of the label, by bit.
var triggerNames = [...]string{"service", "endpoint", "config", "global", "proxy"}

var _ server.Observer = (*Metrics)(nil)

// NewMetrics returns metrics in a registry of their own.
func NewMetrics(b run.Build) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	started := time.Now()
	m.gauge("istiod_uptime_seconds", "Seconds since the control plane was started.", func() float64 { return time.Since(started).Seconds() })
	m.constant("pilot_info", "The version of the control plane.", prometheus.Labels{"version": b.Version})
	m.constant("istio_build", "The version of the control plane, as dashboards look for it.", prometheus.Labels{"component": "pilot", "tag": b.Version})

	m.pushes = m.counters("pilot_xds_pushes", "Responses sent to proxies.", "type")
	m.acks = m.counters("pilot_xds_acks_total", "Responses that proxies acknowledged.", "type")
	m.rejects = m.counters("pilot_total_xds_rejects", "Responses that proxies rejected.", "type")
	m.expired = m.counters("pilot_xds_expired_nonce", "Requests with a nonce that was not the last one.", "type")
	m.sentBytes = m.counters("pilot_xds_sent_bytes_total", "Bytes of responses sent to proxies.", "type")
	m.sentResources = m.counters("pilot_xds_sent_resources_total", "Resources in responses sent to proxies, removals included.", "type")
	m.configSize = m.histograms("pilot_xds_config_size_bytes", "Size of the responses sent to proxies.",
		[]float64{1, 1e3, 1e4, 1e5, 1e6, 4e6, 1e7, 4e7}, "type")
	m.convergence = m.histogram("pilot_proxy_convergence_time", "Seconds from the publication of a state to its acknowledgement by a proxy.", fine())
	m.sendTime = m.histogram("pilot_xds_send_time", "Seconds that writing a response took.", fine())
	m.pushTime = m.histograms("pilot_xds_push_time", "Seconds that writing a response took, by type. Its resources were computed before, for all proxies of a class.", fine(), "type")
	m.cfgEvents = m.counters("pilot_k8s_cfg_events", "Objects of configuration that were added, updated or deleted, by kind, whatever the source.", "type", "event")
	m.regEvents = m.counters("pilot_k8s_reg_events", "Objects of Kubernetes clusters that were added, updated or deleted, by kind.", "type", "event")
	m.closed = m.counters("pilot_xds_closed_total", "xDS streams that ended, by gRPC code.", "code")
	m.unknown = m.counter("pilot_xds_unknown_type_total", "Requests for a type that is not served.")
	m.crowded = m.counter("pilot_idle_connections_closed_total", "Connections without a stream or call that were closed because their client, or all clients together, had too many.")
	m.writeTimeouts = m.counter("pilot_xds_write_timeout", "Connections closed because the proxy did not read.")
	m.internalErrors = m.counter("pilot_total_xds_internal_errors", "Errors of the control plane itself while serving proxies.")

	m.inbound = m.counters("pilot_inbound_updates", "Changes that sources reported: config, eds, svc, svcdelete.", "type")
	m.triggers = m.counters("pilot_push_triggers", "Commits that changed what proxies see, by what changed.", "type")
	m.commits = m.counter("pilot_commits_total", "Commits that changed something.")
	m.commitDuration = m.histogram("pilot_commit_duration_seconds", "Seconds from the beginning of a commit until all streams have the new states.", fine())
	m.cellsRun = m.counters("pilot_cells_run_total", "Cells that were computed, by query.", "query")
	for t := resource.Type(0); t <= resource.VirtualHost; t++ { // a missing counter would look like a broken one
		for _, v := range []*prometheus.CounterVec{m.pushes, m.acks, m.rejects, m.expired, m.sentBytes, m.sentResources} {
			v.WithLabelValues(label(t))
		}
	}
	return m
}

// fine are buckets for durations that are usually a few milliseconds.
func fine() []float64 {
	return []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 3, 5, 10, 20, 30}
}

func (m *Metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	m.registry.MustRegister(c)
	return c
}

func (m *Metrics) counters(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(c)
	return c
}

func (m *Metrics) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	m.registry.MustRegister(h)
	return h
}

func (m *Metrics) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(h)
	return h
}

func (m *Metrics) gauge(name, help string, value func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

func (m *Metrics) constant(name, help string, labels prometheus.Labels) {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels})
	g.Set(1)
	m.registry.MustRegister(g)
}

// label returns the name of a type in metrics.
func label(t resource.Type) string { return strings.ToLower(t.String()) }

// Opened implements server.Observer. It does nothing, because a scrape reads the connected proxies.
func (m *Metrics) Opened(protocol.Variant) {}

// Closed counts a stream that ended, by gRPC code.
func (m *Metrics) Closed(_ protocol.Variant, code codes.Code) {
	m.closed.WithLabelValues(code.String()).Inc()
}

// Sent counts a response that was written.
func (m *Metrics) Sent(t resource.Type, sent *response.Message, took time.Duration) {
	m.pushes.WithLabelValues(label(t)).Inc()
	m.sentBytes.WithLabelValues(label(t)).Add(float64(sent.Size))
	m.sentResources.WithLabelValues(label(t)).Add(float64(sent.Resources + sent.Removed))
	m.configSize.WithLabelValues(t.URL()).Observe(float64(sent.Size))
	m.sendTime.Observe(took.Seconds())
	m.pushTime.WithLabelValues(label(t)).Observe(took.Seconds())
}

// Acked counts an acknowledged response.
func (m *Metrics) Acked(t resource.Type, _ *resource.State, converged time.Duration) {
	m.acks.WithLabelValues(label(t)).Inc()
	if converged > 0 {
		m.convergence.Observe(converged.Seconds())
	}
}

// Rejected counts a rejected response. A scrape reads which proxies reject which content.
func (m *Metrics) Rejected(t resource.Type, _, _ string) { m.rejects.WithLabelValues(label(t)).Inc() }

// Expired counts a request with a nonce that is not the last one.
func (m *Metrics) Expired(t resource.Type) { m.expired.WithLabelValues(label(t)).Inc() }

// Unknown counts a request for a type that is not served. The type is not a label, because clients could create any number of them.
func (m *Metrics) Unknown(string) { m.unknown.Inc() }

// Crowded counts an idle connection that was closed because there were too many.
func (m *Metrics) Crowded() { m.crowded.Inc() }

// WriteTimeout counts a connection closed because its proxy did not read.
func (m *Metrics) WriteTimeout() { m.writeTimeouts.Inc() }

// Panicked counts a stream that ended because of a bug.
func (m *Metrics) Panicked() { m.internalErrors.Inc() }

// Commit counts a commit.
func (m *Metrics) Commit(c loop.Commit) {
	m.commits.Inc()
	m.commitDuration.Observe(c.Duration.Seconds())
	for query, n := range c.Cells {
		m.cellsRun.WithLabelValues(query).Add(float64(n))
	}
	pending := m.pending.Swap(0)
	if c.Classes == 0 {
		return
	}
	if pending == 0 {
		pending = uint32(proxyTrigger) // no source changed: a proxy connected or rejected something
	}
	for bit, name := range triggerNames {
		if pending&(1<<bit) != 0 {
			m.triggers.WithLabelValues(name).Inc()
		}
	}
}

// Counting is a sink that counts what passes through it to next.
func (m *Metrics) Counting(next source.Sink) source.Sink { return counting{m, next} }

type counting struct {
	metrics *Metrics
	next    source.Sink
}

func (c counting) Apply(b source.Batch) {
	var seen trigger
	for _, e := range b.Events {
		what, why := kindOf(e)
		c.metrics.inbound.WithLabelValues(what).Inc()
		c.metrics.event(e)
		seen |= why
	}
	if b.Mesh != nil {
		seen |= globalTrigger
	}
	c.metrics.pending.Or(uint32(seen))
	c.next.Apply(b)
}

// event counts an event by the kind of its object.
func (m *Metrics) event(e source.Event) {
	happened, events := "update", m.cfgEvents
	switch {
	case e.Removed():
		happened = "delete"
	case e.Added:
		happened = "add"
	}
	if _, configuration := api.FindKind(e.Key.Kind); !configuration {
		events = m.regEvents
	}
	events.WithLabelValues(e.Key.Kind, happened).Inc()
}

// kindOf returns the kind of an event in the metric of updates.
func kindOf(e source.Event) (string, trigger) {
	switch subjectOf(e.Key.Kind) {
	case api.AboutRules:
		return "config", configTrigger
	case api.AboutEndpoints:
		return "eds", endpointTrigger
	}
	if e.Removed() {
		return "svcdelete", serviceTrigger
	}
	return "svc", serviceTrigger
}

// subjectOf returns the subject of a kind of configuration, or of objects of Kubernetes.
func subjectOf(name string) api.Subject {
	switch name {
	case kube.KindService, kube.KindNamespace, registry.KindService:
		return api.AboutServices
	case kube.KindEndpointSlice, kube.KindPod, kube.KindNode, registry.KindMigration:
		return api.AboutEndpoints
	}
	kind, _ := api.FindKind(name)
	return kind.Subject
}
