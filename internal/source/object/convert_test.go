package object

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
)

func newConverter() *Converter { return &Converter{Texts: NewTexts(TextLimit)} }

// read reads an object of Kubernetes from YAML.
func read[T any](t testing.TB, text string) *T {
	t.Helper()
	o := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return o
}

// TestEntrance: a load balancer is reached at its addresses, and a Service of type NodePort at nodes, if it selects some.
func TestEntrance(t *testing.T) {
	ports := intern.Of(kube.NodePort{Port: 15443, Node: 31443})
	for _, c := range []struct {
		name, text string
		want       kube.Entrance
	}{
		{"a load balancer", `
metadata: {name: a, labels: {topology.istio.io/network: north, networking.istio.io/gatewayPort: "443"}, annotations: {traffic.istio.io/nodeSelector: "{}"}}
spec: {type: LoadBalancer, clusterIP: 10.96.0.1, externalIPs: [192.0.2.9], ports: [{port: 15443, nodePort: 31443}]}
status: {loadBalancer: {ingress: [{ip: 192.0.2.1, hostname: x}, {hostname: lb.test}]}}
`, kube.Entrance{Network: "north", Port: 443, Addresses: intern.Of("192.0.2.1", "lb.test", "192.0.2.9")}},
		{"some nodes", `
metadata: {name: a, annotations: {traffic.istio.io/nodeSelector: '{"pool": "edge"}'}}
spec: {type: NodePort, clusterIP: 10.96.0.1, ports: [{port: 15443, nodePort: 31443}, {port: 80}]}
`, kube.Entrance{ByNode: true, NodeLabels: mesh.LabelsOf(map[string]string{"pool": "edge"}), NodePorts: ports}},
		{"all nodes", `
metadata: {name: a, annotations: {traffic.istio.io/nodeSelector: ""}}
spec: {type: NodePort, clusterIP: 10.96.0.1, ports: [{port: 15443, nodePort: 31443}]}
`, kube.Entrance{ByNode: true, NodePorts: ports}},
		{"a selector that cannot be read", `
metadata: {name: a, annotations: {traffic.istio.io/nodeSelector: "pool=edge"}}
spec: {type: NodePort, clusterIP: 10.96.0.1, ports: [{port: 15443, nodePort: 31443}]}
`, kube.Entrance{}},
	} {
		if got := newConverter().Service(read[core.Service](t, c.text)).Entrance; got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestProtocol(t *testing.T) {
	app := func(s string) *string { return &s }
	for _, c := range []struct {
		transport core.Protocol
		app       *string
		name      string
		number    int32
		want      mesh.Protocol
	}{
		{name: "", number: 80, want: mesh.Auto},
		{name: "http", number: 80, want: mesh.HTTP},
		{name: "HTTP-web", number: 80, want: mesh.HTTP},
		{name: "httpx", number: 80, want: mesh.Auto},
		{name: "http2-a-b", number: 80, want: mesh.HTTP2},
		{name: "grpc", number: 80, want: mesh.GRPC},
		{name: "grpc-web", number: 80, want: mesh.GRPCWeb},
		{name: "gRPC-Web-x", number: 80, want: mesh.GRPCWeb},
		{name: "grpc-webx", number: 80, want: mesh.GRPC},
		{name: "mongo-db", number: 80, want: mesh.Mongo},
		{name: "-http", number: 80, want: mesh.Auto},
		{name: "web", number: 3306, want: mesh.TCP},
		{name: "http", number: 3306, want: mesh.HTTP},
		{name: "web", number: 25, want: mesh.TCP},
		{name: "web", number: 53, want: mesh.TCP},
		{name: "web", number: 27017, want: mesh.TCP},
		{name: "web", number: 5432, want: mesh.Auto},
		{name: "http", app: app("tcp"), number: 80, want: mesh.TCP},
		{name: "http", app: app("HTTPS"), number: 80, want: mesh.HTTPS},
		{name: "a", app: app("http-x"), number: 80, want: mesh.HTTP},
		{name: "a", app: app("grpc-web"), number: 80, want: mesh.GRPCWeb},
		{name: "http", app: app("unheard.of/protocol"), number: 80, want: mesh.Auto},
		{name: "http", app: app(""), number: 80, want: mesh.Auto},
		{name: "a", app: app("unheard.of/protocol"), number: 3306, want: mesh.TCP},
		{name: "http", app: app(""), number: 27017, want: mesh.TCP},
		{name: "a", app: app("kubernetes.io/h2c"), number: 80, want: mesh.HTTP2},
		{name: "a", app: app("kubernetes.io/ws"), number: 80, want: mesh.HTTP},
		{name: "a", app: app("kubernetes.io/wss"), number: 80, want: mesh.HTTPS},
		{transport: core.ProtocolUDP, name: "http", number: 80, want: mesh.UDP},
		{transport: core.ProtocolSCTP, app: app("http"), number: 80, want: mesh.HTTP},
		{transport: core.ProtocolSCTP, name: "s1", number: 36412, want: mesh.Auto},
	} {
		if got := protocol(c.transport, c.app, c.name, c.number); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestService(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       *kube.Service
	}{
		{"plain", `
metadata: {name: a, creationTimestamp: "2026-01-01T00:00:01Z", annotations: {networking.istio.io/exportTo: "., b,"}}
spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1, "fd00::1"], selector: {b: "2", a: "1"}, internalTrafficPolicy: Local, trafficDistribution: PreferClose,
  ports: [{name: http, port: 80, targetPort: 8080}, {name: x, port: 81, targetPort: named}, {name: z, port: 82, protocol: UDP}]}`,
			&kube.Service{
				Created: time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC).UnixMicro(), Addresses: []string{"10.0.0.1", "fd00::1"}, ExportTo: []string{".", "b"},
				Selector: intern.Of(mesh.Label{Name: "a", Value: "1"}, mesh.Label{Name: "b", Value: "2"}), NodeLocal: true, Distribution: "PreferClose",
				Ports: []kube.ServicePort{{Name: "http", Number: 80, Protocol: mesh.HTTP, Target: 8080},
					{Name: "x", Number: 81, TargetName: "named"}, {Name: "z", Number: 82, Protocol: mesh.UDP, Target: 82}},
			}},
		{"SCTP beside TCP", `
metadata: {name: a}
spec: {clusterIP: 10.0.0.1, ports: [{name: s, port: 80, protocol: SCTP}, {name: http, port: 80}, {name: t, port: 81, protocol: SCTP}, {name: u, port: 81, protocol: UDP}]}`,
			&kube.Service{
				Addresses: []string{"10.0.0.1"},
				Ports: []kube.ServicePort{{Name: "http", Number: 80, Protocol: mesh.HTTP, Target: 80}, {Name: "t", Number: 81, Target: 81},
					{Name: "u", Number: 81, Protocol: mesh.UDP, Target: 81}},
			}},
		{"headless, with identities", `
metadata: {annotations: {alpha.istio.io/kubernetes-serviceaccounts: "a,b", alpha.istio.io/canonical-serviceaccounts: "spiffe://x/y",
  networking.istio.io/traffic-distribution: PreferSameZone}}
spec: {clusterIP: None, clusterIPs: [None]}`,
			&kube.Service{Type: kube.Headless, ServiceAccounts: []string{"a", "b"}, Identities: []string{"spiffe://x/y"}, Annotation: "PreferSameZone",
				Ports: []kube.ServicePort{}}},
		{"external name", `spec: {type: ExternalName, externalName: DB.Example.com., ports: [{port: 5432}]}`,
			&kube.Service{Type: kube.ExternalName, ExternalName: "db.example.com", Ports: []kube.ServicePort{{Number: 5432, Target: 5432}}}},
		{"no address yet", `spec: {ports: [{port: 80}]}`, nil},
		{"node port", `spec: {type: NodePort, clusterIP: 10.0.0.2, ports: [{port: 80}]}`,
			&kube.Service{Addresses: []string{"10.0.0.2"}, Ports: []kube.ServicePort{{Number: 80, Target: 80}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := newConverter().Service(read[core.Service](t, c.text))
			if (got == nil) != (c.want == nil) || got != nil && !got.Same(c.want) {
				t.Errorf("got\n%+v, want\n%+v", got, c.want)
			}
		})
	}
}

func TestSlice(t *testing.T) {
	head := "addressType: IPv4\nmetadata: {namespace: shop, labels: {kubernetes.io/service-name: a%s}}\n"
	for _, c := range []struct {
		name, text string
		want       *kube.Slice
	}{
		{"no service", "addressType: IPv4\nmetadata: {labels: {a: b}}", nil},
		{"names", strings.Replace(fmt.Sprintf(head, ""), "IPv4", "FQDN", 1), nil},
		{"by hand, with equally good addresses", fmt.Sprintf(head, "") + "ports: [{port: 80}, {name: x}]\nendpoints: [{addresses: [192.0.2.1, 192.0.2.2]}, {addresses: []}, {addresses: [no-address]}]",
			&kube.Slice{Service: "a", Ports: intern.Of(kube.SlicePort{Number: 80}, kube.SlicePort{Name: "x"}), Endpoints: []kube.SliceEndpoint{{Address: "192.0.2.1"}, {Address: "192.0.2.2"}}}},
		{"health", fmt.Sprintf(head, ", endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io") + `endpoints:
- {addresses: [192.0.2.1], conditions: {ready: true, serving: true, terminating: true}, targetRef: {kind: Pod, name: a-1, namespace: shop}}
- {addresses: [192.0.2.2], conditions: {ready: false}, targetRef: {kind: Pod, name: a-2, namespace: elsewhere}}
- {addresses: [192.0.2.3], conditions: {ready: false, serving: true, terminating: true}, targetRef: {kind: VirtualMachine, name: a-3}}
- {addresses: [192.0.2.4], conditions: {ready: false, serving: false, terminating: true}, targetRef: {kind: Pod, name: a-4}}
- {addresses: [192.0.2.5], conditions: {ready: false, serving: true, terminating: false}}
`, &kube.Slice{Service: "a", Controlled: true, Endpoints: []kube.SliceEndpoint{
			{Address: "192.0.2.1", Pod: "a-1"}, {Address: "192.0.2.2", Health: kube.NotReady, Pod: "elsewhere/a-2"}, {Address: "192.0.2.3", Health: kube.Draining},
			{Address: "192.0.2.4", Health: kube.Ending, Pod: "a-4"}, {Address: "192.0.2.5", Health: kube.NotReady}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := newConverter().Slice(read[discovery.EndpointSlice](t, c.text))
			if (got == nil) != (c.want == nil) || got != nil && !got.Same(c.want) {
				t.Errorf("got\n%+v, want\n%+v", got, c.want)
			}
		})
	}
}

func TestPod(t *testing.T) {
	got := newConverter().Pod(read[core.Pod](t, `
metadata: {name: a-1, labels: {app: a}}
spec: {nodeName: n1, serviceAccountName: sa, hostNetwork: true, containers: [
  {name: x, ports: [{name: http, containerPort: 8080}, {containerPort: 1}]}, {name: y, ports: [{name: dns, containerPort: 53, protocol: UDP}]}],
  initContainers: [{name: i, ports: [{name: once, containerPort: 90}]}, {name: n, restartPolicy: Always, ports: [{name: native, containerPort: 91}]}]}
status: {phase: Running, podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}, {ip: "fd00::1"}]}`))
	want := &kube.Pod{Address: "10.0.0.1", MoreAddresses: intern.Of("fd00::1"), Node: "n1", ServiceAccount: "sa", HostNetwork: true,
		Labels: intern.Of(mesh.Label{Name: "app", Value: "a"}), Ports: intern.Of(kube.NamedPort{Name: "http", Number: 8080}, kube.NamedPort{Name: "dns", Number: 53, UDP: true}, kube.NamedPort{Name: "native", Number: 91}),
		Owner: kube.Workload{Kind: "Pod", Name: "a-1"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
	pending := newConverter().Pod(read[core.Pod](t, "status: {phase: Pending, conditions: [{type: Ready, status: 'False'}]}"))
	if pending == nil || pending.Address != "" || !pending.NotReady {
		t.Errorf("a pod without an address: %+v", pending)
	}
	for _, status := range []string{"{phase: Succeeded, podIP: 10.0.0.1}", "{phase: Failed, podIP: 10.0.0.1}"} {
		if got := newConverter().Pod(read[core.Pod](t, "status: "+status)); got != nil {
			t.Errorf("%s: %+v", status, got)
		}
	}
}

// TestCaptures: an agent captures traffic once its condition Ready is True, and until it ends.
func TestCaptures(t *testing.T) {
	const pod = "{metadata: {labels: {k8s-app: %s}%s}, spec: {nodeName: %s}, status: {phase: Running, conditions: [{type: %s, status: '%s'}]}}"
	for _, c := range []struct {
		label, more, node, condition, status string
		want                                 bool
	}{
		{"istio-cni-node", "", "n1", "Ready", "True", true},
		{"istio-cni-node", "", "n1", "Ready", "False", false},
		{"istio-cni-node", "", "n1", "Ready", "Unknown", false},
		{"istio-cni-node", "", "n1", "ContainersReady", "True", false},
		{"istio-cni-node", "", "''", "Ready", "True", false},
		{"istio-cni-node", ", deletionTimestamp: '2026-01-01T00:00:00Z'", "n1", "Ready", "True", false},
		{"kube-proxy", "", "n1", "Ready", "True", false},
	} {
		if p := newConverter().Pod(read[core.Pod](t, fmt.Sprintf(pod, c.label, c.more, c.node, c.condition, c.status))); p.Captures != c.want {
			t.Errorf("%+v: %v", c, p.Captures)
		}
	}
	for taint, want := range map[string]bool{"cni.istio.io/not-ready": true, "node.kubernetes.io/not-ready": false} {
		if n := newConverter().Node(read[core.Node](t, "spec: {taints: [{key: x, effect: NoExecute}, {key: "+taint+", effect: NoSchedule}]}")); n.Uncaptured != want {
			t.Errorf("a node with the taint %s: %v", taint, n.Uncaptured)
		}
	}
}

func TestOwner(t *testing.T) {
	for _, c := range []struct{ kind, name, labels, annotations, want string }{
		{"", "", "", "", "Pod p"},
		{"ReplicaSet", "web-5d4f", "pod-template-hash: 5d4f", "", "Deployment web"},
		{"ReplicaSet", "web-5d4f", "pod-template-hash: abcd", "", "ReplicaSet web-5d4f"},
		{"ReplicaSet", "web-5d4f", "", "", "ReplicaSet web-5d4f"},
		{"ReplicaSet", "-5d4f", "pod-template-hash: 5d4f", "", "ReplicaSet -5d4f"},
		{"ReplicaSet", "web-5d4f", "rollouts-pod-template-hash: 5d4f", "", "Rollout web"},
		{"StatefulSet", "db", "", "", "StatefulSet db"},
		{"Job", "nightly-28945440", "", "", "CronJob nightly"},
		{"Job", "nightly-2894544", "", "", "Job nightly-2894544"},
		{"Job", "nightly-2894544x", "", "", "Job nightly-2894544x"},
		{"Job", "-28945440", "", "", "Job -28945440"},
		{"ReplicationController", "web-3", "", "openshift.io/deployment-config.name: web", "DeploymentConfig web"},
		{"ReplicationController", "web-3", "", "", "ReplicationController web-3"},
	} {
		m := read[metav1.ObjectMeta](t, fmt.Sprintf("{name: p, labels: {%s}, annotations: {%s}}", c.labels, c.annotations))
		if c.kind != "" {
			is := true
			m.OwnerReferences = []metav1.OwnerReference{{Kind: "Other", Name: "x"}, {Kind: c.kind, Name: c.name, Controller: &is}}
		}
		if got := newConverter().owner(m); got.Kind+" "+got.Name != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestNodeAndNamespace(t *testing.T) {
	n := newConverter().Node(read[core.Node](t, `
metadata: {labels: {topology.kubernetes.io/region: r, topology.kubernetes.io/zone: z, topology.istio.io/subzone: s}}
status: {addresses: [{type: Hostname, address: h}, {type: InternalIP, address: 10.0.0.1}, {type: ExternalIP, address: 192.0.2.1}]}`))
	if n.Locality != (mesh.Locality{Region: "r", Zone: "z", SubZone: "s"}) || !slices.Equal(n.Addresses.Items(), []string{"192.0.2.1"}) {
		t.Errorf("node %+v", n)
	}
	one := newConverter().Namespace(&read[metav1.PartialObjectMetadata](t, `metadata: {labels: {topology.istio.io/network: n1, a: b}, annotations: {networking.istio.io/traffic-distribution: PreferClose}}`).ObjectMeta)
	if *one != (kube.Namespace{Distribution: "PreferClose", Network: "n1", Labels: mesh.LabelsOf(map[string]string{"topology.istio.io/network": "n1", "a": "b"})}) {
		t.Errorf("namespace %+v", one)
	}
}

// TestTexts checks that equal texts are one, and that only a limited number is remembered.
func TestTexts(t *testing.T) {
	x := NewTexts(4)
	for i := range 100 {
		x.Of(fmt.Sprint("text", i))
		if x.Of("often") != "often" || len(x.now)+len(x.was) > 8 {
			t.Fatalf("%d texts", len(x.now)+len(x.was))
		}
	}
}

// FuzzService checks that no annotation, port or name stops the conversion, and that equal objects have equal values.
func FuzzService(f *testing.F) {
	f.Add("a,b", "grpc-web", "kubernetes.io/h2c", "named", int32(80), "DB.")
	f.Add(",", "-", "", "70000", int32(-1), ".")
	f.Fuzz(func(t *testing.T, list, name, app, target string, number int32, external string) {
		s := &core.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{exportToAnnotation: list, accountsAnnotation: list}}}
		s.Spec.ClusterIP, s.Spec.ExternalName = "10.0.0.1", external
		s.Spec.Ports = []core.ServicePort{{Name: name, AppProtocol: &app, Port: number}, {Name: name, Port: number}}
		s.Spec.Ports[1].TargetPort.Type, s.Spec.Ports[1].TargetPort.StrVal = 1, target
		c := newConverter()
		v := c.Service(s)
		if !v.Same(c.Service(s)) {
			t.Errorf("%+v differs from itself", v)
		}
		for _, p := range v.Ports {
			if p.Number > 65535 || p.Target > 65535 || p.TargetName != "" && p.Target != 0 {
				t.Errorf("port %+v", p)
			}
		}
		for _, e := range v.ExportTo {
			if e == "" || strings.Contains(e, ",") {
				t.Errorf("exportTo %q", v.ExportTo)
			}
		}
		if workload, ok := withoutHash(name, target); ok && workload+"-"+target != name {
			t.Errorf("%q without %q is %q", name, target, workload)
		}
		if job, ok := cronJob(name); ok && (job == "" || !strings.HasPrefix(name, job+"-")) {
			t.Errorf("%q is the CronJob of %q", job, name)
		}
	})
}
