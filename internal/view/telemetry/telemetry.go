// Package telemetry answers which logs, traces and metrics the proxies of a class make.
//
// Three Telemetries may apply to a workload, and each one goes before the ones named first: the oldest one without a selector in the root
// namespace, the oldest one without a selector in the namespace of the workload, and the oldest one there that selects the workload. The
// first two follow from the namespace, so that a Telemetry for many workloads moves no proxy to another class. The third is a facet of the
// class. A Telemetry with targets selects the proxies of Gateways of the Gateway API, by the label with the name of their Gateway.
//
// The package owns how these are merged, and knows no Envoy. Everything here is a pure function of rows. The package starts no goroutines.
package telemetry

import (
	"slices"

	telemetryapi "istio.io/api/telemetry/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/selected"
)

// Set names the Telemetries that apply to some workloads. The one of the root namespace is always among them.
type Set struct {
	// Namespace is the namespace of the workloads. It is empty if it has no Telemetry for all its workloads.
	Namespace string
	// Selected is the Telemetry that selects the workloads by their labels; zero if none does.
	Selected api.Key
}

// Selecting returns the Telemetry of a workload's namespace that selects it by labels: the oldest one. It is zero if there is none.
func Selecting(t *state.Tables, r *query.Reader, namespace string, labels mesh.Labels) api.Key {
	var oldest selected.AgeKey
	for first := range labels.All() {
		for s := range t.Telemetry.ByLabel.Group(r, selected.LabelIn{Namespace: namespace, Label: first}).All() {
			if !mesh.Contains(labels, s.Labels) {
				continue
			}
			if oldest.Key == (api.Key{}) || s.AgeKey.Compare(oldest) < 0 {
				oldest = s.AgeKey
			}
			break // the group is in order of age
		}
	}
	return oldest.Key
}

// SetOf returns the Telemetries that apply to the workloads of a class. Classes to which the same ones apply have equal sets.
func SetOf(t *state.Tables, r *query.Reader, c proxy.Class) Set {
	s := Set{Selected: c.Telemetry}
	if c.Namespace != t.RootNamespace(r) && t.Telemetry.Wide.Group(r, c.Namespace).Len() > 0 {
		s.Namespace = c.Namespace
	}
	return s
}

// Specs returns the specs of the Telemetries of a set. Later ones go before earlier ones.
func (s Set) Specs(t *state.Tables, r *query.Reader) (list []*telemetryapi.Telemetry) {
	add := func(k api.Key) {
		if row, ok := t.Telemetry.Objects.Get(r, k); ok {
			list = append(list, row.Spec)
		}
	}
	wide := []string{t.RootNamespace(r)}
	if s.Namespace != "" {
		wide = append(wide, s.Namespace)
	}
	for _, namespace := range wide {
		if k, ok := Wide(t, r, namespace); ok {
			add(k)
		}
	}
	if s.Selected != (api.Key{}) {
		add(s.Selected)
	}
	return list
}

// Wide returns the Telemetry for all workloads of a namespace: the oldest one without a selector.
func Wide(t *state.Tables, r *query.Reader, namespace string) (api.Key, bool) {
	for oldest := range t.Telemetry.Wide.Group(r, namespace).All() {
		return oldest.Key, true
	}
	return api.Key{}, false
}

// Side is the side of a connection that a proxy is on.
type Side uint8

// The sides. Gateways are clients.
const (
	Client Side = iota
	Server
)

// in reports whether a mode is about a side.
func (s Side) in(mode telemetryapi.WorkloadMode) bool {
	switch mode {
	case telemetryapi.WorkloadMode_CLIENT:
		return s == Client
	case telemetryapi.WorkloadMode_SERVER:
		return s == Server
	}
	return true
}

// namesOf returns the names in references to providers, each once.
func namesOf(list []*telemetryapi.ProviderRef) (names []string) {
	for _, p := range list {
		if !slices.Contains(names, p.GetName()) {
			names = append(names, p.GetName())
		}
	}
	return names
}
