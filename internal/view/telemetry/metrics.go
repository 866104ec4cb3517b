package telemetry

import (
	"maps"
	"slices"

	telemetryapi "istio.io/api/telemetry/v1alpha1"

	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/provider"
)

// Metric is a metric that proxies report.
type Metric struct {
	ID telemetryapi.MetricSelector_IstioMetric
	// Removed are the names of the usual tags without which it is reported, and Tags are the tags that differ from the usual ones, or add to them. Both
	// are sorted.
	Removed []string
	Tags    []MetricTag
}

// MetricTag is a tag of a metric.
type MetricTag struct {
	Name string
	// Value is an expression in CEL.
	Value string
}

// MetricsOf returns the metrics of the proxies to which a set applies, in the order of their numbers.
func MetricsOf(t *state.Tables, r *query.Reader, s Set, side Side) []Metric {
	return mergeMetrics(s.Specs(t, r), t.DefaultMetrics(r), side, func(name string) bool {
		p, _ := t.Telemetry.ProviderFor(r, name, provider.ForMetrics)
		return p != nil
	})
}

// mergeMetrics merges the metrics of Telemetries for the first of their providers that is known.
func mergeMetrics(specs []*telemetryapi.Telemetry, defaults []string, side Side, known func(string) bool) []Metric {
	var entries []*telemetryapi.Metrics
	names := defaults
	for _, s := range specs {
		for _, e := range s.GetMetrics() {
			entries = append(entries, e)
			if own := namesOf(e.GetProviders()); len(own) > 0 {
				names = own
			}
		}
	}
	at := slices.IndexFunc(names, known)
	if at < 0 {
		return nil
	}
	all := map[telemetryapi.MetricSelector_IstioMetric]*merged{}
	for _, id := range allMetrics() {
		all[id] = &merged{removed: map[string]bool{}, tags: map[string]string{}}
	}
	about := defaults
	for _, e := range entries {
		if own := namesOf(e.GetProviders()); len(own) > 0 {
			about = own
		}
		if slices.Contains(about, names[at]) {
			override(all, e.GetOverrides(), side)
		}
	}
	var list []Metric
	for _, id := range allMetrics() {
		if m := all[id]; !m.off {
			list = append(list, m.metric(id))
		}
	}
	return list
}

// allMetrics returns the metrics of the mesh, by number. Custom metrics are not among them.
func allMetrics() (list []telemetryapi.MetricSelector_IstioMetric) {
	for n := range telemetryapi.MetricSelector_IstioMetric_name {
		if id := telemetryapi.MetricSelector_IstioMetric(n); id != telemetryapi.MetricSelector_ALL_METRICS {
			list = append(list, id)
		}
	}
	slices.Sort(list)
	return list
}

// merged is what the overrides so far make of a metric.
type merged struct {
	off     bool
	removed map[string]bool
	tags    map[string]string
}

func (m *merged) metric(id telemetryapi.MetricSelector_IstioMetric) Metric {
	v := Metric{ID: id, Removed: slices.Sorted(maps.Keys(m.removed))}
	for _, name := range slices.Sorted(maps.Keys(m.tags)) {
		v.Tags = append(v.Tags, MetricTag{name, m.tags[name]})
	}
	return v
}

// override applies overrides in their order.
func override(all map[telemetryapi.MetricSelector_IstioMetric]*merged, list []*telemetryapi.MetricsOverrides, side Side) {
	for _, o := range list {
		if !side.in(o.GetMatch().GetMode()) || o.GetMatch().GetCustomMetric() != "" {
			continue
		}
		one := o.GetMatch().GetMetric()
		for id, m := range all {
			if one == telemetryapi.MetricSelector_ALL_METRICS || one == id {
				m.apply(o)
			}
		}
	}
}

func (m *merged) apply(o *telemetryapi.MetricsOverrides) {
	if o.GetDisabled() != nil {
		m.off = o.GetDisabled().GetValue()
	}
	for name, tag := range o.GetTagOverrides() {
		if tag.GetOperation() == telemetryapi.MetricsOverrides_TagOverride_REMOVE {
			m.removed[name] = true
			delete(m.tags, name)
			continue
		}
		delete(m.removed, name)
		m.tags[name] = tag.GetValue()
	}
}

// Measured reports whether any proxy reports metrics of the mesh.
func Measured(t *state.Tables, r *query.Reader) bool {
	for _, name := range t.DefaultMetrics(r) {
		if p, _ := t.Telemetry.ProviderFor(r, name, provider.ForMetrics); p != nil {
			return true
		}
	}
	return t.Telemetry.Measuring.Group(r, struct{}{}).Len() > 0
}
