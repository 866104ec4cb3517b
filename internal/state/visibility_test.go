package state_test

import (
	"slices"
	"testing"

	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state"
)

// visible is a mesh whose ServiceEntries are seen nowhere, but in their own namespace if it has a team, and as they say if it is trusted.
func visible(applies bool) *meshconfig.MeshConfig {
	rule := func(s *meshconfig.LabelSelector) []*meshconfig.ServiceEntryVisibility_MatchRule {
		return []*meshconfig.ServiceEntryVisibility_MatchRule{{Matcher: &meshconfig.ServiceEntryVisibility_MatchRule_NamespaceSelector{NamespaceSelector: s}}}
	}
	trusted := rule(&meshconfig.LabelSelector{MatchLabels: map[string]string{"trust": "full"}})
	trusted = append(trusted, rule(&meshconfig.LabelSelector{MatchExpressions: []*meshconfig.LabelSelectorRequirement{
		{Key: "stage", Operator: "NotIn", Values: []string{"test", "trial"}}, {Key: "gone", Operator: "DoesNotExist"}}})...)
	return &meshconfig.MeshConfig{ServiceEntryVisibility: &meshconfig.ServiceEntryVisibility{
		ApplyToSidecars: applies, DefaultVisibility: meshconfig.ServiceEntryVisibility_NONE,
		Policies: []*meshconfig.ServiceEntryVisibility_Policy{
			{Visibility: meshconfig.ServiceEntryVisibility_PUBLIC, MatchingRules: trusted},
			{Visibility: meshconfig.ServiceEntryVisibility_NAMESPACE, MatchingRules: rule(&meshconfig.LabelSelector{MatchExpressions: []*meshconfig.LabelSelectorRequirement{
				{Key: "team", Operator: "Exists"}, {Key: "team", Operator: "In", Values: []string{"a", "b"}}}})},
		},
	}}
}

// TestVisibility: the first policy all of whose rules match the namespace says who sees a ServiceEntry, when the labels of the namespace change, too. What the
// ServiceEntry says itself can only narrow that.
func TestVisibility(t *testing.T) {
	exports := [][]string{nil, {"."}, {"shop", "other"}, {"other"}, {"~"}}
	asSaid := [][]string{{""}, {"shop"}, {"other", "shop"}, {"other"}, nil}
	own := [][]string{{"shop"}, {"shop"}, {"shop"}, nil, nil}
	nowhere := make([][]string, len(exports))
	tables := state.New(state.Options{ClusterID: "here"})
	var keys []api.Key
	for _, list := range exports {
		o, err := api.Object{Key: api.Key{Kind: api.KindServiceEntry, Namespace: "shop", Name: "e" + string(rune('0'+len(keys)))}, Spec: &networking.ServiceEntry{Hosts: []string{"one.com"}, ExportTo: list}}.Seal()
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, o.Key)
		apply(tables, put("s", o))
	}
	expect := func(when string, want [][]string) {
		t.Helper()
		for i, k := range keys {
			c, _ := tables.Claims.Peek(k)
			var got []string
			if c != nil {
				got = c.Layers
			}
			if !slices.Equal(got, want[i]) {
				t.Errorf("%s: exportTo %q is seen by %q, want %q", when, exports[i], got, want[i])
			}
		}
	}
	label := func(cluster string, labels map[string]string) {
		observe(tables, api.Key{Kind: kube.KindNamespace, Name: "shop", Cluster: cluster}, &kube.Namespace{Labels: mesh.LabelsOf(labels)})
	}
	expect("without a policy", asSaid)
	apply(tables, source.Batch{Source: "s", Mesh: visible(false)})
	expect("for ambient proxies only", asSaid)
	apply(tables, source.Batch{Source: "s", Mesh: visible(true)})
	expect("a namespace that is not known", nowhere)
	for _, c := range []struct {
		labels map[string]string
		want   [][]string
	}{
		{map[string]string{"team": "c"}, nowhere},
		{map[string]string{"team": "a"}, own},
		{map[string]string{"trust": "full"}, asSaid},
		{map[string]string{"trust": "full", "stage": "test", "team": "b"}, own},
		{map[string]string{"trust": "full", "stage": "live"}, asSaid},
		{map[string]string{"trust": "full", "gone": ""}, nowhere},
	} {
		label("here", c.labels)
		label("elsewhere", map[string]string{"trust": "full"})
		expect(mesh.FormatLabels(c.labels), c.want)
	}
	apply(tables, source.Batch{Source: "s", Mesh: &meshconfig.MeshConfig{}})
	expect("without a policy again", asSaid)
}
