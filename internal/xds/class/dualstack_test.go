package class_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	dnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"

	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// dualService is a Service with addresses, ports for HTTP and TCP.
func dualService(addresses ...string) *kube.Service {
	s := shopService(kube.ClusterIP)
	s.Addresses = addresses
	if len(addresses) == 0 {
		s.Type = kube.Headless
	}
	return s
}

// slicesOf are the slices of a Service: one for each IP version, with all pods.
func slicesOf(service string, health kube.Health, addresses map[string][]string) values {
	all := values{}
	for version, list := range addresses {
		s := shopSlice()
		s.Service = service
		for i, address := range list {
			s.Endpoints = append(s.Endpoints, kube.SliceEndpoint{Address: address, Pod: fmt.Sprintf("a-%d", i+1), Health: health})
		}
		all[inShop(kube.KindEndpointSlice, service+"-"+version)] = s
	}
	return all
}

// dualShop has a pod with addresses of both IP versions, one that has the address of IPv6 first, one with IPv4 only, and Services of both versions and of one.
func dualShop() values {
	pod := func(address string, more ...string) *kube.Pod {
		p := shopPod(address, "one")
		p.MoreAddresses = intern.Of(more...)
		return p
	}
	all := values{
		inShop(kube.KindPod, "a-1"):      pod("10.10.0.1", "fd00:10::1"),
		inShop(kube.KindPod, "a-2"):      pod("fd00:10::2", "10.10.0.2"),
		inShop(kube.KindPod, "a-3"):      pod("10.10.0.3"),
		inShop(kube.KindService, "both"): dualService("10.96.0.1", "fd00:96::1"),
		inShop(kube.KindService, "four"): dualService("10.96.0.4"),
		inShop(kube.KindService, "six"):  dualService("fd00:96::6"),
		inShop(kube.KindService, "pods"): dualService(),
	}
	four, six := []string{"10.10.0.1", "10.10.0.2", "10.10.0.3"}, []string{"fd00:10::1", "fd00:10::2"}
	maps.Copy(all, slicesOf("both", kube.Ready, map[string][]string{"4": four, "6": six}))
	maps.Copy(all, slicesOf("pods", kube.Ready, map[string][]string{"4": four, "6": six}))
	maps.Copy(all, slicesOf("four", kube.Ready, map[string][]string{"4": four}))
	maps.Copy(all, slicesOf("six", kube.Ready, map[string][]string{"6": six}))
	return all
}

// dualEntries are ServiceEntries with addresses of both versions, with a name, and for the pods.
const dualEntries = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: own, namespace: shop}
spec:
  hosts: [own.test]
  addresses: [192.0.2.1, "2001:db8::1", 192.0.2.0/28]
  resolution: STATIC
  ports: [{number: 70, name: tcp, protocol: TCP}, {number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 192.0.2.3}, {address: "2001:db8::3"}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: named, namespace: shop}
spec:
  hosts: [named.test]
  resolution: DNS
  ports: [{number: 71, name: tcp, protocol: TCP}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: selecting, namespace: shop}
spec:
  hosts: [selecting.test]
  resolution: STATIC
  ports: [{number: 72, name: tcp, protocol: TCP}]
  workloadSelector: {labels: {app: a}}
`

// rival asks for the connections to an address that a Service has, for the workloads of one namespace or of all.
const rival = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: rival, namespace: shop}
spec:
  hosts: [rival.test]
  addresses: ["fd00:96::1"]
  exportTo: [%q]
  resolution: STATIC
  ports: [{number: 90, name: tcp, protocol: TCP}]
  endpoints: [{address: 192.0.2.4}]
`

// TestDualStack shows where proxies with addresses of one IP version or both listen, and which addresses they call, in a dual-stack mesh and in another one.
func TestDualStack(t *testing.T) {
	envoy, err := meshtest.FindEnvoy(os.Getenv("ENVOY"))
	if err != nil {
		t.Log("not shown to a real Envoy:", err)
	}
	for _, on := range []bool{false, true} {
		t.Run(fmt.Sprint(on), func(t *testing.T) {
			w := meshtest.NewWith(t, meshtest.Options{ClusterID: testCluster, DualStack: on})
			w.Observe(dualShop())
			w.Apply(dualEntries)
			var out strings.Builder
			show := func(step string) {
				w.Check()
				for _, addresses := range []string{"10.9.0.1,fd00:9::1", "10.9.0.2", "fd00:9::3"} {
					first, _, _ := strings.Cut(addresses, ",")
					for _, namespace := range []string{"shop", "away"} {
						id := fmt.Sprintf("sidecar~%s~client.%s~%s.svc.cluster.local", first, namespace, namespace)
						c := w.Connect(meshtest.Node(t, id, fmt.Sprintf(`{"CLUSTER_ID": "west", "INSTANCE_IPS": %q}`, addresses)))
						if step == "" || namespace == "shop" {
							fmt.Fprintf(&out, "-- %s, %s%s --\n%s", addresses, namespace, step, dualResources(t, w.State(c), step != ""))
						}
						uniqueAddresses(t, w.State(c))
						if envoy != "" && step == "" {
							meshtest.Accept(t, envoy, t.TempDir(), w.State(c))
						}
						w.Leave(c)
					}
				}
			}
			show("")
			for _, whom := range []string{".", "*"} {
				w.Apply(fmt.Sprintf(rival, whom))
				show(", with a rival for " + whom)
			}
			golden(t, fmt.Sprintf("testdata/dual-stack-%t.txt", on), out.String())
		})
	}
}

// dualResources shows the addresses of listeners, and if not only these, of endpoints, and those at which names are resolved.
func dualResources(t *testing.T, s *resource.State, onlyListeners bool) string {
	t.Helper()
	var out strings.Builder
	for r := range s.Layers(resource.Listener).All() {
		fmt.Fprintln(&out, "listener", r.Name(), strings.Join(listenedAt(t, r), " "))
	}
	if onlyListeners {
		return out.String()
	}
	for line := range domains(t, s) {
		out.WriteString("domains " + line)
	}
	for r := range s.Layers(resource.Endpoint).All() {
		var list []string
		for _, group := range message[*endpointv3.ClusterLoadAssignment](t, r).Endpoints {
			for _, e := range group.LbEndpoints {
				text := addressOf(e.GetEndpoint().GetAddress())
				for _, more := range e.GetEndpoint().GetAdditionalAddresses() {
					text += "+" + addressOf(more.Address)
				}
				list = append(list, text)
			}
		}
		fmt.Fprintln(&out, "endpoints", r.Name(), strings.Join(list, " "))
	}
	for r := range s.Layers(resource.Cluster).All() {
		c := message[*clusterv3.Cluster](t, r)
		if bind := c.UpstreamBindConfig; bind != nil {
			fmt.Fprintln(&out, "cluster", c.Name, "from", bind.SourceAddress.Address, len(bind.ExtraSourceAddresses))
		}
		var dns dnsv3.DnsCluster
		if of := c.GetClusterType().GetTypedConfig(); of != nil && of.UnmarshalTo(&dns) == nil {
			fmt.Fprintln(&out, "cluster", c.Name, "resolves", dns.DnsLookupFamily)
		}
	}
	return out.String()
}

func message[M any](t meshtest.T, r *resource.Resource) M {
	t.Helper()
	m, err := r.Proto()
	if err != nil {
		t.Fatal(err)
	}
	return m.(M)
}

func addressOf(a *corev3.Address) string {
	return fmt.Sprintf("%s|%d", a.GetSocketAddress().GetAddress(), a.GetSocketAddress().GetPortValue())
}

func listenedAt(t meshtest.T, r *resource.Resource) []string {
	t.Helper()
	l := message[*listenerv3.Listener](t, r)
	list := []string{addressOf(l.Address)}
	for _, more := range l.AdditionalAddresses {
		list = append(list, addressOf(more.Address))
	}
	return list
}

// uniqueAddresses: no two listeners have an address, which Envoy would refuse.
func uniqueAddresses(t meshtest.T, s *resource.State) {
	t.Helper()
	owner := map[string]string{}
	for r := range s.Layers(resource.Listener).All() {
		for _, at := range listenedAt(t, r) {
			if other, taken := owner[at]; taken {
				t.Errorf("the listeners %s and %s are both at %s", other, r.Name(), at)
			}
			owner[at] = r.Name()
		}
	}
}

// TestDualStackPods: a pod with addresses of both versions is one endpoint as long as slices of the Service have both, whichever slice comes or goes first.
func TestDualStackPods(t *testing.T) {
	w := meshtest.NewWith(t, meshtest.Options{ClusterID: testCluster, DualStack: true})
	four, six := inShop(kube.KindEndpointSlice, "both-4"), inShop(kube.KindEndpointSlice, "both-6")
	both := slicesOf("both", kube.Ready, map[string][]string{"4": {"10.10.0.1"}, "6": {"fd00:10::1"}})
	w.Observe(values{inShop(kube.KindService, "both"): dualService("10.96.0.1", "fd00:96::1"), six: both[six]})
	c := w.Connect(meshtest.Node(t, "sidecar~10.9.0.1~client.shop~shop.svc.cluster.local", `{"INSTANCE_IPS": "10.9.0.1,fd00:9::1"}`))
	expect := func(when, want string) {
		t.Helper()
		w.Check()
		var got []string
		r, _ := w.State(c).Get(resource.Endpoint, "outbound|90||both.shop.svc.cluster.local")
		for _, group := range message[*endpointv3.ClusterLoadAssignment](t, r).Endpoints {
			for _, e := range group.LbEndpoints {
				text := e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress()
				for _, more := range e.GetEndpoint().GetAdditionalAddresses() {
					text += "+" + more.Address.GetSocketAddress().GetAddress()
				}
				got = append(got, fmt.Sprintf("%s %v", text, e.HealthStatus))
			}
		}
		slices.Sort(got)
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s: got %q, want %q", when, text, want)
		}
	}
	expect("before the pod", "")
	pod := shopPod("10.10.0.1", "one")
	pod.MoreAddresses = intern.Of("fd00:10::1")
	w.Observe(values{inShop(kube.KindPod, "a-1"): pod})
	expect("with the slice of IPv6", "fd00:10::1 UNKNOWN")
	w.Observe(values{four: both[four]})
	expect("with both slices", "10.10.0.1+fd00:10::1 UNKNOWN")
	w.Observe(slicesOf("both", kube.NotReady, map[string][]string{"4": {"10.10.0.1"}}))
	expect("not ready", "10.10.0.1+fd00:10::1 UNHEALTHY")
	w.Observe(values{six: nil})
	expect("without the slice of IPv6", "10.10.0.1 UNHEALTHY")
}

// TestFamiliesOfClass: in a dual-stack mesh only, proxies with addresses of both versions are of another class than others.
func TestFamiliesOfClass(t *testing.T) {
	for _, on := range []bool{false, true} {
		w := meshtest.NewWith(t, meshtest.Options{DualStack: on})
		want := map[bool]mesh.Families{false: mesh.BothFamilies, true: mesh.DualStack}[on]
		c := w.Connect(meshtest.Node(t, "router~10.9.0.1~gw.edge~edge.svc.cluster.local", `{"INSTANCE_IPS": "10.9.0.1,fd00:9::1"}`))
		if c.Families != want {
			t.Errorf("dual stack %t: families %v, want %v", on, c.Families, want)
		}
	}
}
