package problem

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	gateways "github.com/pilotmesh/pilot/internal/api/gateway"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/claim"
	"github.com/pilotmesh/pilot/internal/state/gatewayrows"
)

// unserved warns of hosts of a VirtualService that no server of its Gateways has, in one line. A VirtualService that is for sidecars as
// well may have hosts for them alone, so that it only has the problem if no host is served.
func (f *findings) unserved(vs *state.VirtualService) {
	b, ok := f.q.tables.Gateways.Bindings.Get(f.r, f.key)
	if !ok || len(b.Gateways) > maxChecked || len(b.Hosts) > maxChecked {
		return
	}
	for _, g := range b.Gateways {
		if _, exists := f.q.tables.Gateways.Selectors.Get(f.r, g); !exists {
			return // the host may be meant for this one
		}
	}
	served := func(host string) bool {
		return slices.ContainsFunc(b.Gateways, func(g api.Key) bool { return f.q.serves(f.r, g, host, f.key.Namespace) })
	}
	at := slices.IndexFunc(b.Hosts, func(host string) bool { return !served(host) })
	if at < 0 || len(vs.Hosts) > 0 && slices.ContainsFunc(b.Hosts, served) {
		return
	}
	lost := slices.DeleteFunc(slices.Clone(b.Hosts), served)
	var servers []gateways.Host
	for _, g := range b.Gateways {
		for h := range f.q.tables.Gateways.Declared.Hosts.Group(f.r, g).All() {
			servers = append(servers, gateways.Host{Namespace: h.Namespace, Name: h.Name})
		}
	}
	f.warn("route-not-served", fmt.Sprintf("spec.hosts[%d]", at), "no server of %s has the host %s: gateways have no routes for it because of this object%s",
		listed(b.Gateways), quoted(lost), f.serverHint(lost[0], servers))
}

// serves reports whether a server of a Gateway has the routes of an object of a namespace for a host, or for a part of it. A host
// is read alone, so that another one runs no check of the VirtualServices for the others.
func (q *Queries) serves(r *query.Reader, gw api.Key, host, namespace string) bool {
	of := &q.tables.Gateways.Declared
	for name := range mesh.NarrowestFirst(host) {
		if list := of.HostNamespaces.Group(r, gatewayrows.ServerHost{Gateway: gw, Host: name}); list.Has("") || list.Has(omap.Name(namespace)) {
			return true
		}
	}
	if !mesh.IsWildcard(host) {
		return false
	}
	for h := range of.Hosts.Group(r, gw).All() {
		if mesh.Covers(host, h.Name) && (h.Namespace == "" || h.Namespace == namespace) {
			return true
		}
	}
	return false
}

// serverHint says which hosts the servers of Gateways have, and proposes one.
func (f *findings) serverHint(wrong string, hosts []gateways.Host) string {
	var names []string
	for _, h := range hosts {
		if mesh.Covers(h.Name, wrong) {
			return fmt.Sprintf("; the server with the host %q takes routes of namespace %q only", h.Name, h.Namespace)
		}
		names = append(names, h.Name)
	}
	return choice(wrong, names, "the servers have the hosts", "the servers have no hosts")
}

// listed names objects of one kind: Gateway shop/a, shop/b.
func listed(keys []api.Key) string {
	names := make([]string, 0, len(keys))
	for _, k := range keys {
		names = append(names, k.Namespace+"/"+k.Name)
	}
	return keys[0].Kind + " " + strings.Join(names, ", ")
}

// quoted lists hosts in quotes, up to a limit.
func quoted(hosts []string) string {
	var list []string
	for _, h := range hosts {
		list = append(list, fmt.Sprintf("%q", h))
	}
	return enumerate(list)
}

// unbound warns of a Gateway without any routes. Servers that need none do not count: they redirect, or lead to the service that clients ask for.
func (f *findings) unbound() {
	row, ok := f.q.tables.Gateways.Servers.Get(f.r, f.key)
	if !ok || f.q.tables.Gateways.BoundTo.Group(f.r, gatewayrows.Layer{Gateway: f.key, Layer: gatewayrows.AnyLayer}).Len() > 0 {
		return
	}
	needs := func(s gateways.Server) bool { return !s.Redirects() && s.Kind() != gateways.PassesMeshTLS }
	if slices.ContainsFunc(row.Servers, needs) {
		f.note("gateway-no-route", "spec.servers", "no VirtualService names this Gateway: gateways answer its requests with status 404, and close other connections; name it in spec.gateways of a VirtualService")
	}
}

// foreignHost remarks on a VirtualService for a Service of another namespace, whose clients there have to follow its rules.
func (f *findings) foreignHost() {
	if f.key.Namespace == f.q.tables.RootNamespace(f.r) {
		return // it is for the whole mesh
	}
	for at, c := range f.claims("spec.hosts") {
		_, of, ok := mesh.ClusterHost(c.host, f.q.tables.Domain())
		if !ok || of == f.key.Namespace || mesh.IsWildcard(c.host) || !slices.Contains(c.own.Layers, "") && !slices.Contains(c.own.Layers, of) {
			continue
		}
		for o := range c.all.All() {
			if o.Kind > claim.Service {
				break // claims are in order of their kind
			}
			if o.Kind == claim.Service && o.Namespace == of {
				f.note("route-foreign-host", at, "the service %q is of namespace %q, and its clients in all namespaces that see this object follow these rules; name the namespace %q alone in exportTo if only its own clients are meant",
					c.host, of, f.key.Namespace)
				return
			}
		}
	}
}
