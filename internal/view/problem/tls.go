package problem

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// clientTLS warns of a mode of TLS by which every request to an endpoint fails: one without mutual TLS of the mesh where a
// PeerAuthentication takes nothing else, or one that insists on it where none is taken.
func (f *findings) clientTLS(rule *state.DestinationRule, host string) {
	s, ok := f.q.services.Service.Get(f.r, service.HostView{Host: host, Viewer: f.q.scope.Viewer(f.r, host, f.key.Namespace)})
	if !ok || s.External {
		return
	}
	f.clientTLSOf(rule.Spec, nil, s)
	for n, subset := range rule.Spec.Subsets {
		if n < maxChecked && subset.GetTrafficPolicy() != nil {
			f.clientTLSOf(rule.Spec, subset, s)
		}
	}
}

// clientTLSOf checks the settings of a subset, or the settings of the whole service if subset is nil.
func (f *findings) clientTLSOf(rule *networking.DestinationRule, subset *networking.Subset, s *service.Service) {
	whole := &traffic.Policy{Top: rule.TrafficPolicy}
	for n, port := range s.Ports {
		tls := whole.ForPort(subset, port.Number).TLS
		if n == maxChecked || tls == nil {
			continue
		}
		for i, e := range f.q.services.Endpoints(f.r, s, port.Number) {
			if i == maxChecked {
				break
			}
			if mesh.HasAll(e.Labels, subset.GetLabels()) && f.failingTLS(rule, tls, s, port.Number, e) {
				break
			}
		}
	}
}

// failingTLS warns if requests to an endpoint with some TLS settings fail.
func (f *findings) failingTLS(rule *networking.DestinationRule, tls *networking.ClientTLSSettings, s *service.Service, port uint32, e mesh.PortEndpoint) bool {
	at, server := traffic.TLSField(rule, tls), f.q.services.Peers.Explain(f.r, s.Namespace, e.Labels, e.Port)
	insists := tls.GetMode() == networking.ClientTLSSettings_ISTIO_MUTUAL
	switch {
	case !insists && server.Mode == mesh.MTLSStrict && e.TakesMeshTLS():
		f.warn("rule-tls-mode", at, "by the mode %s requests to port %d of %q have no mutual TLS of the mesh, and %s, which is STRICT, takes nothing else: they fail; remove tls, so that mutual TLS is automatic",
			tls.GetMode(), port, s.Host, server.By)
	case insists && server.Mode == mesh.MTLSDisabled:
		f.warn("rule-tls-mode", at, "by the mode ISTIO_MUTUAL requests to port %d of %q have mutual TLS, and %s, which is DISABLE, takes none: they fail; remove tls, so that mutual TLS is automatic",
			port, s.Host, server.By)
	default:
		return false
	}
	return true
}
