package settings

import (
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

// AccessLog is where and how proxies log requests and connections, unless a Telemetry or a default provider says otherwise.
type AccessLog struct {
	// File is the path of the log; empty to disable the log. Service sends logs to the service that the bootstrap of proxies names.
	File    string
	Service bool
	// Format is a text, or a JSON object if JSON is true; empty for the default format.
	Format string
	JSON   bool
	// NoListeners disables the log of connections that no filter chain of a listener matches.
	NoListeners bool
}

// AccessLog returns the access log of the mesh.
func (t *Settings) AccessLog(r store.Reader) AccessLog {
	v, _ := t.rows.Get(r, accessLog)
	return v.Log
}

// LogEnvoy returns the minor version of the oldest Envoy 1 that accepts the formats of all access logs.
func (t *Settings) LogEnvoy(r store.Reader) uint32 {
	v, _ := t.rows.Get(r, logEnvoy)
	return uint32(v.Number)
}

func (t *Settings) writeAccessLog(tx *store.Txn, m *meshconfig.MeshConfig) {
	var v, oldest Value
	v.Log = AccessLog{
		File: m.GetAccessLogFile(), Format: m.GetAccessLogFormat(), JSON: m.GetAccessLogEncoding() == meshconfig.MeshConfig_JSON,
		Service:     m.GetEnableEnvoyAccessLogService() && m.GetDefaultConfig().GetEnvoyAccessLogService().GetAddress() != "",
		NoListeners: m.GetDisableEnvoyListenerLog(),
	}
	oldest.Number = int64(api.LogEnvoy(m))
	t.rows.Set(tx, accessLog, v)
	t.rows.Set(tx, logEnvoy, oldest)
}
