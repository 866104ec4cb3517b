package transport

import (
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/gateway"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
)

// gatewayRulesKey names the rules of a VirtualService for connections to a server of gateways.
type gatewayRulesKey struct {
	namespace string
	rules     traffic.SelectingRules
	gateway   string
	port      uint32
	// tls says that TLS is forwarded; otherwise opaque TCP connections are.
	tls    bool
	object api.Key
}

func (q *Queries) defineGatewayRules(g *query.Graph) {
	q.passed = query.Define(g, "passedServices", passed.equal, q.passedOf)
	q.gatewayRules = query.Define(g, "gatewayRules", func(a, b []Rule) bool { return slices.EqualFunc(a, b, Rule.equal) },
		func(r *query.Reader, k gatewayRulesKey) ([]Rule, bool) {
			vs, ok := q.tables.VirtualServices.Get(r, k.object)
			if !ok {
				return nil, false
			}
			b := &builder{
				q: q, r: r, gateway: k.gateway, view: service.HostView{Viewer: k.namespace}, port: mesh.Port{Number: k.port}, clients: clients{rules: k.rules},
			}
			if k.tls {
				b.addTLSRules([]*state.VirtualService{vs})
			} else {
				b.addGatewayTCP(vs)
			}
			return b.rules, len(b.rules) > 0
		})
}

// addGatewayTCP adds the first TCP rule that applies. Connections of one server of gateways cannot be distinguished.
func (b *builder) addGatewayTCP(vs *state.VirtualService) {
	for _, rule := range vs.Spec.Tcp {
		applies := len(rule.Match) == 0
		for _, m := range rule.Match {
			applies = applies || b.applies(m)
		}
		if applies {
			b.addRule(Rule{Object: vs.Object}, rule.Route)
			return
		}
	}
}

// GatewayTCP returns where gateways send the connections to a server; false if no VirtualService says it.
func (q *Queries) GatewayTCP(r *query.Reader, p gateway.Proxies, s *gateway.Placed) (Rule, bool) {
	for _, b := range q.gateways.Bound(r, p, s) {
		if rules := q.rulesAt(r, p, s, b.Object, false); len(rules) > 0 {
			return rules[0], true
		}
	}
	return Rule{}, false
}

// GatewayTLS returns where gateways send TLS that they do not terminate, by the names that clients ask for. Each name has one rule.
func (q *Queries) GatewayTLS(r *query.Reader, p gateway.Proxies, s *gateway.Placed) (list []Rule) {
	taken := map[string]bool{}
	for _, b := range q.gateways.Bound(r, p, s) {
		for _, rule := range q.rulesAt(r, p, s, b.Object, true) {
			wanted, names := rule.ServerNames, []string(nil)
			if len(wanted) == 0 {
				wanted = []string{"*"} // any name
			}
			for _, name := range wanted {
				for _, host := range b.Hosts {
					if both := narrower(host, name); both != "" && !taken[both] && !mesh.IsPartialWildcard(both) {
						taken[both] = true
						names = append(names, both)
					}
				}
			}
			if len(names) > 0 {
				rule.ServerNames = names
				list = append(list, rule)
			}
		}
	}
	return list
}

// GatewayPass returns the ports and subsets of services to which gateways forward TLS of the mesh for a server: of the services in the
// mesh that the gateways see and that the server has among its hosts.
func (q *Queries) GatewayPass(r *query.Reader, p gateway.Proxies, s *gateway.Placed) (list []Destination) {
	set := scope.Set{Namespace: p.Namespace}
	overlay := q.scope.Hosts(r, set)
	add := func(host string) {
		of, _ := q.passed.Get(r, service.HostView{Host: host, Viewer: q.scope.Viewer(r, host, p.Namespace)})
		for _, own := range s.Hosts {
			if len(of.to) > 0 && mesh.Covers(own.Name, host) && (own.Namespace == "" || own.Namespace == of.namespace) {
				list = append(list, of.to...)
				return
			}
		}
	}
	for host := range q.services.PublicHosts(r).All() {
		if !overlay.Has(host) {
			add(string(host))
		}
	}
	for host := range overlay.All() {
		add(string(host))
	}
	return list
}

// passed are the ports and subsets of a service of a namespace.
type passed struct {
	namespace string
	to        []Destination
}

func (p passed) equal(o passed) bool { return p.namespace == o.namespace && slices.Equal(p.to, o.to) }

// passedOf returns the ports and subsets of a service in the mesh.
func (q *Queries) passedOf(r *query.Reader, v service.HostView) (passed, bool) {
	s, ok := q.services.Service.Get(r, v)
	if !ok || s.External || s.Resolution == mesh.DynamicDNS || strings.HasPrefix(s.Host, "*") {
		return passed{}, false // Envoy matches a star at the beginning of a server name only, and outbound_.80_._.*.example.com has it further on
	}
	of := passed{namespace: s.Namespace}
	policy, _ := q.traffic.Policy.Get(r, v)
	for _, port := range s.Ports {
		if port.Protocol == mesh.UDP {
			continue
		}
		of.to = append(of.to, Destination{Host: s.Host, Port: port.Number})
		if policy == nil {
			continue
		}
		for _, subset := range policy.Subsets {
			of.to = append(of.to, Destination{Host: s.Host, Port: port.Number, Subset: subset.Name})
		}
	}
	return of, true
}

// narrower returns the one of two hosts that the other covers; empty if neither covers the other.
func narrower(a, b string) string {
	switch {
	case mesh.Covers(a, b):
		return b
	case mesh.Covers(b, a):
		return a
	}
	return ""
}

func (q *Queries) rulesAt(r *query.Reader, p gateway.Proxies, s *gateway.Placed, object api.Key, tls bool) []Rule {
	rules, _ := q.gatewayRules.Get(r, gatewayRulesKey{
		namespace: p.Namespace, rules: p.Rules, gateway: gateway.Name(s.Gateway), port: s.Port, tls: tls, object: object,
	})
	return rules
}

func (r Rule) equal(o Rule) bool {
	return slices.Equal(r.Blocks, o.Blocks) && slices.Equal(r.ServerNames, o.ServerNames) && slices.Equal(r.Destinations, o.Destinations) &&
		r.StatPrefix == o.StatPrefix && r.Object == o.Object && r.Options == o.Options
}
