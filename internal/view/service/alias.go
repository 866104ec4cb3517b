package service

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
)

// maxAliases bounds how many names a host gets by Services of type ExternalName.
const maxAliases = 50

// Alias is another name for a host: that of a Service of type ExternalName.
type Alias struct {
	Host string
	// Namespace is that of the Service. Its clients can use the first label of the name alone.
	Namespace string
}

// Aliases are the other names for a view's host, in the order of their age: those of the Services that name it as their external
// name, and of those that name one of these. A name does not count if an object of the same
// namespace declares it as a host, or if any object has routes for it.
func (q *Queries) Aliases(r *query.Reader, v HostView) []Alias {
	var all []Alias
	hosts := []string{v.Host}
	for i := 0; i < len(hosts); i++ {
		for c := range q.tables.ByHost.Group(r, hosts[i]).All() {
			if c.Kind != state.AliasClaim || !c.VisibleTo(v.Viewer) || len(all) == maxAliases {
				continue
			}
			host := mesh.FullHost(c.Name, c.Namespace, q.tables.Domain())
			if slices.Contains(hosts, host) || !q.Unclaimed(r, host, c.Namespace) {
				continue
			}
			hosts = append(hosts, host)
			all = append(all, Alias{host, c.Namespace})
		}
	}
	return all
}
