package problem

import (
	"fmt"
	"strings"

	gateways "github.com/pilotmesh/pilot/internal/api/gateway"
	"github.com/pilotmesh/pilot/internal/state/gatewayrows"
	"github.com/pilotmesh/pilot/internal/view/gateway"
)

func (f *findings) ingress() {
	row, ok := f.q.tables.Gateways.Servers.Get(f.r, f.key)
	if !ok {
		return
	}
	standing := f.q.gateways.Standing(f.r, row.Admission)
	f.ingressClassOf(row.Admission, standing)
	if standing != gateway.Counts {
		return
	}
	if row.Ignored != "" {
		f.warn("ingress-ignored", row.Ignored, "it has no effect, because the Ingress has rules; move it to an Ingress without rules, which serves all hosts that no other has")
	}
	if l, lost := f.q.gateways.PlainLoss(f.r); lost {
		f.conflict("ingress-overruled", "spec.rules", "%s goes first, by age, and takes %s on port %d: no Ingress is served without TLS; give the Gateway another port", l.Winner.Gateway, taken(l.Winner.Kind()), l.Loser.Port)
	}
	checked := 0
	for _, s := range row.Servers {
		if s.Secure() && s.Credential() == "" {
			f.warn("ingress-no-secret", s.Field+".secretName", "no Secret is named, so its hosts are not served by HTTPS; name the Secret with the certificate")
			continue
		}
		for _, host := range s.Hosts {
			if checked++; !s.Secure() || checked > maxChecked {
				continue
			}
			f.certificates(s.Field, host.Name)
			if older, found := f.q.gateways.OlderGateway(f.r, host.Name, s.Port, row.Created); found {
				f.conflict("ingress-overruled", s.Field+".hosts", "%s goes first, by age, and has a server with TLS for %s on port %d: certificate and routes of this Ingress are not used there; remove one of them", older, hostText(host.Name), s.Port)
			}
		}
	}
	f.ingressRoutes()
}

// ingressClassOf warns of a class that does not exist.
func (f *findings) ingressClassOf(a gatewayrows.Admission, standing gateway.Standing) {
	if a.Class == "" || a.Annotated || standing == gateway.Off {
		return
	}
	if _, exists := f.q.tables.Gateways.Classes.Get(f.r, gateway.ClassKey(a.Class)); exists {
		return
	}
	effect := "the mesh does not serve this Ingress"
	if standing == gateway.Counts {
		effect = "the mesh serves this Ingress only because ingressControllerMode is DEFAULT"
	}
	f.warn("ingress-no-class", "spec.ingressClassName", "there is no IngressClass %q: %s", a.Class, effect)
}

// certificates warns of a certificate for a host that is not used because another object has one.
func (f *findings) certificates(field, host string) {
	for _, s := range f.q.gateways.Certificates(f.r, host) {
		switch {
		case s.Object != f.key || s.Field != field || s.Winner.Name == "":
		case s.Winner == f.key:
			f.conflict("ingress-overruled", field+".secretName", "the Ingress has another certificate for %s before: that one is used", hostText(host))
		default:
			f.conflict("ingress-overruled", field+".secretName", "%s goes first, by age or else by name, and has another certificate for %s: that one is used", s.Winner, hostText(host))
		}
	}
}

// ingressRoutes warns of routes that fail, or lose to others.
func (f *findings) ingressRoutes() {
	row, ok := f.q.tables.Gateways.Routes.Get(f.r, f.key)
	if !ok {
		return
	}
	seen := map[string]bool{}
	for _, route := range row.Routes {
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

func (f *findings) ingressHost(h *gateway.Host) {
	for _, rule := range h.Rules {
		switch {
		case rule.Object != f.key:
		case rule.Winner == f.key:
			f.conflict("ingress-overruled", rule.Field, "the Ingress has the same path of %s twice: this rule is ignored", hostText(h.Name))
		case rule.Winner.Name != "":
			f.conflict("ingress-overruled", rule.Field, "%s goes first, by age or else by name, and has the same path of %s: this rule is ignored", rule.Winner, hostText(h.Name))
		case rule.Trouble != "":
			hint := ""
			if strings.HasSuffix(rule.TroubleField, ".service.name") {
				hint = f.hostHint(rule.Target)
			}
			f.fail("ingress-no-backend", rule.TroubleField, "%s%s", rule.Trouble, hint)
		}
	}
}

func hostText(host string) string {
	if host == gateways.AnyHost {
		return "all hosts"
	}
	return fmt.Sprintf("the host %q", host)
}

// ingressClass finds nothing: the Ingresses of a class have the problems.
func (f *findings) ingressClass() {}
