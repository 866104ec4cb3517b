package dns

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// metrics count queries and answers. They have the names of Istio's metrics where Istio has them.
type metrics struct {
	requests, answered, unanswered, looped, refused atomic.Uint64
	// upstream counts queries to other servers, and failures the queries without an answer.
	upstream, failures atomic.Uint64
	// took are the durations of queries to other servers, by the upper bounds of durations; the last one is without bound.
	took  [len(bounds) + 1]atomic.Uint64
	total atomic.Int64 // nanoseconds
}

// bounds are the upper bounds of the classes of durations.
var bounds = [...]time.Duration{
	500 * time.Microsecond, time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second,
}

func (m *metrics) observe(d time.Duration) {
	i := 0
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	m.took[i].Add(1)
	m.total.Add(int64(d))
}

// Metrics returns the metrics in the Prometheus text format.
func (p *Proxy) Metrics() string {
	var out strings.Builder
	m := &p.metrics
	counter := func(name, help string, v uint64) {
		fmt.Fprintf(&out, "# HELP %s %s\n# TYPE %s counter\n%s %d\n", name, help, name, name, v)
	}
	counter("istio_agent_dns_requests_total", "DNS queries that the agent has received.", m.requests.Load())
	counter("pilot_agent_dns_answered_total", "DNS queries that the agent has answered from the names of the mesh.", m.answered.Load())
	counter("pilot_agent_dns_unanswered_total", "DNS queries that no other server has answered.", m.unanswered.Load())
	counter("pilot_agent_dns_loops_total", "DNS queries of the agent that came back to it.", m.looped.Load())
	counter("pilot_agent_dns_refused_total", "DNS queries that were not passed on because too many others were under way.", m.refused.Load())
	counter("istio_agent_dns_upstream_requests_total", "DNS queries that the agent has sent to other servers.", m.upstream.Load())
	counter("istio_agent_dns_upstream_failures_total", "DNS queries of the agent that another server has not answered.", m.failures.Load())
	const took = "istio_agent_dns_upstream_request_duration_seconds"
	fmt.Fprintf(&out, "# HELP %s How long other servers take to answer.\n# TYPE %s histogram\n", took, took)
	sum := uint64(0)
	for i, b := range bounds {
		sum += m.took[i].Load()
		fmt.Fprintf(&out, "%s_bucket{le=\"%g\"} %d\n", took, b.Seconds(), sum)
	}
	sum += m.took[len(bounds)].Load()
	fmt.Fprintf(&out, "%s_bucket{le=\"+Inf\"} %d\n%s_sum %g\n%s_count %d\n", took, sum, took, time.Duration(m.total.Load()).Seconds(), took, sum)
	s := p.Status()
	connected := 0
	if s.Connected {
		connected = 1
	}
	fmt.Fprintf(&out, "# HELP pilot_agent_dns_names Names of the mesh that the agent knows.\n# TYPE pilot_agent_dns_names gauge\npilot_agent_dns_names %d\n", s.Names)
	fmt.Fprintf(&out, "# HELP pilot_agent_dns_connected Whether the names are up to date, because the control plane is connected.\n# TYPE pilot_agent_dns_connected gauge\npilot_agent_dns_connected %d\n", connected)
	return out.String()
}
