package service_test

import (
	"testing"

	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/view/service"
)

// TestEndpointsOfWrittenServices: a Service of a file without slices has the pods of its cluster as endpoints that it selects and that have an
// address. One of a cluster waits for its slices.
func TestEndpointsOfWrittenServices(t *testing.T) {
	written := func(change func(*kube.Service)) *kube.Service {
		s := selecting(kube.ServicePort{Number: 80})
		s.Written = true
		change(s)
		return s
	}
	as := func(*kube.Service) {}
	one, template := &kube.Pod{Address: "10.10.0.1", Labels: appA}, &kube.Pod{Labels: appA}
	unready := &kube.Pod{Address: "10.10.0.2", Labels: appA, NotReady: true}
	other := &kube.Pod{Address: "10.10.0.3", Labels: mesh.LabelsOf(map[string]string{"app": "b"})}
	slice := &kube.Slice{Service: "a", Endpoints: []kube.SliceEndpoint{{Address: "10.10.0.9"}}}
	svc, pod := in("west", kube.KindService, "a"), in("west", kube.KindPod, "p")
	for _, c := range []struct {
		name   string
		values values
		want   string
	}{
		{"pods", values{
			svc: written(as), pod: one, in("west", kube.KindPod, "q"): unready, in("west", kube.KindPod, "r"): other, in("west", kube.KindPod, "Deployment/a"): template,
		}, "10.10.0.1 app=a, 10.10.0.2 app=a not ready"},
		{"slices go before pods", values{svc: written(as), pod: one, in("west", kube.KindEndpointSlice, "s"): slice}, "10.10.0.9"},
		{"a pod of another cluster", values{svc: written(as), in("east", kube.KindPod, "p"): one}, ""},
		{"no selector", values{svc: written(func(s *kube.Service) { s.Selector = mesh.Labels{} }), pod: one}, ""},
		{"a Service of a cluster", values{svc: written(func(s *kube.Service) { s.Written = false }), pod: one}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := meshtest.New(t)
			w.Observe(c.values)
			if got := endpoints(w, "a.shop.svc.cluster.local"); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestLabelsOfWrittenServices: a subset of a Service of a file has the labels of the workloads that the Service selects, with and without an
// address. Without such a workload, only the labels of the selector are known.
func TestLabelsOfWrittenServices(t *testing.T) {
	version := func(v string) map[string]string { return map[string]string{"version": v} }
	template := &kube.Pod{Labels: mesh.LabelsOf(map[string]string{"app": "a", "version": "v1"})}
	other := &kube.Pod{Labels: mesh.LabelsOf(map[string]string{"app": "b", "version": "v2"})}
	for _, c := range []struct {
		name    string
		pods    []*kube.Pod
		labels  map[string]string
		written bool
		missing bool
	}{
		{"of a workload", []*kube.Pod{template, other}, version("v1"), true, false},
		{"of a workload that is not selected", []*kube.Pod{template, other}, version("v2"), true, true},
		{"no workload", nil, version("v2"), true, false},
		{"only a workload that is not selected", []*kube.Pod{other}, version("v1"), true, false},
		{"against the selector", nil, map[string]string{"app": "b"}, true, true},
		{"a Service of a cluster", []*kube.Pod{template}, version("v1"), false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := meshtest.New(t)
			s := selecting(kube.ServicePort{Number: 80})
			s.Written = c.written
			all := values{in("west", kube.KindService, "a"): s}
			for i, p := range c.pods {
				all[in("west", kube.KindPod, "Deployment/"+string(rune('a'+i)))] = p
			}
			w.Observe(all)
			r := w.Graph.Naive()
			host, ok := w.Queries.Services.Service.Get(r, service.HostView{Host: "a.shop.svc.cluster.local"})
			if !ok {
				t.Fatal("no service")
			}
			if got := w.Queries.Services.MissingLabels(r, host, c.labels); (len(got) > 0) != c.missing {
				t.Errorf("missing %v", got)
			}
		})
	}
}
