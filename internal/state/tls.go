package state

import (
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/intern"
	"github.com/pilotmesh/pilot/internal/store"
)

// MeshTLS are the settings of proxies for mutual TLS of the mesh that they terminate.
type MeshTLS struct {
	// Only13 refuses TLS 1.2.
	Only13 bool
	// Curves are the curves for the exchange of keys; empty for Envoy's.
	Curves []string
}

// TLSDefaults are the settings for all TLS but that of the mesh. What is empty is Envoy's default.
type TLSDefaults struct{ Curves, Ciphers []string }

// MeshTLS returns the settings for mutual TLS of the mesh.
func (t *Tables) MeshTLS(r store.Reader) MeshTLS {
	v, _ := t.Settings.Get(r, meshTLS)
	return MeshTLS{v.Number != 0, v.List.Items()}
}

// TLSDefaults returns the settings for all TLS but that of the mesh.
func (t *Tables) TLSDefaults(r store.Reader) TLSDefaults {
	curves, _ := t.Settings.Get(r, tlsCurves)
	ciphers, _ := t.Settings.Get(r, tlsCiphers)
	return TLSDefaults{curves.List.Items(), ciphers.List.Items()}
}

// writeTLS replaces the settings for TLS.
func (t *Tables) writeTLS(tx *store.Txn, m *meshconfig.MeshConfig) {
	v := Value{List: intern.Of(api.Curves(m.GetMeshMTLS().GetEcdhCurves())...)}
	if m.GetMeshMTLS().GetMinProtocolVersion() == meshconfig.MeshConfig_TLSConfig_TLSV1_3 {
		v.Number = 1
	}
	t.Settings.Set(tx, meshTLS, v)
	t.Settings.Set(tx, tlsCurves, Value{List: intern.Of(api.Curves(m.GetTlsDefaults().GetEcdhCurves())...)})
	t.Settings.Set(tx, tlsCiphers, Value{List: intern.Of(api.Ciphers(m.GetTlsDefaults().GetCipherSuites())...)})
}
