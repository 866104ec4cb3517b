package kube

import (
	"testing"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
)

func TestSelectors(t *testing.T) {
	prod := intern.Of(mesh.Label{Name: "env", Value: "prod"})
	none := intern.Of[mesh.Label]()
	one := func(s ...*meshconfig.LabelSelector) *meshconfig.MeshConfig {
		return &meshconfig.MeshConfig{DiscoverySelectors: s}
	}
	expression := func(operator string, values ...string) *meshconfig.MeshConfig {
		return one(&meshconfig.LabelSelector{MatchExpressions: []*meshconfig.LabelSelectorRequirement{{Key: "env", Operator: operator, Values: values}}})
	}
	for _, c := range []struct {
		mesh       *meshconfig.MeshConfig
		prod, none bool
	}{
		{one(&meshconfig.LabelSelector{}), true, true},
		{one(&meshconfig.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}), true, false},
		{one(&meshconfig.LabelSelector{MatchLabels: map[string]string{"env": "dev"}}, &meshconfig.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}), true, false},
		{expression("In", "prod", "dev"), true, false},
		{expression("NotIn", "prod"), false, true},
		{expression("Exists"), true, false},
		{expression("DoesNotExist"), false, true},
	} {
		list, err := selectors(c.mesh)
		if err != nil || selects(list, prod) != c.prod || selects(list, none) != c.none {
			t.Errorf("%v: prod %v, none %v, %v", c.mesh, selects(list, prod), selects(list, none), err)
		}
	}
	for _, bad := range []*meshconfig.MeshConfig{expression("Like", "x"), expression("In")} {
		if _, err := selectors(bad); err == nil {
			t.Errorf("%v: no error", bad)
		}
	}
}

func TestView(t *testing.T) {
	all := &view{ready: true, all: true, control: "istio-system", revisions: map[string]bool{"canary": true, "prod": true}}
	some := &view{ready: true, selected: map[string]bool{"shop": true}, control: "istio-system", revisions: map[string]bool{"default": true}}
	for _, c := range []struct {
		v                   *view
		namespace, revision string
		values, objects     bool
	}{
		{&view{}, "shop", "", false, false},
		{all, "shop", "", true, true},
		{all, "shop", "canary", true, true},
		{all, "shop", "prod", true, true},
		{all, "shop", "default", true, false},
		{some, "shop", "default", true, true},
		{some, "shop", "canary", true, false},
		{some, "other", "", false, false},
		{some, "istio-system", "", false, true},
	} {
		if c.v.namespaced(c.namespace) != c.values || c.v.configuration(c.namespace, c.revision) != c.objects {
			t.Errorf("%+v: %v, %v", c, c.v.namespaced(c.namespace), c.v.configuration(c.namespace, c.revision))
		}
	}
}

// TestShowPod: of pods in namespaces that are not selected, only the agents of a CNI plugin are passed on, without all else about them.
func TestShowPod(t *testing.T) {
	some := &view{ready: true, selected: map[string]bool{"shop": true}}
	agent, pod := &kube.Pod{Address: "10.0.0.1", Node: "n1", Captures: true}, &kube.Pod{Address: "10.0.0.2", Node: "n1"}
	for _, c := range []struct {
		v         *view
		namespace string
		pod, want *kube.Pod
	}{
		{some, "shop", pod, pod},
		{some, "shop", agent, agent},
		{some, "kube-system", pod, nil},
		{some, "kube-system", agent, &kube.Pod{Node: "n1", Captures: true, Unselected: true}},
		{&view{}, "kube-system", agent, nil},
	} {
		got, _ := showPod(name{namespace: c.namespace}, c.pod, c.v).value.(*kube.Pod)
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("in %s: %+v, want %+v", c.namespace, got, c.want)
		}
	}
}

// TestEqualViews checks that views are equal only if they decide equally, because look passes on nothing if they are equal.
func TestEqualViews(t *testing.T) {
	base := func() *view {
		return &view{ready: true, selected: map[string]bool{"shop": true}, control: "istio-system", revisions: map[string]bool{"default": true}}
	}
	if !base().equal(base()) {
		t.Error("equal views differ")
	}
	for what, change := range map[string]func(v *view){
		"ready":     func(v *view) { v.ready = false },
		"all":       func(v *view) { v.all = true },
		"selected":  func(v *view) { v.selected = map[string]bool{"shop": true, "other": true} },
		"control":   func(v *view) { v.control = "other" },
		"revisions": func(v *view) { v.revisions = map[string]bool{"default": true, "prod": true} },
	} {
		other := base()
		if change(other); base().equal(other) {
			t.Errorf("views with another %s are equal", what)
		}
	}
}
