package kubesource

import (
	"fmt"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/source"
	kubesource "github.com/pilotmesh/pilot/internal/source/kube"
)

const shop = `apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http-main, port: 80, targetPort: 8080}, {name: db, port: 3306}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, labels: {app: web}}
spec:
  serviceAccountName: default
  containers: [{name: main, image: none, ports: [{name: http, containerPort: 8080}]}]
---
apiVersion: v1
kind: Node
metadata: {name: machine, labels: {topology.kubernetes.io/region: r, topology.kubernetes.io/zone: z}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-by-hand, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http-main, port: 8080}]
endpoints: [{addresses: [192.0.2.7], conditions: {ready: true}}]
`

// running gives a pod an address.
func (p *place) running(pod, address string) {
	p.Helper()
	patch := fmt.Sprintf(`{"status": {"phase": "Running", "podIP": %[1]q, "podIPs": [{"ip": %[1]q}]}}`, address)
	_, err := p.api.CoreV1().Pods(p.namespace).Patch(p.Context(), pod, types.MergePatchType, []byte(patch), meta.PatchOptions{}, "status")
	p.must(err)
}

func value[V any](e source.Event) V {
	v, _ := e.Value.(V)
	return v
}

// TestRegistry follows the objects of a service from the first list to their removal.
func TestRegistry(t *testing.T) {
	p := on(t)
	p.apply(shop)
	t.Cleanup(func() { p.kubectl("", "delete", "node", "machine", "--ignore-not-found") })
	s := p.start(kubesource.Options{})
	service, pod, slice := p.registry("Service", "web"), p.registry("Pod", "web-1"), p.registry("EndpointSlice", "web-by-hand")
	if got := value[*kube.Service](s.at(service)); got == nil || len(got.Addresses) == 0 || got.Ports[0].Protocol != mesh.HTTP || got.Ports[1].Protocol != mesh.TCP {
		t.Errorf("service %+v", got)
	}
	if got := value[*kube.Slice](s.at(slice)); got == nil || len(got.Endpoints) != 1 || got.Controlled {
		t.Errorf("slice %+v", got)
	}
	node := p.registry("Node", "machine")
	node.Namespace = ""
	if got := value[*kube.Node](s.at(node)); got == nil || got.Locality != (mesh.Locality{Region: "r", Zone: "z"}) {
		t.Errorf("node %+v", got)
	}
	if got := value[*kube.Pod](s.at(pod)); got == nil || got.Address != "" {
		t.Errorf("a pod without an address: %+v", got)
	}
	p.running("web-1", "192.0.2.9")
	s.until("the pod has an address", func() bool { return value[*kube.Pod](s.state[pod]).Address != "" })
	if got := value[*kube.Pod](s.at(pod)); got.Address != "192.0.2.9" || got.Owner.Name != "web-1" || got.ServiceAccount != "default" {
		t.Errorf("pod %+v", got)
	}

	// Changes that no value shows cause no event. The label afterwards does.
	before := s.events(pod)
	p.kubectl("", "annotate", "pod", "web-1", "a=b")
	p.kubectl("", "annotate", "service", "web", "a=b")
	patch := `{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}`
	_, err := p.api.CoreV1().Pods(p.namespace).Patch(t.Context(), "web-1", types.MergePatchType, []byte(patch), meta.PatchOptions{}, "status")
	p.must(err)
	p.kubectl("", "label", "pod", "web-1", "version=v2")
	s.until("the label", func() bool {
		return value[*kube.Pod](s.state[pod]).Labels.Has(mesh.Label{Name: "version", Value: "v2"})
	})
	if got := s.events(pod); got != before+1 {
		t.Errorf("%d events of the pod for one change of its value", got-before)
	}
	if got := s.events(service); got != 1 {
		t.Errorf("%d events of the service", got)
	}

	// A pod that has ended, and removed objects.
	patch = `{"status": {"phase": "Succeeded"}}`
	_, err = p.api.CoreV1().Pods(p.namespace).Patch(t.Context(), "web-1", types.MergePatchType, []byte(patch), meta.PatchOptions{}, "status")
	p.must(err)
	s.until("the pod has ended", s.lacks(pod))
	p.kubectl("", "delete", "service", "web")
	s.until("the service is gone", s.lacks(service))
}

// TestRestart restarts the API server while the source watches and objects change.
func TestRestart(t *testing.T) {
	p := on(t)
	p.apply(shop)
	s := p.start(kubesource.Options{})
	service := p.registry("Service", "web")
	count := 0
	s.now(func() bool { count = len(s.state); return true })
	p.c.StopAPIServer()
	s.until("the outage is reported", s.problem("cannot reach the API server"))
	if !s.now(func() bool {
		return s.problem("its last known state, which is stale, is served")() && len(s.state) == count
	}) {
		t.Errorf("the %d objects do not stay", count)
	}
	p.must(p.c.StartAPIServer(t.Context()))
	s.until("the API server is back", not(s.problem("cannot reach")))
	_, err := p.api.CoreV1().Services(p.namespace).Create(t.Context(), &core.Service{ObjectMeta: meta.ObjectMeta{Name: "more"},
		Spec: core.ServiceSpec{Ports: []core.ServicePort{{Port: 80}}}}, meta.CreateOptions{})
	p.must(err)
	s.until("a new service", s.has(p.registry("Service", "more")))
	if got := s.events(service); got != 1 {
		t.Errorf("%d events of an unchanged service", got)
	}
}

const role = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules:
- {apiGroups: [""], resources: [services, pods, namespaces%s], verbs: [get, list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}
`

// TestPermission takes the permission for one kind away and gives it back.
func TestPermission(t *testing.T) {
	p := on(t)
	p.apply(shop)
	t.Cleanup(func() { p.kubectl("", "delete", "node", "machine", "--ignore-not-found") })
	config := p.as("reader", fmt.Sprintf(role, ""))
	s := p.run(kubesource.Options{Config: config})
	s.until("the missing permission is reported", s.problem("nodes may not be listed and watched"))
	s.until("the permissions of the others", s.has(p.registry("Service", "web")))
	if s.now(func() bool { return s.synced }) {
		t.Error("complete without waiting for nodes")
	}
	s.until("complete without nodes", func() bool { return s.synced })
	p.apply(fmt.Sprintf(role, ", nodes"))
	node := p.registry("Node", "machine")
	node.Namespace = ""
	s.until("the node", s.has(node))
	s.until("the problem is resolved", not(s.problem("nodes")))
	// Open watches continue without the permission. They end with the API server.
	p.apply(fmt.Sprintf(role, ""))
	p.must(p.c.RestartAPIServer(t.Context()))
	s.until("the permission is missing again", s.problem("nodes may not be listed and watched"))
	if !s.now(s.has(node)) {
		t.Error("the node is lost with the permission")
	}
	p.apply(strings.Replace(fmt.Sprintf(role, ", nodes"), "verbs: [get, list, watch]", "verbs: ['*']", 1))
	s.until("the permission is back", not(s.problem("nodes")))
}
