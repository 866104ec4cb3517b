package state

import (
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/store"
)

// AccessLog is where and how proxies log what they forward.
type AccessLog struct {
	// File is where to; empty: nowhere.
	File string
	// Format is a text, or a JSON object if JSON; empty: the default one.
	Format string
	JSON   bool
	// NoListeners leaves out connections that no filter chain of a listener takes.
	NoListeners bool
}

// AccessLog is the mesh's.
func (t *Tables) AccessLog(r store.Reader) AccessLog {
	v, _ := t.Settings.Get(r, accessLog)
	return v.Log
}

// LogEnvoy is the minor of the oldest Envoy 1 that takes the format of the mesh's access log.
func (t *Tables) LogEnvoy(r store.Reader) uint32 {
	v, _ := t.Settings.Get(r, logEnvoy)
	return uint32(v.Number)
}

func (t *Tables) writeAccessLog(tx *store.Txn, m *meshconfig.MeshConfig) {
	var v, oldest Value
	if file := m.GetAccessLogFile(); file != "" {
		v.Log = AccessLog{
			File: file, Format: m.GetAccessLogFormat(), JSON: m.GetAccessLogEncoding() == meshconfig.MeshConfig_JSON,
			NoListeners: m.GetDisableEnvoyListenerLog(),
		}
		oldest.Number = int64(api.LogEnvoy(m))
	}
	t.Settings.Set(tx, accessLog, v)
	t.Settings.Set(tx, logEnvoy, oldest)
}
