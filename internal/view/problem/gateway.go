package problem

import (
	"fmt"
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	gateways "github.com/pilotmesh/pilot/internal/api/gateway"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/view/gateway"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/transport"
)

// gateway warns of a Gateway that no gateway serves, and of servers of a Gateway that are not used, because servers of another Gateway go
// first.
func (f *findings) gateway() {
	selector, ok := f.q.tables.Gateways.Selectors.Get(f.r, f.key)
	if !ok {
		return
	}
	f.serverCredentials()
	reported := len(f.list)
	if f.servedByNone(selector); len(f.list) == reported {
		f.unbound()
	}
	for _, p := range f.serving(f.key, selector) {
		for _, l := range f.q.gateways.Losses(f.r, p.Served, f.key) {
			f.lostServer(l)
		}
	}
}

// servedByNone warns of a selector that no known workload has and no connected gateway.
func (f *findings) servedByNone(selector mesh.Labels) {
	if selector.Empty() {
		return // any gateway
	}
	labels, where := mesh.LabelMap(selector), ""
	if f.q.tables.ScopesGateways() {
		where = fmt.Sprintf(" of namespace %q", f.key.Namespace)
		if f.q.services.MayHaveWorkload(f.r, f.key.Namespace, labels) {
			return
		}
	} else if f.q.services.MayHaveWorkloadAnywhere(f.r, f.key.Namespace, labels) {
		return
	}
	for range f.routers(f.key.Namespace, selector) {
		return
	}
	f.warn("selector-no-workload", "spec.selector", "no workload%s is known that has the labels %s: no pod or endpoint is declared with them, and no such gateway is connected; nothing serves this Gateway%s",
		where, mesh.FormatLabels(labels), f.gatewayHint(selector))
}

// routers yields the connected gateways with all labels of a selector that may serve a Gateway of a namespace.
func (f *findings) routers(namespace string, selector mesh.Labels) func(yield func(id string) bool) {
	return func(yield func(string) bool) {
		var least omap.Map[omap.Name, omap.Unit]
		for n, l := range selector.Items() {
			if with := f.q.tables.RoutersWith.Group(f.r, l); n == 0 || with.Len() < least.Len() {
				least = with
			}
		}
		for id := range least.All() {
			p, ok := f.q.tables.Proxies.Get(f.r, string(id))
			if !ok || f.q.tables.ScopesGateways() && p.Namespace != namespace {
				continue
			}
			lacks := func(l mesh.Label) bool { return !p.Labels.Has(l) }
			if !slices.ContainsFunc(selector.Items(), lacks) && !yield(string(id)) {
				return
			}
		}
	}
}

// gatewayHint proposes a label of connected gateways in the place of one that none has.
func (f *findings) gatewayHint(selector mesh.Labels) string {
	var have []mesh.Label
	checked := 0
	for id := range f.q.tables.RoutersWith.Group(f.r, mesh.Label{}).All() {
		if checked++; checked > maxChecked {
			break
		}
		if p, ok := f.q.tables.Proxies.Get(f.r, string(id)); ok {
			have = append(have, p.Labels.Items()...)
		}
	}
	slices.SortFunc(have, mesh.Label.Compare)
	have = slices.Compact(have)
	for l := range selector.All() {
		if hint := labelHint(l, have); hint != "" && !slices.Contains(have, l) {
			return hint
		}
	}
	return ""
}

// serving returns the gateways that serve a Gateway, each configuration once: the connected ones, whose labels decide which other Gateways they serve;
// while none is connected, gateways that only Gateways with the same selector select.
func (f *findings) serving(k api.Key, selector mesh.Labels) (list []gateway.Proxies) {
	checked := 0
	for id := range f.routers(k.Namespace, selector) {
		if checked++; checked > maxChecked {
			break
		}
		c, ok := f.q.scope.Class.Get(f.r, id)
		if !ok || !c.Selectors.Has(f.q.scope.SelectorOf(k.Namespace, selector)) {
			continue
		}
		p := gateway.Proxies{Served: gateway.ServedOf(c), Namespace: c.Namespace, Labels: c.Labels, Rules: scope.RulesOf(c)}
		if !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		list = append(list, gateway.Proxies{Served: f.q.gateways.SameSelector(f.r, k.Namespace, selector), Namespace: k.Namespace})
	}
	return list
}

func (f *findings) lostServer(l gateway.Loss) {
	winner := fmt.Sprintf("%s goes first, by age or else by name, and", l.Winner.Gateway)
	if l.Winner.Gateway == f.key {
		winner = l.Winner.Field + " comes first, and"
	}
	at := fmt.Sprintf("port %d", l.Loser.Port)
	if l.Host != "" {
		f.conflict("gateway-overruled", l.Loser.Field+".hosts", "%s has a server with TLS for %s on %s: this server is not used; give each host of a port one server", winner, hostText(l.Host), at)
		return
	}
	f.conflict("gateway-overruled", l.Loser.Field+".port", "%s takes %s there: this server, which takes %s, is not used; give it another port than %d", winner, taken(l.Winner.Kind()), taken(l.Loser.Kind()), l.Loser.Port)
}

// taken describes the traffic that servers of a kind take.
func taken(k gateways.Kind) string {
	switch {
	case k == gateways.TakesHTTP:
		return "HTTP"
	case k.IsTLS():
		return "TLS"
	}
	return "TCP"
}

// missingGateways warns of Gateways that a VirtualService names and that do not exist.
func (f *findings) missingGateways() {
	b, ok := f.q.tables.Gateways.Bindings.Get(f.r, f.key)
	if !ok {
		return
	}
	for i, g := range b.Gateways {
		if i == maxChecked {
			return
		}
		if _, exists := f.q.tables.Gateways.Selectors.Get(f.r, g); !exists {
			f.warn("route-no-gateway", "spec.gateways", "there is no %v: no gateway has the routes because of it; correct the name, or write NAMESPACE/NAME for a Gateway of another namespace", g)
		}
	}
}

// lostRules warns of rules of a VirtualService for TLS and TCP that get no connections of gateways, because others go first.
func (f *findings) lostRules() {
	vs, ok := f.q.tables.VirtualServices.Get(f.r, f.key)
	b, bound := f.q.tables.Gateways.Bindings.Get(f.r, f.key)
	if !ok || !bound || len(vs.Spec.Tls)+len(vs.Spec.Tcp) == 0 {
		return
	}
	for i, g := range b.Gateways {
		selector, exists := f.q.tables.Gateways.Selectors.Get(f.r, g)
		if i == maxChecked || !exists {
			continue
		}
		for _, p := range f.serving(g, selector) {
			for at := range f.q.gateways.Sockets(f.r, p.Served).All() {
				l, ok := f.q.gateways.Listener(f.r, p.Served, at)
				if !ok || !slices.ContainsFunc(l.Servers, func(s *gateway.Placed) bool { return s.Gateway == g }) {
					continue
				}
				for _, loss := range f.q.transport.GatewayLosses(f.r, p, l, f.key) {
					f.lostRule(loss)
				}
			}
		}
	}
}

func (f *findings) lostRule(l transport.RuleLoss) {
	if len(f.list) > maxChecked {
		return
	}
	winner := fmt.Sprintf("%s of %s goes first, by age or else by name, and", l.WinnerField, l.Winner)
	if l.Winner == f.key {
		winner = l.WinnerField + " comes first, and"
	}
	if l.Name == "" {
		f.conflict("route-overruled", l.Field, "%s takes all connections to gateways on port %d: no rule for TCP of this object is used there; bind one of the two to another server", winner, l.Port)
		return
	}
	name := fmt.Sprintf("the name %q", l.Name)
	if l.Name == gateways.AnyHost {
		name = "all names without a rule of their own"
	}
	f.conflict("route-overruled", l.Field, "%s takes the TLS connections to gateways on port %d for %s: this match gets none of them; give each name one rule", winner, l.Port, name)
}
