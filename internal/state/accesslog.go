package state

import (
	"strings"

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

const (
	logJSON = 1 << iota
	logNoListeners
)

// AccessLog is the mesh's.
func (t *Tables) AccessLog(r store.Reader) AccessLog {
	v, _ := t.Settings.Get(r, accessLog)
	file, format, _ := strings.Cut(v.Text, "\x00")
	return AccessLog{File: file, Format: format, JSON: v.Number&logJSON != 0, NoListeners: v.Number&logNoListeners != 0}
}

// LogEnvoy is the minor of the oldest Envoy 1 that takes the format of the mesh's access log.
func (t *Tables) LogEnvoy(r store.Reader) uint32 {
	v, _ := t.Settings.Get(r, logEnvoy)
	return uint32(v.Number)
}

func (t *Tables) writeAccessLog(tx *store.Txn, m *meshconfig.MeshConfig) {
	var v, oldest Value
	if file := m.GetAccessLogFile(); file != "" {
		v.Text = file + "\x00" + m.GetAccessLogFormat()
		oldest.Number = int64(api.LogEnvoy(m))
		if m.GetAccessLogEncoding() == meshconfig.MeshConfig_JSON {
			v.Number |= logJSON
		}
		if m.GetDisableEnvoyListenerLog() {
			v.Number |= logNoListeners
		}
	}
	t.Settings.Set(tx, accessLog, v)
	t.Settings.Set(tx, logEnvoy, oldest)
}
