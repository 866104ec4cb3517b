package why

import (
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Names yields the subjects of possible questions about a proxy: the hosts that it sees, or the names of its resources. It must be called
// by the owner of the graph; the names may be iterated on any goroutine.
func (m Mesh) Names(q Question) iter.Seq[string] {
	if t, ok := resource.ParseKind(q.Kind); ok && q.State != nil {
		return func(yield func(string) bool) {
			for r := range q.State.Layers(t).All() {
				if !yield(r.Name()) {
					return
				}
			}
		}
	}
	i := &inquiry{Mesh: m, Question: q, r: m.Graph.Glance()}
	class, ok := m.Queries.Class.Get(i.r, q.Connection)
	if ok && strings.EqualFold(q.Kind, InboundKind) {
		return func(yield func(string) bool) {
			for p := range class.Inbound.All() {
				if !yield(strconv.FormatUint(uint64(p.Number), 10)) {
					return
				}
			}
		}
	}
	if !ok || !strings.EqualFold(q.Kind, HostKind) {
		return func(func(string) bool) {}
	}
	i.set = scope.SetOf(class)
	return i.hostNames()
}

// SortedNames are the names with a prefix, sorted, each once. It looks at 5,000 names at most.
func SortedNames(names iter.Seq[string], prefix string) []string {
	const enough = 5000
	list := []string{}
	for name := range names {
		if strings.HasPrefix(name, prefix) && len(list) < enough {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Instance is a port that a workload serves for a service.
type Instance struct {
	Host       string `json:"host"`
	Port       uint32 `json:"port"`
	TargetPort uint32 `json:"target_port"`
	Protocol   string `json:"protocol"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
}

// Instances are the ports that the workloads of a class serve.
func Instances(c proxy.Class) []Instance {
	list := []Instance{}
	for p := range c.Inbound.All() {
		list = append(list, Instance{p.Host, p.Port, p.Number, p.Protocol.String(), p.Namespace, p.Name})
	}
	return list
}
