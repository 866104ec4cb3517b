package status

import (
	"fmt"
	"strings"
)

// discoveryMetrics returns the metrics of the way to the control plane, in the Prometheus text format.
func discoveryMetrics(d Discovery) string {
	var out strings.Builder
	gauge := func(name, help string, value int64) {
		fmt.Fprintf(&out, "# HELP %s %s\n# TYPE %s gauge\n%s %d\n", name, help, name, name, value)
	}
	since, stale := d.Stale()
	unreachable := int64(0)
	if stale {
		unreachable = since.Unix()
	}
	gauge("pilot_agent_control_plane_unreachable_since_seconds", "Since when the control plane cannot be reached, in seconds since 1970; 0 while it can.", unreachable)
	kept := d.Kept()
	gauge("pilot_agent_last_known_good_resources", "Resources of the last known good configuration.", int64(kept.Resources))
	gauge("pilot_agent_last_known_good_bytes", "Size of the last known good configuration, in bytes.", int64(kept.Bytes))
	saved := int64(0)
	if !kept.Saved.IsZero() {
		saved = kept.Saved.Unix()
	}
	gauge("pilot_agent_last_known_good_saved_seconds", "When the last known good configuration was stored, in seconds since 1970; 0 if it was not.", saved)
	failing := int64(0)
	if kept.Problem != "" {
		failing = 1
	}
	gauge("pilot_agent_last_known_good_failing", "1 if the last known good configuration cannot be stored, or could not be read.", failing)
	if h, known := d.Health(); known {
		healthy := int64(0)
		if h.Healthy {
			healthy = 1
		}
		gauge("pilot_agent_workload_healthy", "Whether the workload is healthy, as it is reported to the control plane.", healthy)
	}
	return out.String()
}
