package mesh

import (
	"cmp"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/engine/intern"
)

// Label is one label of a workload, as a key of indexes.
type Label struct{ Name, Value string }

// Compare orders labels by name, then value.
func (l Label) Compare(o Label) int {
	return cmp.Or(strings.Compare(l.Name, o.Name), strings.Compare(l.Value, o.Value))
}

// AppendTo appends an unambiguous form: neither part of a label contains a zero byte.
func (l Label) AppendTo(b []byte) []byte {
	return append(append(append(append(b, l.Name...), 0), l.Value...), 0)
}

// String returns "name=value".
func (l Label) String() string { return l.Name + "=" + l.Value }

// Labels is a sorted set of labels, as a part of keys.
type Labels = intern.List[Label]

// SortedLabels returns the labels of a workload or of a selector, in order.
func SortedLabels(labels map[string]string) []Label {
	list := make([]Label, 0, len(labels))
	for name, value := range labels {
		list = append(list, Label{name, value})
	}
	slices.SortFunc(list, Label.Compare)
	return list
}

// FormatLabels returns labels as text: "a=1, b=2".
func FormatLabels(labels map[string]string) string {
	var b strings.Builder
	for i, l := range SortedLabels(labels) {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(l.String())
	}
	return b.String()
}

// LabelsOf returns the labels of a workload or of a selector as a set.
func LabelsOf(labels map[string]string) Labels { return intern.Of(SortedLabels(labels)...) }

// LabelMap returns a set of labels as a map.
func LabelMap(set Labels) map[string]string {
	if set.Empty() {
		return nil
	}
	m := map[string]string{}
	for l := range set.All() {
		m[l.Name] = l.Value
	}
	return m
}

// LabelValue returns the value of a label of a set; false if the set has no label of this name.
func LabelValue(set Labels, name string) (value string, ok bool) {
	for l := range set.All() {
		if l.Name == name {
			return l.Value, true
		}
	}
	return "", false
}

// CompareLabels orders sets of labels.
func CompareLabels(a, b Labels) int {
	if a == b {
		return 0
	}
	return slices.CompareFunc(a.Items(), b.Items(), Label.Compare)
}

// Contains reports whether a set contains every label of another one.
func Contains(set, want Labels) bool {
	for l := range want.All() {
		if !set.Has(l) {
			return false
		}
	}
	return true
}

// HasAll reports whether a set contains every label of want, such as a selector.
func HasAll(set Labels, want map[string]string) bool {
	for name, value := range want {
		if !set.Has(Label{name, value}) {
			return false
		}
	}
	return true
}
