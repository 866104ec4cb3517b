package settings

import (
	"slices"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// Visibility is how far a ServiceEntry of a namespace is seen at most. Its own exportTo can narrow that.
type Visibility uint8

// The visibilities.
const (
	// Anywhere leaves it to the exportTo.
	Anywhere Visibility = iota
	// OwnNamespace lets the namespace of the ServiceEntry alone see it.
	OwnNamespace
	// Nowhere hides it from all namespaces.
	Nowhere
)

// writeVisibility replaces serviceEntryVisibility of the mesh configuration, which counts only if it applies to sidecars. It reports whether that changed.
func (t *Settings) writeVisibility(tx *store.Txn, m *meshconfig.MeshConfig) (changed bool) {
	is := Value{Message: &meshconfig.ServiceEntryVisibility{}}
	if v := m.GetServiceEntryVisibility(); v.GetApplyToSidecars() {
		is.Message = v
	}
	was, ok := t.rows.Peek(serviceEntryVisibility)
	if !ok {
		was.Message = &meshconfig.ServiceEntryVisibility{}
	}
	t.rows.Set(tx, serviceEntryVisibility, is)
	return !was.equal(is)
}

// ServiceEntryVisibility returns how far ServiceEntries of a namespace with some labels are seen: as the first policy says all of whose rules match, or
// else as the default says. Only the owner of the store may call it.
func (t *Settings) ServiceEntryVisibility(labels mesh.Labels) Visibility {
	v, _ := t.rows.Peek(serviceEntryVisibility)
	m, _ := v.Message.(*meshconfig.ServiceEntryVisibility)
	for _, p := range m.GetPolicies() {
		if !slices.ContainsFunc(p.GetMatchingRules(), func(r *meshconfig.ServiceEntryVisibility_MatchRule) bool {
			return !selects(r.GetNamespaceSelector(), labels)
		}) {
			return visibility(p.GetVisibility())
		}
	}
	return visibility(m.GetDefaultVisibility())
}

func visibility(v meshconfig.ServiceEntryVisibility_Visibility) Visibility {
	switch v {
	case meshconfig.ServiceEntryVisibility_NONE:
		return Nowhere
	case meshconfig.ServiceEntryVisibility_NAMESPACE:
		return OwnNamespace
	}
	return Anywhere
}

// selects reports whether a selector of the form that Kubernetes has selects labels. An operator that is not known selects nothing.
func selects(s *meshconfig.LabelSelector, labels mesh.Labels) bool {
	for name, value := range s.GetMatchLabels() {
		if is, ok := mesh.LabelValue(labels, name); !ok || is != value {
			return false
		}
	}
	for _, e := range s.GetMatchExpressions() {
		is, ok := mesh.LabelValue(labels, e.GetKey())
		listed := ok && slices.Contains(e.GetValues(), is)
		switch e.GetOperator() {
		case "In":
			ok = listed
		case "NotIn":
			ok = !listed
		case "Exists":
		case "DoesNotExist":
			ok = !ok
		default:
			ok = false
		}
		if !ok {
			return false
		}
	}
	return true
}
