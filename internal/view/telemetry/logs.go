package telemetry

import (
	"maps"
	"slices"

	telemetryapi "istio.io/api/telemetry/v1alpha1"

	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/state"
)

// Log is a log of requests and connections.
type Log struct {
	// Provider is the name of the provider that writes it.
	Provider string
	// Filter is an expression in CEL that selects requests and connections; empty for all.
	Filter string
}

// Logs returns the logs of the proxies to which a set applies, by name. mesh is true if these have the log of the mesh configuration instead,
// because nothing names providers.
func Logs(t *state.Tables, r *query.Reader, s Set, side Side) (list []Log, mesh bool) {
	return mergeLogs(s.Specs(t, r), t.DefaultLogs(r), side)
}

func mergeLogs(specs []*telemetryapi.Telemetry, defaults []string, side Side) (list []Log, mesh bool) {
	m := logMerge{side: side, names: defaults, filters: map[string]string{}}
	said := false
	for _, s := range specs {
		if len(s.GetAccessLogging()) > 0 {
			said = true
			m.add(s.GetAccessLogging())
		}
	}
	if !said {
		for _, name := range defaults {
			m.filters[name] = ""
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.filters)) {
		list = append(list, Log{name, m.filters[name]})
	}
	return list, !said && len(defaults) == 0
}

// logMerge merges the logs of Telemetries, one after the other.
type logMerge struct {
	side Side
	// names are the providers of entries that name none: the ones of the entry before, or all of the Telemetry before.
	names []string
	// filters has the providers that log, with their filters.
	filters map[string]string
}

// add merges the entries of one Telemetry. If they name providers, the ones of other Telemetries log no more.
func (m *logMerge) add(entries []*telemetryapi.AccessLogging) {
	var named []string
	for _, e := range entries {
		if m.side.in(e.GetMatch().GetMode()) {
			named = append(named, namesOf(e.GetProviders())...)
		}
	}
	if len(named) > 0 {
		maps.DeleteFunc(m.filters, func(name, _ string) bool { return !slices.Contains(named, name) })
	}
	for _, e := range entries {
		if !m.side.in(e.GetMatch().GetMode()) {
			continue
		}
		if own := namesOf(e.GetProviders()); len(own) > 0 {
			m.names = own
		}
		for _, name := range m.names {
			if e.GetDisabled().GetValue() {
				delete(m.filters, name)
			} else {
				m.filters[name] = e.GetFilter().GetExpression()
			}
		}
	}
	if len(named) > 0 {
		m.names = named
	}
}
