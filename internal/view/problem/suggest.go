package problem

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/spelling"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/claim"
)

const (
	// maxCompared bounds how many hosts of a namespace are compared with one that does not exist, so that the problems of a large
	// namespace stay cheap to find while its services come and go.
	maxCompared = 128
	// maxListed bounds how many values a message lists.
	maxListed = 8
)

// choice ends a message about a value that does not exist: it proposes the one that was probably meant, and lists the
// existing values, after a lead like "its subsets are". none is the text if there are none.
func choice(wrong string, names []string, lead, none string) string {
	if len(names) == 0 {
		return "; " + none
	}
	text := lead + " " + enumerate(names)
	if near := spelling.Meant(wrong, names); near != "" {
		return "; did you mean " + near + "? " + strings.ToUpper(text[:1]) + text[1:]
	}
	return "; " + text
}

// enumerate lists names in order, and says how many more there are.
func enumerate(names []string) string {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if more := len(names) - maxListed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), more)
	}
	return strings.Join(names, ", ")
}

// hostHint proposes a host in the place of one that does not exist: one of the namespace that the host names, or else of the object's
// own, that the object's namespace sees. It reads only the lists of hosts of these namespaces.
func (f *findings) hostHint(wrong string) string {
	name, namespace, isCluster := mesh.ClusterHost(wrong, f.q.tables.Domain())
	if !isCluster {
		name, namespace = wrong, f.key.Namespace
	}
	var hosts []string
	shown := map[string]string{} // by the compared text
	for _, of := range slices.Compact([]string{namespace, f.key.Namespace}) {
		for _, host := range f.hostsOf(of) {
			compared := host
			if short, _, ok := mesh.ClusterHost(host, f.q.tables.Domain()); ok {
				compared = short
			}
			if (isCluster || compared == host) && shown[compared] == "" {
				hosts, shown[compared] = append(hosts, compared), host
			}
		}
	}
	hosts = slices.DeleteFunc(hosts, func(other string) bool { return !alike(name, other) })
	if near := spelling.Meant(name, hosts); near != "" {
		return "; did you mean " + shown[near] + "?"
	}
	if isCluster && namespace == api.DefaultNamespace && f.key.Namespace == api.DefaultNamespace {
		return "; short names of hosts belong to the object's namespace, " + api.DefaultNamespace + ": if that is not meant, write metadata.namespace"
	}
	return ""
}

// alike reports whether one host may be a misspelling of the other: up to two bytes differ, one in short names, and first labels of up to
// two bytes are equal, because a and b are two hosts.
func alike(wrong, other string) bool {
	head, _, _ := strings.Cut(wrong, ".")
	first, _, _ := strings.Cut(other, ".")
	if head != first && (len(head) <= 2 || len(first) <= 2) {
		return false
	}
	most := 1
	if len(head) > 5 {
		most = 2
	}
	return spelling.Distance(strings.ToLower(wrong), strings.ToLower(other), most+1) <= most
}

// hostsOf lists hosts that a namespace declares and that the object's namespace sees.
func (f *findings) hostsOf(namespace string) (hosts []string) {
	for _, layer := range []string{"", f.key.Namespace} {
		group := f.q.tables.Hosts.DeclaredIn.Group(f.r, claim.NamespaceLayer{Namespace: namespace, Layer: layer})
		for host := range group.All() {
			if len(hosts) == maxCompared {
				return hosts
			}
			if f.isService(string(host)) {
				hosts = append(hosts, string(host))
			}
		}
	}
	return hosts
}

// labelHint proposes a label in the place of one that nothing has: another value of the same name, or the same value under a similar
// name; otherwise it lists the values that the name has.
func labelHint(wrong mesh.Label, have []mesh.Label) string {
	var values, names []string
	for _, l := range have {
		if l.Name == wrong.Name {
			values = append(values, l.Value)
		}
		if l.Value == wrong.Value {
			names = append(names, l.Name)
		}
	}
	if near := spelling.Meant(wrong.Value, values); near != "" {
		return "; did you mean " + mesh.Label{Name: wrong.Name, Value: near}.String() + "?"
	}
	if near := spelling.Meant(wrong.Name, names); near != "" {
		return "; did you mean " + mesh.Label{Name: near, Value: wrong.Value}.String() + "?"
	}
	if len(values) > 0 {
		return fmt.Sprintf("; the values of %s are %s", wrong.Name, enumerate(values))
	}
	return ""
}

// selectorHint proposes a label for a selector that selects nothing. It knows the labels of endpoints that the
// namespace declares, and the labels of connected proxies, up to a limit.
func (f *findings) selectorHint(selector map[string]string) string {
	have, _ := f.q.labels.Get(f.r, f.key.Namespace)
	for _, l := range mesh.SortedLabels(selector) {
		if slices.Contains(have, l) {
			continue
		}
		if hint := labelHint(l, have); hint != "" {
			return hint
		}
	}
	return ""
}

// labelsIn returns labels of workloads of a namespace, in order: labels of inline endpoints that it declares, and of
// connected proxies, up to a limit. All selectors of the namespace that select nothing share the cell.
func (q *Queries) labelsIn(r *query.Reader, namespace string) (list []mesh.Label, ok bool) {
	add := func(some ...mesh.Label) {
		for _, l := range some {
			if l != state.AnyLabel() && !slices.Contains(list, l) {
				list = append(list, l)
			}
		}
	}
	f := &findings{q: q, r: r, key: api.Key{Namespace: namespace}}
	checked := 0
	for _, host := range f.hostsOf(namespace) {
		if checked++; checked > maxChecked {
			break
		}
		for c := range q.tables.ByHost.Group(r, host).All() {
			if c.Kind != claim.Service || c.Namespace != namespace {
				continue
			}
			if e, ok := q.tables.Endpoints.Get(r, c.Object()); ok {
				for _, set := range e.LabelSets() {
					add(set...)
				}
			}
		}
	}
	checked = 0
	for id := range q.tables.ProxiesIn.Group(r, namespace).All() {
		if checked++; checked > maxChecked {
			break
		}
		if p, ok := q.tables.Proxies.Get(r, string(id)); ok {
			add(p.Labels.Items()...)
		}
	}
	slices.SortFunc(list, mesh.Label.Compare)
	return list, true
}
