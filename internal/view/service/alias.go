package service

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
)

// maxAliases bounds how many names a host gets by Services of type ExternalName.
const maxAliases = 50

// Alias is another name for a host, declared by a Service of type ExternalName.
type Alias struct {
	Host string
	// Namespace is the namespace of the Service. Clients in this namespace can use the first label of the name alone.
	Namespace string
}

// Aliases are the other names for a view's host, oldest first: the names of the Services whose external name is the
// host, and of the Services whose external name is such a name. A name does not count if an object of the same
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
