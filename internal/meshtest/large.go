package meshtest

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/proxy"
)

// Large is a mesh of a given size for measuring: services in a hundred namespaces, one in fifty private, routes and
// policy for one in ten, five routes private to each namespace; and twenty classes of proxies in three regions, fifteen
// that see their namespace's view of everything and five with a Sidecar of ten hosts.
type Large struct{ Services int }

const (
	largeNamespaces = 100
	largeClasses    = 20
	largeSidecars   = 5
	largeRegions    = 3
)

// Namespace is the namespace of the i-th service.
func (Large) Namespace(i int) string { return fmt.Sprintf("ns-%02d", i%largeNamespaces) }

// Host is the host of the i-th service.
func (l Large) Host(i int) string {
	return fmt.Sprintf("svc-%05d.%s.svc.cluster.local", i, l.Namespace(i))
}

func (l Large) key(i int) api.Key {
	return api.Key{Namespace: l.Namespace(i), Name: fmt.Sprintf("svc-%05d", i)}
}

// ServiceEntry is the i-th service; its first endpoint's address ends in last.
func (l Large) ServiceEntry(i, last int) *api.Object {
	s := &networking.ServiceEntry{
		Hosts: []string{l.Host(i)}, Resolution: networking.ServiceEntry_STATIC, Location: networking.ServiceEntry_MESH_INTERNAL,
		Ports: []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP", TargetPort: 8080}},
		Endpoints: []*networking.WorkloadEntry{
			{Address: fmt.Sprintf("10.%d.%d.%d", i>>8, i&255, last), Labels: map[string]string{"version": "v1"}},
			{Address: fmt.Sprintf("10.%d.%d.200", i>>8, i&255), Labels: map[string]string{"version": "v2"}},
		},
	}
	if i%50 == 7 {
		s.ExportTo = []string{"."}
	}
	return seal(l.key(i), s)
}

// VirtualService is the routes of the i-th service, all to its subset v1 with a given share to v2.
func (l Large) VirtualService(i, share int) *api.Object {
	host := l.Host(i)
	return seal(l.key(i), &networking.VirtualService{Hosts: []string{host}, Http: []*networking.HTTPRoute{{
		Route: []*networking.HTTPRouteDestination{
			{Destination: &networking.Destination{Host: host, Subset: "v1"}, Weight: int32(100 - share)},
			{Destination: &networking.Destination{Host: host, Subset: "v2"}, Weight: int32(share)},
		},
	}}})
}

// Private is the j-th private route of a namespace: for a service of the next one.
func (l Large) Private(ns, j, share int) *api.Object {
	o := l.VirtualService((ns+1)%largeClasses+j*largeClasses, share)
	vs := o.Spec.(*networking.VirtualService)
	vs.ExportTo = []string{"."}
	return seal(api.Key{Namespace: fmt.Sprintf("ns-%02d", ns), Name: fmt.Sprintf("private-%d", j)}, vs)
}

// DestinationRule is the policy of the i-th service with a limit and a number of subsets.
func (l Large) DestinationRule(i, limit, subsets int) *api.Object {
	d := &networking.DestinationRule{Host: l.Host(i), TrafficPolicy: &networking.TrafficPolicy{
		ConnectionPool: &networking.ConnectionPoolSettings{Tcp: &networking.ConnectionPoolSettings_TCPSettings{MaxConnections: int32(limit)}},
	}}
	for n := range subsets {
		version := fmt.Sprintf("v%d", n+1)
		d.Subsets = append(d.Subsets, &networking.Subset{Name: version, Labels: map[string]string{"version": version}})
	}
	return seal(l.key(i), d)
}

// Near is a rule by which clients of the i-th service prefer near endpoints, with a limit.
func (l Large) Near(i, limit int) *api.Object {
	d := l.DestinationRule(i, limit, 0).Spec.(*networking.DestinationRule)
	d.TrafficPolicy.OutlierDetection = &networking.OutlierDetection{}
	return seal(l.key(i), d)
}

// Placed is the i-th service with an endpoint in each region; the first one's address ends in last.
func (l Large) Placed(i, last int) *api.Object {
	s := l.ServiceEntry(i, last).Spec.(*networking.ServiceEntry)
	s.Endpoints[0].Locality, s.Endpoints[1].Locality = "r0/z", "r1/z"
	return seal(l.key(i), s)
}

// Sidecar is the scope of a namespace: it imports ten hosts; first is the number of the first one.
func (l Large) Sidecar(ns, first int) *api.Object {
	hosts := []string{"*/" + l.Host(first)}
	for i := range 9 {
		hosts = append(hosts, "*/"+l.Host(ns+i*5+30))
	}
	return seal(api.Key{Namespace: fmt.Sprintf("ns-%02d", ns), Name: "default"}, &networking.Sidecar{
		Egress: []*networking.IstioEgressListener{{Hosts: hosts}},
	})
}

// Objects are all objects of the mesh.
func (l Large) Objects() []*api.Object {
	var list []*api.Object
	for i := range l.Services {
		list = append(list, l.ServiceEntry(i, 1))
		if i%10 == 0 {
			list = append(list, l.VirtualService(i, 10), l.DestinationRule(i, 100, 2))
		}
	}
	for ns := range largeNamespaces {
		for j := range 5 {
			list = append(list, l.Private(ns, j, 20))
		}
		if ns < largeClasses && ns >= largeClasses-largeSidecars {
			list = append(list, l.Sidecar(ns, ns))
		}
	}
	return list
}

// Proxies are one proxy of each class.
func (l Large) Proxies(t T) []*proxy.Proxy {
	var list []*proxy.Proxy
	for ns := range largeClasses {
		id := strings.ReplaceAll(fmt.Sprintf("sidecar~10.250.0.%d~client.NS~NS.svc.cluster.local", ns), "NS", fmt.Sprintf("ns-%02d", ns))
		list = append(list, Node(t, id, fmt.Sprintf(`{"LABELS": {"istio-locality": "r%d/z"}}`, ns%largeRegions)))
	}
	return list
}

func seal(k api.Key, spec proto.Message) *api.Object {
	o, err := api.Object{Key: k, Spec: spec}.Seal()
	if err != nil {
		panic(err)
	}
	return o
}
