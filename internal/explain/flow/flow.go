// Package flow answers which workloads call each other: it turns the metrics that Envoys report (istio_requests_total and others) into requests, errors and latencies
// between workloads.
//
// The client's report counts, because it has all labels of both sides. A server's report counts only if the client has not shown who it is: such a
// client has no proxy, so no other proxy reports the request. Counters that went back belong to an Envoy that was started again; they count from zero.
//
// It owns the reading of metrics, from agents' pages and from a Prometheus server, and the forms in which the answer is shown. It keeps nothing.
// Goroutines: Read starts one per page, and waits for them.
package flow

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// Version is the version of the form of answers.
const Version = 1

// Workload is a workload of the mesh, or "unknown" for clients without a proxy.
type Workload struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

// String returns NAME.NAMESPACE.
func (w Workload) String() string {
	if w.Namespace == "" {
		return w.Name
	}
	return w.Name + "." + w.Namespace
}

// Compare orders by namespace, then by name.
func (w Workload) Compare(o Workload) int {
	return cmp.Or(cmp.Compare(w.Namespace, o.Namespace), cmp.Compare(w.Name, o.Name))
}

// Edge is a client and a server.
type Edge struct {
	From Workload `json:"from"`
	To   Workload `json:"to"`
}

// Compare orders by client, then by server.
func (e Edge) Compare(o Edge) int { return cmp.Or(e.From.Compare(o.From), e.To.Compare(o.To)) }

// counts are counters of one edge.
type counts struct {
	requests, errors float64
	// opened, sent and received are connections that are not HTTP, and their bytes.
	opened, sent, received float64
	// buckets are the requests by the greatest duration that they may have had, in milliseconds, each with the ones of the buckets before.
	buckets map[float64]float64
}

// Sample is what some proxies had counted at a moment.
type Sample struct {
	at time.Time
	// series are the counters by their labels, so that one that went back is seen.
	series map[string]series
	// dropped are the values that Envoys did not record, by agent.
	dropped map[string]float64
}

type series struct {
	edge  Edge
	name  string
	bound float64 // of a bucket
	bad   bool
	value float64
}

// The names of the metrics that count.
const (
	requestsTotal = "istio_requests_total"
	duration      = "istio_request_duration_milliseconds_bucket"
	openedTotal   = "istio_tcp_connections_opened_total"
	sentTotal     = "istio_tcp_sent_bytes_total"
	receivedTotal = "istio_tcp_received_bytes_total"
	// droppedTotal counts the values of others that an Envoy did not record, because it had as many series as it keeps.
	droppedTotal = "pilot_agent_metrics_dropped_total"
)

func names() []string {
	return []string{requestsTotal, duration, openedTotal, sentTotal, receivedTotal, droppedTotal}
}

// add adds the metrics of one source. Series of other metrics, and reports of servers whose client reports too, are left out.
func (s *Sample) add(from string, list model.Vector) {
	for _, one := range list {
		name := string(one.Metric[model.MetricNameLabel])
		if name == droppedTotal {
			s.drop(cmp.Or(from, string(one.Metric[model.InstanceLabel]), "unknown"), float64(one.Value))
			continue
		}
		if !slices.Contains(names(), name) || !counted(one.Metric) {
			continue
		}
		row := series{edge: edgeOf(one.Metric), name: name, bad: failed(one.Metric), value: float64(one.Value)}
		if name == duration {
			bound, err := strconv.ParseFloat(string(one.Metric[model.BucketLabel]), 64)
			if err != nil {
				continue
			}
			row.bound = bound
		}
		s.series[from+" "+one.Metric.String()] = row
	}
}

func (s *Sample) drop(agent string, n float64) {
	if s.dropped == nil {
		s.dropped = map[string]float64{}
	}
	s.dropped[agent] += n
}

// Dropped are the values of metrics that the Envoy of an agent did not record.
type Dropped struct {
	Agent  string  `json:"agent"`
	Values float64 `json:"values"`
}

// droppedSince are the values that Envoys did not record between two samples, by agent.
func (s *Sample) droppedSince(before *Sample) (list []Dropped) {
	for _, agent := range slices.Sorted(maps.Keys(s.dropped)) {
		n := s.dropped[agent]
		if was := before.dropped[agent]; was <= n {
			n -= was
		}
		if n > 0 {
			list = append(list, Dropped{agent, n})
		}
	}
	return list
}

// counted reports whether a series is the one report of its requests.
func counted(m model.Metric) bool {
	return m["reporter"] == "source" || m["reporter"] == "destination" && (m["source_principal"] == "unknown" || m["source_principal"] == "")
}

func edgeOf(m model.Metric) Edge {
	return Edge{workload(m, "source"), workload(m, "destination")}
}

// workload returns the workload of one side. A destination outside the mesh has no workload, but the name of its service.
func workload(m model.Metric, side string) Workload {
	name, namespace := string(m[model.LabelName(side+"_workload")]), string(m[model.LabelName(side+"_workload_namespace")])
	if name != "" && name != "unknown" {
		return Workload{name, known(namespace)}
	}
	if service := known(string(m[model.LabelName(side+"_service")])); service != "" {
		return Workload{Name: service}
	}
	return Workload{Name: "unknown"}
}

func known(text string) string {
	if text == "unknown" {
		return ""
	}
	return text
}

// failed reports whether a response is an error: no response, a status of 500 or more, or a status of gRPC other than OK.
func failed(m model.Metric) bool {
	code := string(m["response_code"])
	if code == "0" || len(code) == 3 && code[0] == '5' {
		return true
	}
	switch m["grpc_response_status"] {
	case "", "0", "unknown", "-":
		return false
	}
	return m["request_protocol"] == "grpc"
}

// Flow is the traffic of one edge, or of one workload, in a span of time.
type Flow struct {
	// Requests are requests per second; Errors is the share of them that failed, from 0 to 1.
	Requests float64 `json:"requests_per_second"`
	Errors   float64 `json:"error_ratio"`
	// P50, P95 and P99 are latencies in milliseconds that 50, 95 and 99 % of the requests did not exceed; 0 without requests.
	P50 float64 `json:"p50_ms"`
	P95 float64 `json:"p95_ms"`
	P99 float64 `json:"p99_ms"`
	// Connections are connections per second that are not HTTP; Bytes are the bytes per second in both directions of the ones that ended.
	Connections float64 `json:"connections_per_second,omitempty"`
	Bytes       float64 `json:"bytes_per_second,omitempty"`
}

// EdgeFlow is the traffic of one edge.
type EdgeFlow struct {
	Edge
	Flow
}

// WorkloadFlow is the traffic that one workload serves.
type WorkloadFlow struct {
	Workload
	Flow
}

// Answer is the traffic of a mesh in a span of time.
type Answer struct {
	Version int     `json:"version"`
	Seconds float64 `json:"seconds"`
	// Workloads are the servers, by namespace and name; Edges are by client, then by server.
	Workloads []WorkloadFlow `json:"workloads"`
	Edges     []EdgeFlow     `json:"edges"`
	// Dropped are the agents whose Envoys did not record all values: the figures are too low.
	Dropped []Dropped `json:"dropped,omitempty"`
	// Missing says which pages did not answer, and why.
	Missing []string `json:"missing,omitempty"`
}

// Between returns the traffic between two samples. Edges without traffic are left out.
func Between(before, after *Sample) Answer {
	a := Answer{Version: Version, Seconds: after.at.Sub(before.at).Seconds(), Dropped: after.droppedSince(before)}
	edges, servers := map[Edge]*counts{}, map[Workload]*counts{}
	for labels, now := range after.series {
		grown := now.value
		if was, ok := before.series[labels]; ok && was.value <= now.value {
			grown -= was.value
		}
		if grown > 0 {
			countsOf(edges, now.edge).add(now, grown)
			countsOf(servers, now.edge.To).add(now, grown)
		}
	}
	for e, c := range edges {
		a.Edges = append(a.Edges, EdgeFlow{e, c.per(a.Seconds)})
	}
	for w, c := range servers {
		a.Workloads = append(a.Workloads, WorkloadFlow{w, c.per(a.Seconds)})
	}
	slices.SortFunc(a.Edges, func(x, y EdgeFlow) int { return x.Edge.Compare(y.Edge) })
	slices.SortFunc(a.Workloads, func(x, y WorkloadFlow) int { return x.Workload.Compare(y.Workload) })
	return a
}

func countsOf[K comparable](all map[K]*counts, k K) *counts {
	c := all[k]
	if c == nil {
		c = &counts{buckets: map[float64]float64{}}
		all[k] = c
	}
	return c
}

func (c *counts) add(s series, n float64) {
	switch s.name {
	case requestsTotal:
		c.requests += n
		if s.bad {
			c.errors += n
		}
	case duration:
		c.buckets[s.bound] += n
	case openedTotal:
		c.opened += n
	case sentTotal:
		c.sent += n
	case receivedTotal:
		c.received += n
	}
}

// per returns the traffic per second.
func (c *counts) per(seconds float64) Flow {
	if seconds <= 0 {
		return Flow{}
	}
	f := Flow{Requests: c.requests / seconds, Connections: c.opened / seconds, Bytes: (c.sent + c.received) / seconds}
	if c.requests > 0 {
		f.Errors = c.errors / c.requests
	}
	f.P50, f.P95, f.P99 = c.quantile(.5), c.quantile(.95), c.quantile(.99)
	return f
}

// quantile returns the duration that a share of the requests did not exceed, with the requests of a bucket spread evenly. The last bucket has no upper
// bound, so its requests count as its lower bound.
func (c *counts) quantile(share float64) float64 {
	bounds := make([]float64, 0, len(c.buckets))
	for b := range c.buckets {
		bounds = append(bounds, b)
	}
	slices.Sort(bounds)
	if len(bounds) == 0 || c.buckets[bounds[len(bounds)-1]] == 0 {
		return 0
	}
	rank := share * c.buckets[bounds[len(bounds)-1]]
	low, below := 0.0, 0.0
	for _, b := range bounds {
		if n := c.buckets[b]; n >= rank {
			if math.IsInf(b, 1) || n == below {
				return low
			}
			return low + (b-low)*(rank-below)/(n-below)
		}
		low, below = b, c.buckets[b]
	}
	return low
}

// Only keeps the traffic from and to workloads of a namespace.
func (a Answer) Only(namespace string) Answer {
	if namespace == "" {
		return a
	}
	a.Edges = slices.DeleteFunc(slices.Clone(a.Edges), func(e EdgeFlow) bool { return e.From.Namespace != namespace && e.To.Namespace != namespace })
	a.Workloads = slices.DeleteFunc(slices.Clone(a.Workloads), func(w WorkloadFlow) bool { return w.Namespace != namespace })
	return a
}

// shown returns a duration in milliseconds for people.
func shown(ms float64) string {
	switch {
	case ms == 0:
		return "-"
	case ms < 10:
		return strconv.FormatFloat(ms, 'f', 1, 64) + "ms"
	case ms < 10_000:
		return strconv.FormatFloat(ms, 'f', 0, 64) + "ms"
	}
	return strconv.FormatFloat(ms/1000, 'f', 0, 64) + "s"
}

// percent returns a share for people: no error is never shown as one, and one error never as none.
func percent(share float64) string {
	switch {
	case share == 0:
		return "0%"
	case share < .001:
		return "<0.1%"
	}
	return strings.TrimSuffix(strconv.FormatFloat(share*100, 'f', 1, 64), ".0") + "%"
}
