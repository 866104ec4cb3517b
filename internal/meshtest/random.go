package meshtest

import (
	"fmt"
	"time"

	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"
	"pgregory.net/rapid"

	"github.com/pilotmesh/pilot/internal/api"
)

// Random draws objects of a small world in which hosts, addresses and names collide often.
type Random struct{ *rapid.T }

// Namespaces of the small world.
func Namespaces() []string { return []string{"a", "b", "c", "istio-system"} }

func hosts() []string {
	return []string{
		"x.a.svc.cluster.local", "x.b.svc.cluster.local", "y.a.svc.cluster.local", "x.a", "x.a.svc", "x", "one.com", "api.one.com", "two.com",
	}
}

func serviceHosts() []string { return append(hosts(), "*.one.com", "10.9.0.1") }

func pick[V any](t *rapid.T, label string, from ...V) V {
	return rapid.SampledFrom(from).Draw(t, label)
}

func (g Random) exportTo() []string {
	return pick(g.T, "exportTo", nil, nil, []string{"*"}, []string{"."}, []string{"a"}, []string{"b", "c"}, []string{".", "c"})
}

// Object draws one object; names repeat, so that a later one may replace an earlier one.
func (g Random) Object() *api.Object {
	o := api.Object{
		Key:     api.Key{Namespace: pick(g.T, "namespace", Namespaces()...), Name: pick(g.T, "name", "p", "q", "r")},
		Created: time.Unix(int64(rapid.IntRange(1, 4).Draw(g.T, "age")), 0),
	}
	switch pick(g.T, "kind", "se", "se", "se", "vs", "vs", "dr", "sidecar", "we", "pa") {
	case "se":
		o.Spec = g.serviceEntry()
	case "vs":
		o.Spec = g.virtualService()
	case "dr":
		o.Spec = g.destinationRule()
	case "sidecar":
		o.Spec = g.sidecar()
	case "pa":
		o.Spec = g.peerAuthentication()
	default:
		o.Spec = &networking.WorkloadEntry{
			Address: pick(g.T, "address", "10.1.0.1", "10.1.0.2"), Labels: g.labels(),
			Locality: g.locality(), ServiceAccount: pick(g.T, "account", "", "", "sa"),
			Weight: uint32(rapid.IntRange(0, 3).Draw(g.T, "weight")),
		}
	}
	sealed, err := o.Seal()
	if err != nil {
		g.Fatal(err)
	}
	return sealed
}

func (g Random) labels() map[string]string {
	return pick(g.T, "labels", map[string]string{"v": "1"}, map[string]string{"v": "2"}, map[string]string{"v": "1", "app": "x"})
}

func (g Random) serviceEntry() *networking.ServiceEntry {
	s := &networking.ServiceEntry{
		Hosts:      rapid.SliceOfNDistinct(rapid.SampledFrom(serviceHosts()), 1, 2, rapid.ID).Draw(g.T, "hosts"),
		Resolution: networking.ServiceEntry_STATIC, ExportTo: g.exportTo(),
		Addresses: pick(g.T, "addresses", nil, nil, []string{"10.9.0.1"}, []string{"10.9.0.2", "10.9.0.1"}, []string{"10.9.0.1", "fd00:9::1"}, []string{"fd00:9::1"}, []string{"10.10.0.0/16"}),
	}
	s.Ports = g.ports()
	if rapid.Bool().Draw(g.T, "selects") {
		s.WorkloadSelector = &networking.WorkloadSelector{Labels: g.labels()}
		s.Resolution = pick(g.T, "resolution", networking.ServiceEntry_STATIC, networking.ServiceEntry_NONE)
	} else {
		s.Endpoints = []*networking.WorkloadEntry{
			{Address: pick(g.T, "address", "10.1.0.1", "10.1.0.3"), Labels: g.labels(), Locality: g.locality()},
			{Address: "10.1.0.4", Locality: g.locality(), ServiceAccount: pick(g.T, "account", "", "", "sa")},
		}
	}
	if s.WorkloadSelector == nil && rapid.IntRange(0, 3).Draw(g.T, "names") == 0 {
		s.Resolution = networking.ServiceEntry_DNS
	}
	return s
}

func (g Random) ports() (list []*networking.ServicePort) {
	for i, n := range rapid.SliceOfNDistinct(rapid.SampledFrom([]uint32{80, 90, 100}), 1, 2, rapid.ID).Draw(g.T, "ports") {
		list = append(list, &networking.ServicePort{
			Number: n, Name: fmt.Sprint("p", i), Protocol: pick(g.T, "protocol", "HTTP", "HTTP", "TCP", "GRPC", "TLS", ""),
		})
	}
	return list
}

func (g Random) virtualService() *networking.VirtualService {
	hosts := append(hosts(), "*.one.com", "*.com")
	v := &networking.VirtualService{
		Hosts:    rapid.SliceOfNDistinct(rapid.SampledFrom(hosts), 1, 2, rapid.ID).Draw(g.T, "hosts"),
		ExportTo: g.exportTo(),
	}
	if rapid.IntRange(0, 4).Draw(g.T, "delegate") == 0 {
		v.Hosts = nil
	}
	for range rapid.IntRange(1, 2).Draw(g.T, "rules") {
		rule := &networking.HTTPRoute{Route: []*networking.HTTPRouteDestination{{Destination: &networking.Destination{
			Host: pick(g.T, "destination", hosts...), Subset: pick(g.T, "subset", "", "s"),
		}}}}
		if m := pick(g.T, "match", "", "port", "source", "path", "labels"); m != "" {
			match := &networking.HTTPMatchRequest{}
			switch m {
			case "port":
				match.Port = 90
			case "source":
				match.SourceNamespace = pick(g.T, "source", Namespaces()...)
			case "labels":
				match.SourceLabels = g.labels()
			default:
				match.Uri = &networking.StringMatch{MatchType: &networking.StringMatch_Prefix{Prefix: "/p"}}
			}
			rule.Match = []*networking.HTTPMatchRequest{match}
		}
		if v.Hosts != nil && rapid.IntRange(0, 4).Draw(g.T, "delegates") == 0 {
			rule.Route = nil
			rule.Delegate = &networking.Delegate{
				Name: pick(g.T, "to", "p", "q", "r"), Namespace: pick(g.T, "in", "", "a", "b"),
			}
		}
		v.Http = append(v.Http, rule)
	}
	if len(v.Hosts) > 0 {
		g.connections(v, hosts)
	}
	return v
}

// Localities are where endpoints and proxies of the small world run.
func Localities() []string { return []string{"", "r1/z1", "r1/z2", "r2"} }

func (g Random) locality() string { return pick(g.T, "locality", Localities()...) }

// connections adds rules for TCP and TLS.
func (g Random) connections(v *networking.VirtualService, hosts []string) {
	to := []*networking.RouteDestination{{Destination: &networking.Destination{Host: pick(g.T, "tcp destination", hosts...)}}}
	source := pick(g.T, "tcp source", append(Namespaces(), "", "", "")...)
	labels := pick(g.T, "tcp labels", nil, nil, g.labels())
	switch pick(g.T, "connections", "", "", "tcp", "subnets", "tls") {
	case "tcp":
		v.Tcp = []*networking.TCPRoute{{Route: to, Match: []*networking.L4MatchAttributes{{SourceNamespace: source, SourceLabels: labels}}}}
	case "subnets":
		v.Tcp = []*networking.TCPRoute{{Route: to, Match: []*networking.L4MatchAttributes{{
			DestinationSubnets: []string{"10.9.0.0/24"}, SourceNamespace: source, SourceLabels: labels,
		}}}}
	case "tls":
		v.Tls = []*networking.TLSRoute{{Route: to, Match: []*networking.TLSMatchAttributes{{
			SniHosts: []string{v.Hosts[0]}, SourceNamespace: source, SourceLabels: labels,
		}}}}
	}
}

func (g Random) destinationRule() *networking.DestinationRule {
	d := &networking.DestinationRule{
		Host: pick(g.T, "host", append(hosts(), "*.one.com", "*.svc.cluster.local", "*")...), ExportTo: g.exportTo(),
		Subsets: []*networking.Subset{{Name: "s", Labels: g.labels()}},
		TrafficPolicy: &networking.TrafficPolicy{ConnectionPool: &networking.ConnectionPoolSettings{
			Tcp: &networking.ConnectionPoolSettings_TCPSettings{MaxConnections: int32(rapid.IntRange(1, 9).Draw(g.T, "limit"))},
		}},
	}
	if rapid.IntRange(0, 3).Draw(g.T, "selects") == 0 {
		d.ExportTo, d.WorkloadSelector = []string{"."}, &typev1beta1.WorkloadSelector{MatchLabels: g.labels()}
	}
	if rapid.Bool().Draw(g.T, "detects") {
		d.TrafficPolicy.OutlierDetection = &networking.OutlierDetection{}
	}
	switch pick(g.T, "prefers", "", "", "labels", "shares", "source", "header") {
	case "source":
		d.TrafficPolicy.LoadBalancer = hashBy(&networking.LoadBalancerSettings_ConsistentHashLB{
			HashKey: &networking.LoadBalancerSettings_ConsistentHashLB_UseSourceIp{UseSourceIp: true},
		})
	case "header":
		d.Subsets[0].TrafficPolicy = &networking.TrafficPolicy{LoadBalancer: hashBy(&networking.LoadBalancerSettings_ConsistentHashLB{
			HashKey: &networking.LoadBalancerSettings_ConsistentHashLB_HttpHeaderName{HttpHeaderName: "x-seat"},
		})}
	case "labels":
		d.Subsets[0].TrafficPolicy = &networking.TrafficPolicy{LoadBalancer: &networking.LoadBalancerSettings{
			LocalityLbSetting: &networking.LocalityLoadBalancerSetting{FailoverPriority: []string{"v", "topology.kubernetes.io/region=r2"}},
		}}
	case "shares":
		d.TrafficPolicy.LoadBalancer = &networking.LoadBalancerSettings{LocalityLbSetting: &networking.LocalityLoadBalancerSetting{
			Distribute: []*networking.LocalityLoadBalancerSetting_Distribute{{From: "r1", To: map[string]uint32{"r1/*": 70, "r2": 30}}},
		}}
	}
	return d
}

func hashBy(hash *networking.LoadBalancerSettings_ConsistentHashLB) *networking.LoadBalancerSettings {
	return &networking.LoadBalancerSettings{LbPolicy: &networking.LoadBalancerSettings_ConsistentHash{ConsistentHash: hash}}
}

func (g Random) imports() []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom([]string{
		"*/*", "./*", "a/*", "b/*", "*/one.com", "b/x.b.svc.cluster.local", "*/*.one.com", "~/*", "~a/x.a.svc.cluster.local", "~/*.one.com", "*/x.a.svc.cluster.local",
	}), 1, 3, rapid.ID).Draw(g.T, "imports")
}

func (g Random) sidecar() *networking.Sidecar {
	s := &networking.Sidecar{Egress: []*networking.IstioEgressListener{{Hosts: g.imports()}}}
	if rapid.IntRange(0, 2).Draw(g.T, "listener") == 0 {
		s.Egress = append([]*networking.IstioEgressListener{{
			Port: &networking.SidecarPort{Number: pick(g.T, "port", uint32(80), 90), Protocol: pick(g.T, "speaks", "HTTP", "TCP", "", "HTTP_PROXY"), Name: "p"},
			Bind: pick(g.T, "bind", "", "", "10.9.0.9"), Hosts: []string{pick(g.T, "only", "*/one.com", "a/*", "*/*", "~a/x.a.svc.cluster.local")},
			CaptureMode: pick(g.T, "capture", networking.CaptureMode_DEFAULT, networking.CaptureMode_NONE),
		}}, s.Egress...)
	}
	if rapid.IntRange(0, 3).Draw(g.T, "via") == 0 {
		s.OutboundTrafficPolicy = &networking.OutboundTrafficPolicy{
			Mode: networking.OutboundTrafficPolicy_ALLOW_ANY,
			EgressProxy: &networking.Destination{
				Host: pick(g.T, "proxy", "x.a.svc.cluster.local", "one.com"), Subset: pick(g.T, "part", "", "s"), Port: &networking.PortSelector{Number: 80},
			},
		}
	}
	if rapid.IntRange(0, 3).Draw(g.T, "selects") == 0 {
		s.WorkloadSelector = &networking.WorkloadSelector{Labels: g.labels()}
	}
	return s
}

func (g Random) peerAuthentication() *security.PeerAuthentication {
	mode := func(label string) *security.PeerAuthentication_MutualTLS {
		return &security.PeerAuthentication_MutualTLS{Mode: pick(g.T, label,
			security.PeerAuthentication_MutualTLS_UNSET, security.PeerAuthentication_MutualTLS_DISABLE,
			security.PeerAuthentication_MutualTLS_PERMISSIVE, security.PeerAuthentication_MutualTLS_STRICT,
		)}
	}
	p := &security.PeerAuthentication{Mtls: mode("mode")}
	if rapid.Bool().Draw(g.T, "selects") {
		p.Selector = &typev1beta1.WorkloadSelector{MatchLabels: g.labels()}
		p.PortLevelMtls = map[uint32]*security.PeerAuthentication_MutualTLS{pick(g.T, "port", uint32(80), 90, 91): mode("port mode")}
	}
	return p
}
