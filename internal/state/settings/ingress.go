package settings

import (
	"cmp"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api/gateway"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

// Ingress returns the mesh settings about Ingresses.
func (t *Settings) Ingress(r store.Reader) gateway.IngressSettings {
	mode, _ := t.rows.Get(r, ingressMode)
	normal := gateway.DefaultIngressSettings()
	return gateway.IngressSettings{
		Mode: gateway.IngressMode(mode.Number), Class: t.text(r, ingressClass, normal.Class), Gateway: t.text(r, ingressGateway, normal.Gateway),
		Service: t.text(r, ingressService, normal.Service),
	}
}

func (t *Settings) writeIngressSettings(tx *store.Txn, m *meshconfig.MeshConfig) {
	s := gateway.DefaultIngressSettings()
	switch m.GetIngressControllerMode() {
	case meshconfig.MeshConfig_OFF:
		s.Mode = gateway.IngressOff
	case meshconfig.MeshConfig_DEFAULT:
		s.Mode = gateway.IngressDefault
	case meshconfig.MeshConfig_STRICT, meshconfig.MeshConfig_UNSPECIFIED:
	}
	s.Class = cmp.Or(m.GetIngressClass(), s.Class)
	if s.Service = m.GetIngressService(); s.Service != gateway.IngressService {
		s.Gateway = cmp.Or(s.Service, s.Gateway)
	}
	s.Gateway = cmp.Or(m.GetIngressSelector(), s.Gateway)
	t.rows.Set(tx, ingressMode, Value{Number: int64(s.Mode)})
	t.rows.Set(tx, ingressClass, Value{Text: s.Class})
	t.rows.Set(tx, ingressGateway, Value{Text: s.Gateway})
	t.rows.Set(tx, ingressService, Value{Text: s.Service})
}
