package state

import (
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/store"
)

// Slashes is what is done about encoded slashes in paths.
type Slashes uint8

// What is done about encoded slashes.
const (
	// KeepSlashes leaves %2F and its like as they are.
	KeepSlashes Slashes = iota
	// DecodeSlashes turns them into slashes.
	DecodeSlashes
)

// HTTPSettings are what the mesh configuration says about how proxies take requests, apart from routes. A number holds
// them in their row; the server's name is the text.
type HTTPSettings struct {
	// NormalizePath resolves dots; MergeSlashes makes several slashes one.
	NormalizePath, MergeSlashes bool
	Slashes                     Slashes
	// KeepServer leaves the application's server header; else Server replaces it, if it is not empty.
	KeepServer bool
	Server     string
	// NoRequestID adds no request id; NoDebugHeaders none of Envoy's own headers.
	NoRequestID, NoDebugHeaders bool
	// KeepCase keeps the case of the names of HTTP/1 headers.
	KeepCase bool
}

// What the number of the row of HTTP settings is made of.
const (
	normalizePath = 1 << iota
	mergeSlashes
	decodeSlashes
	keepServer
	noRequestID
	noDebugHeaders
	keepCase
)

// HTTPSettings is what the mesh configuration says about how proxies take requests.
func (t *Tables) HTTPSettings(r store.Reader) HTTPSettings {
	v, ok := t.Settings.Get(r, httpSettings)
	if !ok {
		v.Number = normalizePath
	}
	has := func(bit int64) bool { return v.Number&bit != 0 }
	s := HTTPSettings{
		NormalizePath: has(normalizePath), MergeSlashes: has(mergeSlashes), KeepServer: has(keepServer), Server: v.Text,
		NoRequestID: has(noRequestID), NoDebugHeaders: has(noDebugHeaders), KeepCase: has(keepCase),
	}
	if has(decodeSlashes) {
		s.Slashes = DecodeSlashes
	}
	return s
}

func (t *Tables) writeHTTPSettings(tx *store.Txn, m *meshconfig.MeshConfig) {
	var v Value
	set := func(on bool, bits int64) {
		if on {
			v.Number |= bits
		}
	}
	switch m.GetPathNormalization().GetNormalization() {
	case meshconfig.MeshConfig_ProxyPathNormalization_NONE:
	case meshconfig.MeshConfig_ProxyPathNormalization_MERGE_SLASHES:
		set(true, normalizePath|mergeSlashes)
	case meshconfig.MeshConfig_ProxyPathNormalization_DECODE_AND_MERGE_SLASHES:
		set(true, normalizePath|mergeSlashes|decodeSlashes)
	default:
		set(true, normalizePath)
	}
	h := m.GetDefaultConfig().GetProxyHeaders()
	set(h.GetServer().GetDisabled().GetValue(), keepServer)
	set(h.GetRequestId().GetDisabled().GetValue(), noRequestID)
	set(h.GetEnvoyDebugHeaders().GetDisabled().GetValue(), noDebugHeaders)
	set(h.GetPreserveHttp1HeaderCase().GetValue(), keepCase)
	v.Text = h.GetServer().GetValue()
	t.Settings.Set(tx, httpSettings, v)
}

// DetectionTimeout bounds how long a connection's first bytes are waited for to tell its protocol; 0: for ever.
func (t *Tables) DetectionTimeout(r store.Reader) time.Duration {
	v, _ := t.Settings.Get(r, detectionTimeout)
	return time.Duration(v.Number)
}

// InboundLocalhost says that applications are reached at the loopback address, not at the one that was dialled.
func (t *Tables) InboundLocalhost(r store.Reader) bool {
	v, _ := t.Settings.Get(r, inboundLocalhost)
	return v.Number != 0
}

// HTTPProxyPort is the port at the loopback address where proxies take requests for whichever host and port these name; 0:
// nowhere.
func (t *Tables) HTTPProxyPort(r store.Reader) uint32 {
	v, _ := t.Settings.Get(r, httpProxyPort)
	return uint32(v.Number)
}

func (t *Tables) writeConnectionSettings(tx *store.Txn, m *meshconfig.MeshConfig) {
	t.writeHTTPSettings(tx, m)
	t.Settings.Set(tx, detectionTimeout, Value{Number: int64(m.GetProtocolDetectionTimeout().AsDuration())})
	local := Value{}
	if p := m.GetInboundTrafficPolicy(); p.GetMode() == meshconfig.MeshConfig_InboundTrafficPolicy_LOCALHOST {
		local.Number = 1
	}
	t.Settings.Set(tx, inboundLocalhost, local)
	t.Settings.Set(tx, httpProxyPort, Value{Number: int64(m.GetProxyHttpPort())})
	t.writeAccessLog(tx, m)
}
