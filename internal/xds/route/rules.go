package route

import (
	"math"
	"net/netip"
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// meshGateway is the name by which rules say that they are for sidecars.
const meshGateway = "mesh"

// builder makes the routes of one virtual host.
type builder struct {
	q      *Queries
	r      *query.Reader
	at     host
	routes []*routev3.Route
	refs   []string
}

// byDefault sends everything to the host itself.
func (b *builder) byDefault() {
	cluster := envoy.OutboundCluster(b.at.Port, "", b.at.Host)
	b.add("default", envoy.MatchAll(), envoy.Retried(envoy.To(cluster)), b.at.Host, b.at.Port)
	b.refs = append(b.refs, cluster)
}

func (b *builder) add(name string, m *routev3.RouteMatch, a *routev3.RouteAction, host string, port uint32) {
	b.routes = append(b.routes, envoy.Route(name, m, a, envoy.VirtualHostName(host, port)+"/*"))
}

// rules adds the routes of the first object that has any for these callers and this port: an object all of whose rules
// are for others counts as absent.
func (b *builder) rules() {
	objects, _ := b.q.traffic.Routes.Get(b.r, b.at.View)
	for _, vs := range objects {
		for _, rule := range vs.Spec.Http {
			if b.rule(rule) {
				break
			}
		}
		if len(b.routes) > 0 {
			return
		}
	}
}

// rule adds the routes of one rule. It reports whether nothing can get past it.
func (b *builder) rule(rule *networking.HTTPRoute) (last bool) {
	if len(rule.Match) == 0 {
		b.route(rule, rule.Name, envoy.MatchAll())
		return true
	}
	for _, m := range rule.Match {
		if !b.applies(m) {
			continue
		}
		name := rule.Name
		if m.Name != "" {
			name += "." + m.Name
		}
		match := requestMatch(m)
		b.route(rule, name, match)
		last = last || matchesAll(match)
	}
	return last
}

// applies reports whether a match can be met by these callers on this port.
func (b *builder) applies(m *networking.HTTPMatchRequest) bool {
	if len(m.Gateways) > 0 && !slices.Contains(m.Gateways, meshGateway) {
		return false
	}
	if m.Port != 0 && m.Port != b.at.Port {
		return false
	}
	if m.SourceNamespace != "" && m.SourceNamespace != b.at.Layer {
		return false
	}
	return len(m.SourceLabels) == 0
}

func (b *builder) route(rule *networking.HTTPRoute, name string, match *routev3.RouteMatch) {
	if len(rule.Route) == 0 {
		// Redirects and the like are not translated yet. The request must not reach another rule's destination.
		b.routes = append(b.routes, &routev3.Route{Name: name, Match: match, Action: &routev3.Route_DirectResponse{
			DirectResponse: &routev3.DirectResponseAction{Status: 501},
		}})
		return
	}
	action := b.action(rule.Route)
	if rule.Timeout != nil {
		action.Timeout = rule.Timeout
		action.MaxStreamDuration.GrpcTimeoutHeaderMax = rule.Timeout
	}
	d := rule.Route[0].Destination
	b.add(name, match, action, d.GetHost(), b.port(d))
}

func (b *builder) action(list []*networking.HTTPRouteDestination) *routev3.RouteAction {
	if weighted := withWeight(list); len(weighted) > 1 {
		shift := shiftOf(weighted)
		clusters := &routev3.WeightedCluster{}
		for _, d := range weighted {
			clusters.Clusters = append(clusters.Clusters, &routev3.WeightedCluster_ClusterWeight{
				Name: b.cluster(d.Destination), Weight: envoy.Uint(uint32(d.Weight) >> shift),
			})
		}
		a := envoy.Retried(envoy.To(""))
		a.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: clusters}
		return a
	} else if len(weighted) == 1 {
		list = weighted
	}
	return envoy.Retried(envoy.To(b.cluster(list[0].Destination)))
}

// withWeight are the destinations that get any traffic, where several share it.
func withWeight(list []*networking.HTTPRouteDestination) []*networking.HTTPRouteDestination {
	if len(list) == 1 {
		return list
	}
	var out []*networking.HTTPRouteDestination
	for _, d := range list {
		if d.Weight > 0 {
			out = append(out, d)
		}
	}
	return out
}

// shiftOf is by how many bits weights must shrink for their sum to fit.
func shiftOf(list []*networking.HTTPRouteDestination) int {
	sum := uint64(0)
	for _, d := range list {
		sum += uint64(d.Weight)
	}
	shift := 0
	for sum>>shift > math.MaxUint32 {
		shift++
	}
	return shift
}

func (b *builder) cluster(d *networking.Destination) string {
	name := envoy.OutboundCluster(b.port(d), d.GetSubset(), d.GetHost())
	b.refs = append(b.refs, name)
	return name
}

// port is the port of a destination: as given, else the only one of the service, else the one that was called.
func (b *builder) port(d *networking.Destination) uint32 {
	if n := d.GetPort().GetNumber(); n != 0 {
		return n
	}
	if s, ok := b.destination(d.GetHost()); ok && len(s.Ports) == 1 {
		return s.Ports[0].Number
	}
	return b.at.Port
}

// destination is the service of a destination as these callers see it, else as whoever sees it: the route then leads to
// a cluster that only those have.
func (b *builder) destination(host string) (*service.Service, bool) {
	view := service.View{Host: host, Layer: b.q.scope.Layer(b.r, host, b.at.Layer)}
	if s, ok := b.q.services.Service.Get(b.r, view); ok {
		return s, true
	}
	for c := range b.q.tables.ByHost.Group(b.r, host).All() {
		if c.Kind == state.ServiceClaim {
			return b.q.services.Service.Get(b.r, service.View{Host: host, Layer: c.Layer})
		}
	}
	return nil, false
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}
