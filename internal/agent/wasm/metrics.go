package wasm

import (
	"fmt"
	"strings"
	"sync/atomic"
)

// metrics count lookups and fetches. They have the names of Istio's metrics.
type metrics struct{ hits, misses, good, bad atomic.Uint64 }

func (m *metrics) fetched(err error) {
	if err == nil {
		m.good.Add(1)
	} else {
		m.bad.Add(1)
	}
}

// Metrics returns the metrics in the Prometheus text format; nothing if no module was ever wanted.
func (c *Cache) Metrics() string {
	m := &c.metrics
	if m.hits.Load()+m.misses.Load() == 0 {
		return ""
	}
	c.mu.Lock()
	n := len(c.index)
	c.mu.Unlock()
	var out strings.Builder
	fmt.Fprintf(&out, "# HELP istio_agent_wasm_cache_entries References to Wasm modules that are at hand.\n"+
		"# TYPE istio_agent_wasm_cache_entries gauge\nistio_agent_wasm_cache_entries %d\n", n)
	fmt.Fprintf(&out, "# HELP istio_agent_wasm_cache_lookup_count How often a Wasm module was wanted that was at hand, or was not.\n"+
		"# TYPE istio_agent_wasm_cache_lookup_count counter\nistio_agent_wasm_cache_lookup_count{hit=\"true\"} %d\nistio_agent_wasm_cache_lookup_count{hit=\"false\"} %d\n",
		m.hits.Load(), m.misses.Load())
	fmt.Fprintf(&out, "# HELP istio_agent_wasm_remote_fetch_count Wasm modules that were fetched, or could not be.\n"+
		"# TYPE istio_agent_wasm_remote_fetch_count counter\nistio_agent_wasm_remote_fetch_count{result=\"success\"} %d\nistio_agent_wasm_remote_fetch_count{result=\"failure\"} %d\n",
		m.good.Load(), m.bad.Load())
	return out.String()
}
