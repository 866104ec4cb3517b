package loop

import (
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// TestScaledToNothing checks that the clients of a workload keep its cluster while it is scaled to nothing and back: the cluster expects the identities
// of the former endpoints.
func TestScaledToNothing(t *testing.T) {
	f := start(t, Settings{})
	key := func(kind, name string) api.Key {
		return api.Key{Kind: kind, Namespace: "shop", Name: name, Cluster: "west"}
	}
	put := func(events ...source.Event) {
		f.Apply(source.Batch{Source: "test", Synced: true, Events: events})
		f.settled(func(*View) {}) // the commit of the batch
		f.settled(func(*View) {}) // and the one with the accounts, which follows at once
	}
	labels := mesh.LabelsOf(map[string]string{"app": "a", "security.istio.io/tlsMode": "istio"})
	service := &kube.Service{Addresses: []string{"10.96.0.1"}, Ports: []kube.ServicePort{{Name: "http", Number: 80, Protocol: mesh.TCP}}, Selector: labels}
	pod := source.Event{Key: key(kube.KindPod, "a-1"), Value: &kube.Pod{Address: "10.10.0.1", ServiceAccount: "one", Labels: labels}}
	slice := func(endpoints ...kube.SliceEndpoint) source.Event {
		return source.Event{Key: key(kube.KindEndpointSlice, "a-x"), Value: &kube.Slice{Service: "a", Controlled: true, Endpoints: endpoints}}
	}
	full := slice(kube.SliceEndpoint{Address: "10.10.0.1", Pod: "a-1"})
	put(source.Event{Key: key(kube.KindService, "a"), Value: service}, pod, full)
	_, s := f.attach(web0, "")
	const cluster = "outbound|80||a.shop.svc.cluster.local"
	before := s.wait(t, "the cluster", has(resource.Cluster, cluster))
	want, _ := before.Get(resource.Cluster, cluster)
	for _, step := range [][]source.Event{{{Key: pod.Key}}, {slice()}, {pod, full}} {
		put(step...)
		s.mu.Lock()
		now, _ := s.state.Get(resource.Cluster, cluster)
		s.mu.Unlock()
		if now != want {
			t.Errorf("another cluster after %v", step)
		}
	}
	after, _ := s.state.Get(resource.Endpoint, cluster)
	if first, _ := before.Get(resource.Endpoint, cluster); after == nil || after.ContentHash() != first.ContentHash() {
		t.Errorf("the endpoints are not back: %v", after)
	}
}
