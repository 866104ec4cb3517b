package settings

import (
	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/security/compliance"
)

// MeshTLS returns the parameters of mutual TLS of the mesh that proxies terminate.
func (t *Settings) MeshTLS(r store.Reader) compliance.Parameters {
	v, _ := t.rows.Get(r, meshTLS)
	return t.compliance.Restrict(compliance.Parameters{Min: uint32(v.Number), Curves: v.List.Items()})
}

// ClientMeshTLS returns the parameters of proxies as clients of the mesh's mutual TLS. The server enforces the configured parameters.
func (t *Settings) ClientMeshTLS() compliance.Parameters {
	return t.compliance.Restrict(compliance.Parameters{})
}

// TLS returns the parameters of all TLS except the mesh's mutual TLS. given are the parameters that an object sets.
func (t *Settings) TLS(r store.Reader, given compliance.Parameters) compliance.Parameters {
	if len(given.Curves) == 0 {
		curves, _ := t.rows.Get(r, tlsCurves)
		given.Curves = curves.List.Items()
	}
	if len(given.Ciphers) == 0 {
		ciphers, _ := t.rows.Get(r, tlsCiphers)
		given.Ciphers = ciphers.List.Items()
	}
	return t.compliance.Restrict(given)
}

// AllowsTLS13 reports whether TLS 1.3 may be used where an object sets a minimum and a maximum version.
func (t *Settings) AllowsTLS13(low, high uint32) bool {
	const tls13 = 3
	p := t.compliance.Restrict(compliance.Parameters{Min: low, Max: high})
	return p.Max == 0 || p.Max == tls13
}

// SecretService returns the extension provider that serves the Secret with a name; nil if there is none.
func (t *Settings) SecretService(r store.Reader, name string) *meshconfig.MeshConfig_ExtensionProvider_SDSProvider {
	for _, p := range t.SecretServices(r) {
		if p.GetName() == name {
			return p
		}
	}
	return nil
}

// SecretServices returns the extension providers that serve Secrets.
func (t *Settings) SecretServices(r store.Reader) (list []*meshconfig.MeshConfig_ExtensionProvider_SDSProvider) {
	v, _ := t.rows.Get(r, secretServices)
	m, _ := v.Message.(*meshconfig.MeshConfig)
	for _, p := range m.GetExtensionProviders() {
		list = append(list, p.GetSds())
	}
	return list
}

// writeTLS replaces the settings for TLS.
func (t *Settings) writeTLS(tx *store.Txn, m *meshconfig.MeshConfig) {
	v := Value{List: intern.Of(api.Curves(m.GetMeshMTLS().GetEcdhCurves())...)}
	if m.GetMeshMTLS().GetMinProtocolVersion() == meshconfig.MeshConfig_TLSConfig_TLSV1_3 {
		v.Number = 3
	}
	t.rows.Set(tx, meshTLS, v)
	t.rows.Set(tx, tlsCurves, Value{List: intern.Of(api.Curves(m.GetTlsDefaults().GetEcdhCurves())...)})
	t.rows.Set(tx, tlsCiphers, Value{List: intern.Of(api.Ciphers(m.GetTlsDefaults().GetCipherSuites())...)})
	services := &meshconfig.MeshConfig{}
	for _, p := range m.GetExtensionProviders() {
		if p.GetSds() != nil {
			services.ExtensionProviders = append(services.ExtensionProviders, p)
		}
	}
	t.rows.Set(tx, secretServices, Value{Message: proto.CloneOf(services)})
}
