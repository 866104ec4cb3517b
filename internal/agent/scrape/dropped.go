package scrape

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// overflow begins the names of Envoy's counters of values that it did not record, because it had as many series of a type as it may keep. The
// type follows.
const overflow = "envoy_server_stats_overflow_"

// boundedTypes are the types of series whose number is bounded.
func boundedTypes() []string { return []string{counter, histogram} }

// overflowOf returns the type of series that a sample of Envoy counts the lost values of; empty for other samples.
func overflowOf(l *line) string {
	kind, _ := strings.CutPrefix(string(l.name), overflow)
	if kind == string(l.name) || !slices.Contains(boundedTypes(), kind) {
		return ""
	}
	return kind
}

// losses are the values that Envoy did not record, by the type of series, as the last scrape has found them.
type losses struct {
	mu   sync.Mutex
	last map[string]float64
}

// note takes in what a scrape has found. It returns the types that lose values now and did not before, or not since Envoy was started again.
func (l *losses) note(found map[string]float64) (began []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		l.last = map[string]float64{}
	}
	for _, kind := range slices.Sorted(maps.Keys(found)) {
		n, was := found[kind], l.last[kind]
		if n > 0 && (was == 0 || n < was) {
			began = append(began, kind)
		}
		l.last[kind] = n
	}
	return began
}

// lost writes the metric of lost values, as far as Envoy has said how many there are, and the log of the first ones. An answer that is cut off
// counts: Envoy writes its counters first.
func (h *handler) lost(out *strings.Builder, sources []*source) {
	for _, src := range sources {
		if src.kind != ofEnvoy || len(src.report.lost) == 0 {
			continue
		}
		for _, kind := range h.losses.note(src.report.lost) {
			h.Log.Warn("Envoy has as many series of metrics as it keeps, and does not record further ones; remove tags whose values clients choose",
				"type", kind, "values_lost", src.report.lost[kind])
		}
		const name = "pilot_agent_metrics_dropped_total"
		fmt.Fprintf(out, "# HELP %s Values of metrics that Envoy did not record, because it had as many series of the type as it keeps.\n# TYPE %s counter\n", name, name)
		for _, kind := range slices.Sorted(maps.Keys(src.report.lost)) {
			fmt.Fprintf(out, "%s{type=%q} %v\n", name, kind, src.report.lost[kind])
		}
	}
}
