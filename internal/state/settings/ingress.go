package settings

import (
	"cmp"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/gateways"
	"github.com/pilotmesh/pilot/internal/store"
)

// Ingress returns the mesh settings about Ingresses.
func (t *Settings) Ingress(r store.Reader) gateways.IngressSettings {
	mode, _ := t.rows.Get(r, ingressMode)
	normal := gateways.DefaultIngressSettings()
	return gateways.IngressSettings{
		Mode: gateways.IngressMode(mode.Number), Class: t.text(r, ingressClass, normal.Class), Gateway: t.text(r, ingressGateway, normal.Gateway),
	}
}

func (t *Settings) writeIngressSettings(tx *store.Txn, m *meshconfig.MeshConfig) {
	s := gateways.DefaultIngressSettings()
	switch m.GetIngressControllerMode() {
	case meshconfig.MeshConfig_OFF:
		s.Mode = gateways.IngressOff
	case meshconfig.MeshConfig_DEFAULT:
		s.Mode = gateways.IngressDefault
	case meshconfig.MeshConfig_STRICT, meshconfig.MeshConfig_UNSPECIFIED:
	}
	s.Class = cmp.Or(m.GetIngressClass(), s.Class)
	if service := m.GetIngressService(); service != gateways.IngressService {
		s.Gateway = cmp.Or(service, s.Gateway)
	}
	s.Gateway = cmp.Or(m.GetIngressSelector(), s.Gateway)
	t.rows.Set(tx, ingressMode, Value{Number: int64(s.Mode)})
	t.rows.Set(tx, ingressClass, Value{Text: s.Class})
	t.rows.Set(tx, ingressGateway, Value{Text: s.Gateway})
}
