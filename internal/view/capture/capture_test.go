package capture_test

import (
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/view/capture"
)

// TestCaptured: a node is captured if it has the taint and a ready agent of the right namespace. Neither agents of other nodes, of other namespaces or of
// other clusters count, nor other pods of the node.
func TestCaptured(t *testing.T) {
	w := meshtest.New(t)
	var now capture.Nodes
	release := w.Queries.Captured.Observe("kube-system", func(m capture.Nodes) { now = m })
	defer release()
	in := func(kind, namespace, name string) api.Key {
		return api.Key{Kind: kind, Namespace: namespace, Name: name, Cluster: w.Tables.ClusterID()}
	}
	elsewhere := func(k api.Key) api.Key { k.Cluster = "elsewhere"; return k }
	tainted, agent := &kube.Node{Uncaptured: true}, func(node string) *kube.Pod { return &kube.Pod{Node: node, Captures: true, Unselected: true} }
	one := in(kube.KindNode, "", "one")
	for _, step := range []struct {
		name   string
		values map[api.Key]kube.Value
		want   string
	}{
		{"no agent", map[api.Key]kube.Value{one: tainted, in(kube.KindNode, "", "two"): tainted, elsewhere(in(kube.KindNode, "", "three")): tainted}, ""},
		{"pods that do not count", map[api.Key]kube.Value{
			in(kube.KindPod, "kube-system", "waits"): &kube.Pod{Node: "one", NotReady: true}, in(kube.KindPod, "kube-system", "other"): &kube.Pod{Node: "one"},
			in(kube.KindPod, "shop", "fake"): agent("one"), elsewhere(in(kube.KindPod, "kube-system", "far")): agent("one"),
		}, ""},
		{"an agent", map[api.Key]kube.Value{in(kube.KindPod, "kube-system", "a1"): agent("one")}, "one"},
		{"more", map[api.Key]kube.Value{in(kube.KindPod, "kube-system", "a2"): agent("two"), elsewhere(in(kube.KindPod, "kube-system", "a3")): agent("three")}, "one two"},
		{"no taint any more", map[api.Key]kube.Value{one: &kube.Node{}}, "two"},
		{"the agent goes", map[api.Key]kube.Value{in(kube.KindPod, "kube-system", "a2"): nil}, ""},
		{"the taint is back", map[api.Key]kube.Value{one: tainted}, "one"},
		{"the agent is not ready any more", map[api.Key]kube.Value{in(kube.KindPod, "kube-system", "a1"): &kube.Pod{Node: "one", NotReady: true}}, ""},
		{"the node goes", map[api.Key]kube.Value{in(kube.KindPod, "kube-system", "a1"): agent("one"), one: nil}, ""},
	} {
		w.Observe(step.values)
		var names []string
		for _, n := range now.All() {
			names = append(names, n.Name)
		}
		if got := strings.Join(names, " "); got != step.want {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
		if !now.Equal(w.Queries.Captured.Get(w.Graph.Naive(), "kube-system")) {
			t.Errorf("%s: evaluated anew, it is another", step.name)
		}
	}
}

// TestUnselected: an agent in a namespace that is not selected is no pod for anything else, and what says whether it is ready is no part of a pod.
func TestUnselected(t *testing.T) {
	w := meshtest.New(t)
	k := api.Key{Kind: kube.KindPod, Namespace: "kube-system", Name: "a", Cluster: w.Tables.ClusterID()}
	pod := func() (found *kube.Pod) { found, _ = w.Tables.Kube.Pods.Peek(k); return found }
	w.Observe(map[api.Key]kube.Value{k: &kube.Pod{Node: "one", Captures: true, Unselected: true}})
	if p := pod(); p != nil {
		t.Errorf("there is a row %+v", p)
	}
	w.Observe(map[api.Key]kube.Value{k: &kube.Pod{Node: "one", Captures: true}})
	if p := pod(); p == nil || p.Captures {
		t.Errorf("a pod of a namespace that is selected: %+v", p)
	}
}
