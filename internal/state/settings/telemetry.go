package settings

import (
	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

// DefaultLogs returns the names of the providers that log where no Telemetry names any.
func (t *Settings) DefaultLogs(r store.Reader) []string { return t.list(r, defaultLogs) }

// DefaultTracers returns the names of the providers that trace where no Telemetry names any. Only the first one counts.
func (t *Settings) DefaultTracers(r store.Reader) []string { return t.list(r, defaultTracers) }

// DefaultMetrics returns the names of the providers of metrics where no Telemetry names any.
func (t *Settings) DefaultMetrics(r store.Reader) []string { return t.list(r, defaultMetrics) }

func (t *Settings) list(r store.Reader, s Setting) []string {
	v, _ := t.rows.Get(r, s)
	return v.List.Items()
}

// Tracing returns the settings for tracing in defaultConfig; never nil. bootstrap is true if they name a collector of spans, which proxies
// then have in their bootstrap, and tracing is not disabled.
func (t *Settings) Tracing(r store.Reader) (s *meshconfig.Tracing, bootstrap bool) {
	v, _ := t.rows.Get(r, tracing)
	if m, ok := v.Message.(*meshconfig.Tracing); ok {
		return m, v.Number != 0
	}
	return &meshconfig.Tracing{}, v.Number != 0
}

// writeTelemetry replaces the settings for logs, traces and metrics that are not about single providers.
func (t *Settings) writeTelemetry(tx *store.Txn, m *meshconfig.MeshConfig) {
	d := m.GetDefaultProviders()
	t.rows.Set(tx, defaultLogs, Value{List: intern.Of(d.GetAccessLogging()...)})
	t.rows.Set(tx, defaultTracers, Value{List: intern.Of(d.GetTracing()...)})
	t.rows.Set(tx, defaultMetrics, Value{List: intern.Of(d.GetMetrics()...)})
	var v Value
	own := m.GetDefaultConfig().GetTracing()
	if own != nil {
		v.Message = proto.CloneOf(own)
	}
	address := m.GetDefaultConfig().GetZipkinAddress() //nolint:staticcheck // deprecated, and still in use
	if m.GetEnableTracing() && (own.GetTracer() != nil || address != "") {
		v.Number = 1
	}
	t.rows.Set(tx, tracing, v)
}
