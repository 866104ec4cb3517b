package service

import (
	"slices"

	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state/claim"
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
			if c.Kind != claim.Alias || !c.VisibleTo(v.Viewer) || len(all) == maxAliases {
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

// AliasOf returns the host for which a host is another name for clients in a namespace: a Service of type ExternalName has the name, or a
// chain of them. port is the only port of this Service, or 0. ok is false if there is none.
func (q *Queries) AliasOf(r *query.Reader, host, viewer string) (target string, port uint32, ok bool) {
	for range maxAliases {
		s := q.externalName(r, host, viewer)
		if s == nil {
			break
		}
		if !ok && len(s.Ports) == 1 {
			port = s.Ports[0].Number
		}
		host, ok = s.ExternalName, true
	}
	return host, port, ok
}

// externalName returns the Service of type ExternalName that has a host as its name; nil if there is none.
func (q *Queries) externalName(r *query.Reader, host, viewer string) *kube.Service {
	for c := range q.tables.ByHost.Group(r, host).All() {
		if c.Kind != claim.Name || !c.VisibleTo(viewer) {
			continue
		}
		if s, ok := q.tables.Kube.Services.Get(r, c.Object()); ok && s.ExternalName != "" {
			return s
		}
	}
	return nil
}
