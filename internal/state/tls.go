package state

import (
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/compliance"
	"github.com/pilotmesh/pilot/internal/intern"
	"github.com/pilotmesh/pilot/internal/store"
)

// MeshTLS returns the parameters of mutual TLS of the mesh that proxies terminate.
func (t *Tables) MeshTLS(r store.Reader) compliance.Parameters {
	v, _ := t.Settings.Get(r, meshTLS)
	return t.options.Compliance.Restrict(compliance.Parameters{Min: uint32(v.Number), Curves: v.List.Items()})
}

// ClientMeshTLS returns the parameters of mutual TLS of the mesh that proxies begin. The other side decides about what is configured.
func (t *Tables) ClientMeshTLS() compliance.Parameters {
	return t.options.Compliance.Restrict(compliance.Parameters{})
}

// TLS returns the parameters of all TLS but that of the mesh, of which an object gives some.
func (t *Tables) TLS(r store.Reader, given compliance.Parameters) compliance.Parameters {
	if len(given.Curves) == 0 {
		curves, _ := t.Settings.Get(r, tlsCurves)
		given.Curves = curves.List.Items()
	}
	if len(given.Ciphers) == 0 {
		ciphers, _ := t.Settings.Get(r, tlsCiphers)
		given.Ciphers = ciphers.List.Items()
	}
	return t.options.Compliance.Restrict(given)
}

// writeTLS replaces the settings for TLS.
func (t *Tables) writeTLS(tx *store.Txn, m *meshconfig.MeshConfig) {
	v := Value{List: intern.Of(api.Curves(m.GetMeshMTLS().GetEcdhCurves())...)}
	if m.GetMeshMTLS().GetMinProtocolVersion() == meshconfig.MeshConfig_TLSConfig_TLSV1_3 {
		v.Number = 3
	}
	t.Settings.Set(tx, meshTLS, v)
	t.Settings.Set(tx, tlsCurves, Value{List: intern.Of(api.Curves(m.GetTlsDefaults().GetEcdhCurves())...)})
	t.Settings.Set(tx, tlsCiphers, Value{List: intern.Of(api.Ciphers(m.GetTlsDefaults().GetCipherSuites())...)})
}
