package transport

import (
	"fmt"

	"github.com/pilotmesh/pilot/internal/api"
	gateways "github.com/pilotmesh/pilot/internal/api/gateway"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/gateway"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// RuleLoss is a name for which a rule of a VirtualService takes no connections of gateways, because another rule, or a server of a Gateway,
// has the name at the same socket and goes first.
type RuleLoss struct {
	// Field is the match or rule that loses, and Port the port of its server.
	Field string
	Port  uint32
	// Name is the name in TLS; empty if the connections have none, and gateways.AnyHost for all that have no rule of their own.
	Name string
	// Winner is the object that has the name, and WinnerField its rule or server.
	Winner      api.Key
	WinnerField string
}

// holder is the rule or server that has a name at a socket.
type holder struct {
	object api.Key
	field  string
}

// GatewayLosses returns for which names rules of a VirtualService for TLS and TCP take no connections of gateways at a socket.
func (q *Queries) GatewayLosses(r *query.Reader, p gateway.Proxies, l *gateway.Listener, object api.Key) (list []RuleLoss) {
	taken := map[string]holder{}
	for _, s := range l.Servers {
		switch s.Kind() {
		case gateways.TakesTCP:
			list = append(list, q.tcpLosses(r, p, s, object)...)
		case gateways.TerminatesTLS:
			list = append(list, q.tcpLosses(r, p, s, object)...)
			takeNames(taken, s)
		case gateways.PassesTLS:
			list = append(list, q.tlsLosses(r, p, s, object, taken)...)
		default:
			takeNames(taken, s)
		}
	}
	return list
}

// takeNames notes the names that a server with TLS has.
func takeNames(taken map[string]holder, s *gateway.Placed) {
	for _, host := range s.Hosts {
		if _, ok := taken[host.Name]; !ok && s.Kind().IsTLS() {
			taken[host.Name] = holder{s.Gateway, s.Field}
		}
	}
}

// tcpLosses returns the loss of an object whose TCP rules a server would have, if no other object went first.
func (q *Queries) tcpLosses(r *query.Reader, p gateway.Proxies, s *gateway.Placed, object api.Key) []RuleLoss {
	var first api.Key
	for _, b := range q.gateways.Bound(r, p, s) {
		if len(q.rulesAt(r, p, s, b.Object, false)) == 0 {
			continue
		}
		if b.Object == object && first != (api.Key{}) {
			return []RuleLoss{{Field: "spec.tcp", Port: s.Port, Winner: first, WinnerField: "spec.tcp"}}
		}
		if first == (api.Key{}) {
			first = b.Object
		}
	}
	return nil
}

// tlsLosses returns the names that matches of an object lose at a server, and notes the names that the rules of the server have. It
// follows GatewayTLS.
func (q *Queries) tlsLosses(r *query.Reader, p gateway.Proxies, s *gateway.Placed, object api.Key, taken map[string]holder) (list []RuleLoss) {
	for _, b := range q.gateways.Bound(r, p, s) {
		vs, ok := q.tables.VirtualServices.Get(r, b.Object)
		if !ok {
			continue
		}
		for _, m := range q.matchesAt(r, p, s, vs) {
			for _, name := range m.names {
				for _, host := range b.Hosts {
					both := narrower(host, name)
					if both == "" {
						continue
					}
					own, winner := holder{b.Object, m.field}, taken[both]
					if winner == (holder{}) {
						taken[both] = own
					} else if b.Object == object && winner != own {
						list = append(list, RuleLoss{m.field, s.Port, both, winner.object, winner.field})
					}
				}
			}
		}
	}
	return list
}

// tlsMatch is a match of a rule for TLS, with the names that it is for.
type tlsMatch struct {
	field string
	names []string
}

// matchesAt returns the matches of the TLS rules of a VirtualService that apply to connections to a server of gateways.
func (q *Queries) matchesAt(r *query.Reader, p gateway.Proxies, s *gateway.Placed, vs *state.VirtualService) (list []tlsMatch) {
	b := &builder{
		q: q, r: r, gateway: gateway.Name(s.Gateway), view: service.HostView{Viewer: p.Namespace}, port: mesh.Port{Number: s.Port}, clients: clients{rules: p.Rules},
	}
	for i, rule := range vs.Spec.Tls {
		for j, m := range rule.Match {
			if !b.applies(m) {
				continue
			}
			names := serverNames(m.SniHosts)
			if len(names) == 0 {
				names = []string{gateways.AnyHost}
			}
			list = append(list, tlsMatch{fmt.Sprintf("spec.tls[%d].match[%d]", i, j), names})
		}
	}
	return list
}
