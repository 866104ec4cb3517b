package problem

import (
	"fmt"

	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/gateway"
)

func (f *findings) ingress() {
	servers, ok := f.q.tables.Gateways.Servers.Get(f.r, f.key)
	if !ok {
		return
	}
	a := servers.Admission
	standing := f.q.gateways.Standing(f.r, a)
	if _, exists := f.q.tables.Gateways.Classes.Get(f.r, gateway.ClassKey(a.Class)); a.Class != "" && !a.Annotated && !exists && standing != gateway.Off {
		effect := "nobody serves this Ingress"
		if standing == gateway.Counts {
			effect = "it counts as one without a class"
		}
		f.warn("spec.ingressClassName", "there is no IngressClass %q: %s", a.Class, effect)
	}
	if standing != gateway.Counts {
		return
	}
	for _, s := range servers.Servers {
		if s.TLS && s.Credential == "" {
			f.warn(s.Field+".secretName", "no Secret is named, so its hosts are not served by HTTPS; name the Secret with the certificate")
		}
	}
	routes, _ := f.q.tables.Gateways.Routes.Get(f.r, f.key)
	if routes == nil {
		return
	}
	seen := map[string]bool{}
	for _, route := range routes.Routes {
		if seen[route.Host] {
			continue
		}
		if seen[route.Host] = true; len(seen) > maxChecked {
			return
		}
		if h, ok := f.q.gateways.Host(f.r, route.Host); ok {
			f.ingressHost(h)
		}
	}
}

// ingressHost warns of the rules of the Ingress for a host that fail, or lose to others.
func (f *findings) ingressHost(h *gateway.Host) {
	for _, s := range h.Servers {
		if s.Object == f.key && s.Winner.Name != "" {
			f.conflict(s.Field+".secretName", "%s has another certificate for %s and is older: that one is used", s.Winner, hostText(h.Name))
		}
	}
	for _, rule := range h.Rules {
		switch {
		case rule.Object != f.key:
		case rule.Winner == f.key:
			f.conflict(rule.Field, "the Ingress has the same path of %s twice: this rule is ignored", hostText(h.Name))
		case rule.Winner.Name != "":
			f.conflict(rule.Field, "%s has the same path of %s and goes before: this rule is ignored", rule.Winner, hostText(h.Name))
		case rule.Trouble != "":
			f.warn(rule.TroubleField, "%s", rule.Trouble)
		}
	}
}

func hostText(host string) string {
	if host == state.AnyHost {
		return "all hosts"
	}
	return fmt.Sprintf("the host %q", host)
}

// ingressClass finds nothing: the Ingresses of a class have the problems.
func (f *findings) ingressClass() {}
