package kube

import (
	"fmt"
	"maps"

	meshconfig "istio.io/api/mesh/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pilotmesh/pilot/internal/mesh"
)

// view decides which objects are passed on. It never changes: other settings make another view.
type view struct {
	// ready is true once the mesh configuration is known, and the namespaces if some of them are to be selected. Nothing is passed
	// on before.
	ready bool
	// all is true if there are no selectors: all namespaces are selected. Otherwise selected has the selected namespaces.
	all      bool
	selected map[string]bool
	// control is the namespace of the control plane, whose configuration always counts.
	control string
	// revisions are the revision of the control plane and its tags.
	revisions map[string]bool
}

func (v *view) equal(o *view) bool {
	return v.ready == o.ready && v.all == o.all && v.control == o.control && maps.Equal(v.selected, o.selected) && maps.Equal(v.revisions, o.revisions)
}

// namespaced reports whether objects of a service registry in a namespace are passed on.
func (v *view) namespaced(namespace string) bool { return v.ready && (v.all || v.selected[namespace]) }

// configuration reports whether an object of configuration is passed on. revision is the value of its label istio.io/rev; an
// object without it belongs to all revisions.
func (v *view) configuration(namespace, revision string) bool {
	return (v.namespaced(namespace) || v.ready && (namespace == v.control || namespace == "")) && (revision == "" || v.revisions[revision])
}

// selectors returns the discoverySelectors of a mesh configuration. A namespace is selected if one of them matches its labels, or
// if there are none.
func selectors(m *meshconfig.MeshConfig) ([]labels.Selector, error) {
	var out []labels.Selector
	for i, s := range m.GetDiscoverySelectors() {
		whole := &metav1.LabelSelector{MatchLabels: s.GetMatchLabels()}
		for _, e := range s.GetMatchExpressions() {
			whole.MatchExpressions = append(whole.MatchExpressions, metav1.LabelSelectorRequirement{
				Key: e.GetKey(), Operator: metav1.LabelSelectorOperator(e.GetOperator()), Values: e.GetValues(),
			})
		}
		one, err := metav1.LabelSelectorAsSelector(whole)
		if err != nil {
			return nil, fmt.Errorf("discoverySelectors[%d]: %w", i, err)
		}
		out = append(out, one)
	}
	return out, nil
}

// selects reports whether one of the selectors matches labels.
func selects(list []labels.Selector, of mesh.Labels) bool {
	set := labels.Set{}
	for l := range of.All() {
		set[l.Name] = l.Value
	}
	for _, s := range list {
		if s.Matches(set) {
			return true
		}
	}
	return false
}
