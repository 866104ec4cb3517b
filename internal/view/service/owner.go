package service

import (
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state/claim"
)

// NameOwner is the Service of a Kubernetes cluster that has a host as one of its names, for clients in a namespace: the name of a Service
// of type ExternalName, or a short name. Objects of other namespaces cannot declare such a host as a service. ok is false if there is
// none. viewer is empty for clients in any namespace. A Service that declares the host itself is no NameOwner: the order of claims has it
// first.
func (q *Queries) NameOwner(r *query.Reader, host, viewer string) (owner api.Key, ok bool) {
	return q.nameOwner(r, host, viewer, func(c claim.Claim) bool { return c.VisibleTo(viewer) })
}

// AnyNameOwner is a NameOwner of a host for any clients outside of a namespace.
func (q *Queries) AnyNameOwner(r *query.Reader, host, except string) (owner api.Key, ok bool) {
	return q.nameOwner(r, host, "", func(c claim.Claim) bool { return c.Namespace != except && (c.Layer == "" || c.Layer != except) })
}

func (q *Queries) nameOwner(r *query.Reader, host, viewer string, counts func(claim.Claim) bool) (owner api.Key, ok bool) {
	for c := range q.tables.ByHost.Group(r, host).All() {
		if c.Kind == claim.Name && counts(c) {
			return c.Object(), true
		}
	}
	full, short := mesh.LongHost(host, q.tables.Domain())
	if !short && viewer != "" && host != "" && !mesh.IsWildcard(host) && !strings.Contains(host, ".") {
		full, short = mesh.FullHost(host, viewer, q.tables.Domain()), true
	}
	if !short {
		return api.Key{}, false
	}
	for c := range q.tables.ByHost.Group(r, full).All() {
		named := c.Kind == claim.Name || c.Kind == claim.Service && c.IsService()
		if named && counts(c) {
			return c.Object(), true
		}
	}
	return api.Key{}, false
}

// Unclaimed reports whether a name of a Service in a namespace can be used for it: no object has routes for the name, and none of the
// namespace declares it.
func (q *Queries) Unclaimed(r *query.Reader, name, namespace string) bool {
	for c := range q.tables.ByHost.Group(r, name).All() {
		if c.Kind == claim.Route || c.Kind == claim.Service && c.Namespace == namespace {
			return false
		}
	}
	return true
}
