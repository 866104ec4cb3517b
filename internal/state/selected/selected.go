// Package selected says which workloads an object is for, and has the keys of the indexes that find such objects by label or by age. Its values do not
// change once made. The package starts no goroutines.
package selected

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strconv"

	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// Workloads says which workloads a policy selects.
type Workloads struct {
	// Labels are the labels that a workload must have. If there are none, the policy selects all workloads of its namespace, or of the mesh
	// if its namespace is the root namespace.
	Labels mesh.Labels
	// Targeted is true if the policy names targets, so that it selects only the workloads of Gateways: the names of Gateways of the Gateway API, which
	// are in the namespace of the policy.
	Targeted bool
	Gateways intern.List[string]
}

// By returns which workloads an object selects by labels, or by targets.
func By(labels map[string]string, one *typev1beta1.PolicyTargetReference, all []*typev1beta1.PolicyTargetReference) Workloads {
	s := Workloads{Labels: mesh.LabelsOf(labels)}
	if one != nil {
		all = append([]*typev1beta1.PolicyTargetReference{one}, all...)
	}
	var gateways []string
	for _, target := range all {
		s.Targeted = true
		if target.GetKind() == "Gateway" && !slices.Contains(gateways, target.GetName()) {
			gateways = append(gateways, target.GetName())
		}
	}
	s.Gateways = intern.Of(gateways...)
	return s
}

// Selects reports whether an object with this selection, in the namespace from, selects a workload. root is the root namespace.
func (s Workloads) Selects(from, root, namespace string, labels mesh.Labels) bool {
	if !s.Targeted {
		return (from == root || from == namespace) && mesh.Contains(labels, s.Labels)
	}
	name, ok := mesh.LabelValue(labels, mesh.GatewayNameLabel)
	return ok && from == namespace && s.Gateways.Has(name)
}

// Policy is an object that selects workloads by labels. It contains the labels, so that matching them reads no row.
type Policy struct {
	Key    api.Key
	Labels mesh.Labels
	// Targeted is true if the object names a Gateway as target, which has the label GatewayNameLabel. It selects nothing in other namespaces, even
	// from the root namespace.
	Targeted bool
}

// Compare orders by key, then labels, then objects with a selector before ones with targets.
func (p Policy) Compare(o Policy) int {
	switch c := cmp.Or(p.Key.Compare(o.Key), mesh.CompareLabels(p.Labels, o.Labels)); {
	case c != 0 || p.Targeted == o.Targeted:
		return c
	case p.Targeted:
		return 1
	}
	return -1
}

// Selects reports whether the object selects a workload of a namespace.
func (p Policy) Selects(namespace string, labels mesh.Labels) bool {
	return (p.Key.Namespace == namespace || !p.Targeted) && mesh.Contains(labels, p.Labels)
}

// AppendTo appends an unambiguous form.
func (p Policy) AppendTo(b []byte) []byte {
	b = p.Key.AppendTo(b)
	for l := range p.Labels.All() {
		b = l.AppendTo(b)
	}
	return strconv.AppendBool(b, p.Targeted)
}

// ForAll lists the objects of a namespace that select all workloads.
func ForAll(k api.Key, sel Workloads, add func(string, api.Key)) {
	if !sel.Targeted && sel.Labels.Empty() {
		add(k.Namespace, k)
	}
}

// ByFirstLabel lists the objects that select workloads by labels, by the first one. The workloads of a Gateway have a label with its name.
func ByFirstLabel(k api.Key, sel Workloads, add func(LabelIn, Policy)) {
	for name := range sel.Gateways.All() {
		l := mesh.Label{Name: mesh.GatewayNameLabel, Value: name}
		add(LabelIn{k.Namespace, l}, Policy{k, intern.Of(l), true})
	}
	if sel.Targeted {
		return
	}
	for first := range sel.Labels.All() {
		add(LabelIn{k.Namespace, first}, Policy{Key: k, Labels: sel.Labels})
		break
	}
}

// LabelIn is a label of workloads in a namespace, or of the workloads of all namespaces if Namespace is empty.
type LabelIn struct {
	Namespace string
	Label     mesh.Label
}

// AgeKey is the key of an object that sorts by age first.
type AgeKey struct {
	Created int64 // in microseconds since 1970
	Key     api.Key
}

// Compare orders by age, then key.
func (a AgeKey) Compare(o AgeKey) int {
	if a.Created != o.Created {
		if a.Created < o.Created {
			return -1
		}
		return 1
	}
	return a.Key.Compare(o.Key)
}

// AppendTo appends an unambiguous form.
func (a AgeKey) AppendTo(b []byte) []byte {
	return a.Key.AppendTo(binary.BigEndian.AppendUint64(b, uint64(a.Created)))
}
