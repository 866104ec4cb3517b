package state_test

import (
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/claim"
)

func observe(t *state.Tables, k api.Key, v kube.Value) {
	apply(t, source.Batch{Source: "s", Events: []source.Event{{Key: k, Value: v}}})
}

// TestNearness checks which endpoints of a Service are preferred: by its spec, its annotation, or its namespace, whose
// annotation may come and change later.
func TestNearness(t *testing.T) {
	const namespaceZone = "PreferSameZone"
	for _, c := range []struct {
		name    string
		service kube.Service
		want    mesh.Nearness
		alone   mesh.Nearness // without the namespace
	}{
		{"the namespace", kube.Service{}, mesh.SameZone, mesh.Anywhere},
		{"the spec", kube.Service{Distribution: "PreferSameNode"}, mesh.SameNode, mesh.SameNode},
		{"the old name of the same zone", kube.Service{Distribution: "PreferClose"}, mesh.SameZone, mesh.SameZone},
		{"the annotation, in lower case", kube.Service{Annotation: "prefersamenode"}, mesh.SameNode, mesh.SameNode},
		{"the spec before the annotation", kube.Service{Annotation: "PreferClose", Distribution: "PreferSameNode"}, mesh.SameNode, mesh.SameNode},
		{"the annotation behind an unknown spec", kube.Service{Annotation: "PreferSameNode", Distribution: "Somewhere"}, mesh.SameNode, mesh.SameNode},
		{"the namespace behind an unknown annotation", kube.Service{Annotation: "Somewhere"}, mesh.SameZone, mesh.Anywhere},
		{"no preference before the namespace", kube.Service{Annotation: "Any"}, mesh.Anywhere, mesh.Anywhere},
		{"the spec before no preference", kube.Service{Annotation: "Any", Distribution: "PreferSameNode"}, mesh.SameNode, mesh.SameNode},
		{"the node only", kube.Service{NodeLocal: true, Annotation: "PreferClose"}, mesh.OnlyNode, mesh.OnlyNode},
	} {
		t.Run(c.name, func(t *testing.T) {
			tables := state.New(state.Options{})
			k := api.Key{Kind: kube.KindService, Namespace: "shop", Name: "a", Cluster: "west"}
			namespace := api.Key{Kind: kube.KindNamespace, Name: "shop", Cluster: "west"}
			observe(tables, k, &c.service)
			observe(tables, api.Key{Kind: kube.KindNamespace, Name: "shop", Cluster: "east"}, &kube.Namespace{Distribution: "PreferSameNode"})
			observe(tables, namespace, &kube.Namespace{Distribution: namespaceZone})
			if s, _ := tables.Services.Peek(k); s.Near != c.want {
				t.Errorf("prefers %v, want %v", s.Near, c.want)
			}
			before := tables.DB.Revision()
			observe(tables, namespace, &kube.Namespace{Distribution: namespaceZone})
			if tables.DB.Revision() != before {
				t.Error("the same again is a change")
			}
			observe(tables, namespace, nil)
			if s, _ := tables.Services.Peek(k); s.Near != c.alone {
				t.Errorf("prefers %v after the namespace is gone", s.Near)
			}
		})
	}
}

// TestServiceBecomesAName checks that a Service that becomes another name for a host is no service any more.
func TestServiceBecomesAName(t *testing.T) {
	tables := state.New(state.Options{})
	k := api.Key{Kind: kube.KindService, Namespace: "shop", Name: "a", Cluster: "west"}
	selector := mesh.LabelsOf(map[string]string{"app": "a"})
	rows := func() [4]int {
		return [4]int{tables.Services.Len(), tables.Endpoints.Len(), tables.Identities.Len(), tables.Claims.Len()}
	}
	observe(tables, k, &kube.Service{Selector: selector})
	if got := rows(); got != [4]int{1, 1, 1, 1} {
		t.Errorf("rows of a Service: %v", got)
	}
	observe(tables, k, &kube.Service{Selector: selector, Type: kube.ExternalName, ExternalName: "b.example.com"})
	if got := rows(); got != [4]int{0, 0, 0, 1} {
		t.Errorf("rows of a name: %v", got)
	}
	if c, _ := tables.Claims.Peek(k); c.Kind != claim.Alias || len(c.Hosts) != 1 || c.Hosts[0] != "b.example.com" {
		t.Errorf("the claim is %+v", c)
	}
	observe(tables, k, nil)
	if got := rows(); got != [4]int{} {
		t.Errorf("rows after it is gone: %v", got)
	}
}

// TestReadinessOfPods checks that the readiness of a pod is a row of its own, so that only queries that read it depend on it.
func TestReadinessOfPods(t *testing.T) {
	tables := state.New(state.Options{})
	k := api.Key{Kind: kube.KindPod, Namespace: "shop", Name: "a-1", Cluster: "west"}
	observe(tables, k, &kube.Pod{Address: "10.10.0.1"})
	was, _ := tables.Kube.Pods.Peek(k)
	tx := tables.DB.Begin()
	tables.Apply(tx, source.Batch{Source: "s", Events: []source.Event{{Key: k, Value: &kube.Pod{Address: "10.10.0.1", NotReady: true}}}})
	if _, touched := tx.Commit(); len(touched) != 1 {
		t.Errorf("%d rows changed: %v", len(touched), touched)
	}
	is, _ := tables.Kube.Pods.Peek(k)
	if unready, _ := tables.Kube.UnreadyPods.Peek(k); !unready || !is.Same(was) {
		t.Errorf("unready %v, pod %+v", unready, is)
	}
	observe(tables, k, nil)
	if tables.Kube.Pods.Len()+tables.Kube.UnreadyPods.Len() != 0 {
		t.Error("rows are left")
	}
}

// TestPlaceOfService checks that a Service from a file has the place of its document, until it is removed or comes from a cluster.
func TestPlaceOfService(t *testing.T) {
	tables := state.New(state.Options{})
	k := api.Key{Kind: kube.KindService, Namespace: "shop", Name: "a", Cluster: "west"}
	at := api.Position{File: "shop.yaml", Line: 7}
	for _, c := range []struct {
		name  string
		event source.Event
		want  api.Position
	}{
		{"in a file", source.Event{Key: k, Value: &kube.Service{}, Position: at}, at},
		{"in a cluster", source.Event{Key: k, Value: &kube.Service{NodeLocal: true}}, api.Position{}},
		{"in a file again", source.Event{Key: k, Value: &kube.Service{}, Position: at}, at},
		{"removed", source.Event{Key: k}, api.Position{}},
	} {
		apply(tables, source.Batch{Source: "s", Events: []source.Event{c.event}})
		if got, _ := tables.Positions.Peek(k); got != c.want {
			t.Errorf("%s: the place is %+v, want %+v", c.name, got, c.want)
		}
	}
}
