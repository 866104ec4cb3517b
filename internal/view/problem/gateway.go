package problem

import (
	"fmt"
	gateways "github.com/pilotmesh/pilot/internal/api/gateway"
	"github.com/pilotmesh/pilot/internal/view/gateway"
)

// gateway warns of servers of a Gateway that are not used, because servers of another Gateway go first. It compares
// only Gateways with the same selector: whether Gateways with other selectors share a gateway depends on its labels.
func (f *findings) gateway() {
	selector, ok := f.q.tables.Gateways.Selectors.Get(f.r, f.key)
	if !ok {
		return
	}
	for _, l := range f.q.gateways.Losses(f.r, f.q.gateways.SameSelector(f.r, f.key.Namespace, selector), f.key) {
		f.lostServer(l)
	}
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
