// Package patched answers what the patches of one EnvoyFilter do: how many places each matched, why one is left out, and how the resources
// differ with and without the EnvoyFilter.
//
// It asks the same queries as the control plane, for the classes of connected proxies, and for described proxies if none of the connected ones
// is concerned. Goroutines: none.
package patched

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/explain/why"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/xds/class/patching"
)

// Version is the version of the form of answers.
const Version = 1

// Bounds of an answer.
const (
	// maxChanges is how many changed resources are shown, and maxDescribed how many kinds of described proxies are looked at.
	maxChanges   = 20
	maxDescribed = 12
)

// Answer is what the patches of an EnvoyFilter do.
type Answer struct {
	Version  int    `json:"version"`
	Revision uint64 `json:"revision"`
	// Filter is the EnvoyFilter, as NAMESPACE/NAME.
	Filter string `json:"filter"`
	// Kinds is how many kinds of proxies were looked at: proxies of one kind receive the same resources. Described is true if they are
	// described by the configuration, because none of the connected proxies is concerned.
	Kinds     int  `json:"kinds"`
	Described bool `json:"described,omitempty"`
	// Patches are the patches, in their order.
	Patches []Patch `json:"patches"`
	// Changes are the resources that patches change, or that patches were left out of; Omitted is how many others there are.
	Changes []Change `json:"changes,omitempty"`
	Omitted int      `json:"omitted,omitempty"`
}

// Patch is one patch.
type Patch struct {
	Index     int    `json:"index"`
	ApplyTo   string `json:"applyTo"`
	Operation string `json:"operation"`
	Match     string `json:"match"`
	// Flaw says why it is left out everywhere; empty if it is not.
	Flaw string `json:"flaw,omitempty"`
	// Places is how many places it was applied to, in how many Resources. LeftOut is in how many it was left out.
	Places    int `json:"places"`
	Resources int `json:"resources"`
	LeftOut   int `json:"leftOut,omitempty"`
}

// Change is what the patches do to one resource, or to one virtual host of it.
type Change struct {
	Type string `json:"type"`
	Name string `json:"name"`
	Host string `json:"virtualHost,omitempty"`
	// Kinds is how many kinds of proxies have this resource.
	Kinds int `json:"kinds"`
	// Patches are the patches that were applied, and LeftOut why others were not.
	Patches []int     `json:"patches,omitempty"`
	LeftOut []LeftOut `json:"leftOut,omitempty"`
	// Diff has the difference as lines of YAML; empty if there is none.
	Diff string `json:"diff,omitempty"`
}

// LeftOut is a patch that was left out of a resource.
type LeftOut struct {
	Index  int    `json:"index"`
	Reason string `json:"reason"`
	// Denied is true if the resource denies because of that.
	Denied bool `json:"denied,omitempty"`
}

// Mesh is the control plane that is asked.
type Mesh struct{ why.Mesh }

// Ask answers about the EnvoyFilter of a namespace. The error is for users. It must be called by the owner of the graph, between commits.
func (m Mesh) Ask(namespace, name string) (*Answer, error) {
	r := m.Graph.Glance()
	k := api.Key{Kind: api.KindEnvoyFilter, Namespace: namespace, Name: name}
	row, ok := m.Tables.Filters.Rows.Get(r, k)
	if !ok {
		return nil, fmt.Errorf("there is no EnvoyFilter %s/%s that can be used", namespace, name)
	}
	a := &Answer{Version: Version, Revision: uint64(m.Graph.Revision()), Filter: namespace + "/" + name}
	classes := m.Queries.PatchedClasses(r, k)
	if len(classes) == 0 {
		classes, a.Described = m.described(r, k), true
	}
	a.Kinds = len(classes)
	for i, p := range m.Queries.Patches(r, k) {
		if i >= len(row.Spec.GetConfigPatches()) {
			break // they are the last good ones, because decoding has failed
		}
		spec := row.Spec.GetConfigPatches()[i]
		a.Patches = append(a.Patches, Patch{
			Index: i, ApplyTo: p.ApplyTo.String(), Operation: spec.GetPatch().GetOperation().String(), Match: p.Match(), Flaw: p.Flaw,
		})
	}
	var effects []effect
	for _, c := range classes {
		for _, e := range m.Queries.PatchEffects(r, c, k) {
			effects = collect(effects, e)
		}
	}
	for _, e := range effects {
		a.add(e)
	}
	return a, nil
}

// effect is an effect, and how many kinds of proxies have it.
type effect struct {
	patching.Difference
	kinds int
}

// collect adds an effect, unless another kind of proxies has it already.
func collect(list []effect, e patching.Difference) []effect {
	at := slices.IndexFunc(list, func(o effect) bool {
		return o.Type == e.Type && o.Name == e.Name && o.Piece == e.Piece && slices.Equal(o.Outcomes, e.Outcomes) &&
			proto.Equal(o.Before, e.Before) && proto.Equal(o.After, e.After)
	})
	if at >= 0 {
		list[at].kinds++
		return list
	}
	return append(list, effect{e, 1})
}

func (a *Answer) add(e effect) {
	c := Change{Type: e.Type.String(), Name: e.Name, Host: e.Piece, Kinds: e.kinds}
	for _, o := range e.Outcomes {
		i := o.Patch.Index
		if i >= len(a.Patches) {
			continue
		}
		if o.Failure != "" {
			a.Patches[i].LeftOut++
			c.LeftOut = append(c.LeftOut, LeftOut{i, o.Failure, o.Denied})
			continue
		}
		a.Patches[i].Resources++
		a.Patches[i].Places += o.Matched
		c.Patches = append(c.Patches, i)
	}
	if len(a.Changes) == maxChanges {
		a.Omitted++
		return
	}
	c.Diff = diff(e.Before, e.After)
	a.Changes = append(a.Changes, c)
}

// described returns kinds of proxies that an EnvoyFilter would apply to, as the configuration describes them: sidecars of the workloads with its
// labels, and gateways. For an EnvoyFilter with targets these are the gateways of its targets.
func (m Mesh) described(r *query.Reader, k api.Key) (list []proxy.Class) {
	selection, _ := m.Tables.Filters.Selections.Get(r, k)
	root := m.Tables.RootNamespace(r)
	add := func(p *proxy.Proxy) {
		if len(list) == maxDescribed || p.Namespace == "" || !selection.Selects(k.Namespace, root, p.Namespace, p.Labels) {
			return
		}
		p.Domain = p.Namespace + ".svc." + m.Tables.Domain()
		if c := m.Queries.Scope.ClassOf(r, p); !slices.Contains(list, c) {
			list = append(list, c)
		}
	}
	workloads := m.workloads()
	for _, w := range sorted(maps.Keys(workloads)) {
		add(&proxy.Proxy{Role: proxy.Sidecar, Addresses: []string{workloads[w]}, Namespace: w.namespace, Labels: w.labels})
	}
	for _, g := range sorted(maps.Keys(m.gateways())) {
		add(&proxy.Proxy{Role: proxy.Router, Addresses: []string{anyAddress}, Namespace: g.namespace, Labels: g.labels})
	}
	for name := range selection.Gateways.All() {
		own := mesh.LabelsOf(map[string]string{mesh.GatewayNameLabel: name})
		add(&proxy.Proxy{Role: proxy.Router, Addresses: []string{anyAddress}, Namespace: k.Namespace, Labels: own})
	}
	if len(list) == 0 {
		namespace := k.Namespace
		if namespace == root {
			namespace = "default"
		}
		p := &proxy.Proxy{Role: proxy.Sidecar, Addresses: []string{anyAddress}, Namespace: namespace, Labels: selection.Labels}
		if k.Namespace != root || selection.Labels.Empty() {
			add(p)
		}
	}
	return list
}

// anyAddress is the address of a workload that has none in the configuration.
const anyAddress = "192.0.2.1"

// workload is the namespace and the labels of workloads, or of gateways.
type workload struct {
	namespace string
	labels    mesh.Labels
}

// workloads are the different namespaces and labels of the workloads in the configuration, with the lowest address of each. They are far fewer than the
// workloads.
func (m Mesh) workloads() map[workload]string {
	found := map[workload]string{}
	add := func(namespace, address string, labels mesh.Labels) {
		w := workload{namespace, labels}
		if lowest, ok := found[w]; address != "" && (!ok || address < lowest) {
			found[w] = address
		}
	}
	for k, e := range m.Tables.Workloads.All() {
		add(k.Namespace, e.Address, e.Labels)
	}
	for k, all := range m.Tables.Endpoints.All() {
		for _, e := range all.Inline {
			if !e.Labels.Empty() {
				add(k.Namespace, e.Address, e.Labels)
			}
		}
	}
	for k, p := range m.Tables.Kube.Pods.All() {
		add(k.Namespace, p.Address, p.Labels)
	}
	return found
}

// gateways are workloads with the labels that Gateways select.
func (m Mesh) gateways() map[workload]bool {
	found := map[workload]bool{}
	for k, o := range m.Tables.Objects.All() {
		if spec, ok := o.Spec.(interface{ GetSelector() map[string]string }); ok && k.Kind == api.KindGateway {
			found[workload{k.Namespace, mesh.LabelsOf(spec.GetSelector())}] = true
		}
	}
	return found
}

// sorted lists workloads by namespace, then labels.
func sorted(found iter.Seq[workload]) []workload {
	return slices.SortedFunc(found, func(a, b workload) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), mesh.CompareLabels(a.labels, b.labels))
	})
}
