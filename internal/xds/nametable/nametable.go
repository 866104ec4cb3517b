// Package nametable translates hosts into the names that agents answer when the workload asks by DNS.
//
// It owns which names exist and which addresses each has: a host has the addresses at which proxies listen for it, a headless Service
// its endpoints' addresses, each endpoint with a host name a name of its own, and a Service of type ExternalName the addresses of the
// host that it is another name for. A host without addresses has no name here; the name servers of the network answer queries for
// it, as without a mesh.
//
// There is one resource for each name, so one service more costs one entry. The package starts no goroutines.
package nametable

import (
	"net/netip"
	"slices"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/xds/layer"
	"github.com/pilotmesh/pilot/internal/xds/nds"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// reach selects the addresses that clients can use: addresses of some IP versions, of their cluster, and in their network.
type reach struct {
	families         mesh.Families
	cluster, network string
}

// Key names the names of an audience for clients of a network.
type Key = layer.At[string]

// KeyOf is the key of the proxies of a class.
func KeyOf(c proxy.Class) Key { return Key{Audience: scope.InSet(scope.SetOf(c)), Place: c.Network} }

// BaseKeyOf is the key of all proxies in the cluster and the network of a class. differs reports whether names may have other addresses for them than for most
// clients of their IP versions.
func BaseKeyOf(c proxy.Class) (k Key, differs bool) {
	return Key{Audience: scope.InCluster(c.Families, c.Cluster), Place: c.Network}, c.Cluster != "" || c.Network != ""
}

// wider is the next wider audience: all proxies in the cluster and the network of a set, then everyone.
func wider(k Key) (Key, bool) {
	set := k.Set()
	switch {
	case !set.Overlay() || k.IsEveryone() && k.Place == "":
		return Key{}, false
	case k.OfBaseView():
		return Key{Audience: scope.Everyone(set.Families)}, true
	}
	return Key{Audience: scope.InCluster(set.Families, set.Cluster), Place: k.Place}, true
}

// hostKey names a host as a view sees it, for clients with a reach.
type hostKey struct {
	service.HostView
	reach
}

// Queries are the layers of names.
type Queries struct {
	tables   *state.Tables
	services *service.Queries
	scope    *scope.Queries
	// names are the names of a host.
	names query.Query[hostKey, []*resource.Resource]
	// Base has the names for everyone, and Own the names that differ for a narrower audience.
	Base query.Collection[mesh.Families, *resource.Resource]
	Own  query.Collection[Key, *resource.Resource]
}

// Define adds the queries to a graph.
func Define(g *query.Graph, t *state.Tables, s *service.Queries, sc *scope.Queries) *Queries {
	q := &Queries{tables: t, services: s, scope: sc}
	q.names = query.Define(g, "names", layer.Equal, q.namesOf)
	q.Base = query.Each(g, "names.all", func(r *query.Reader, _ mesh.Families) scope.Hosts { return s.PublicHosts(r) },
		q.names, func(f mesh.Families, host omap.Name) hostKey {
			return hostKey{service.HostView{Host: string(host)}, reach{families: f}}
		})
	q.Own = layer.Keyed[string, hostKey, omap.Name, *resource.Resource]{
		Results: q.names, Elements: q.hosts, Hide: resource.Hide, Wider: wider,
		Keys: func(r *query.Reader, k Key, host omap.Name) []hostKey {
			set := k.Set()
			view := sc.View(r, scope.HostInSet{Host: string(host), Set: set})
			return []hostKey{{view, reach{set.Families, set.Cluster, k.Place}}}
		},
	}.Own(g, "scopedNames")
	return q
}

// hosts are the hosts whose names an audience may see differently than the next wider one.
func (q *Queries) hosts(r *query.Reader, k Key) scope.Hosts {
	switch {
	case !k.OfBaseView():
		return q.scope.Hosts(r, k.Set())
	case k.Place != "": // any endpoint may be in the network
		return q.services.PublicHosts(r)
	}
	return q.tables.Hosts.ByCluster.Group(r, "")
}

// namesOf are the names of a host.
func (q *Queries) namesOf(r *query.Reader, k hostKey) ([]*resource.Resource, bool) {
	var list []*resource.Resource
	for _, e := range q.entries(r, k) {
		list = append(list, resource.Encoded(resource.NameTable, e.Host, e.Append(nil)))
	}
	return list, len(list) > 0
}

// entries are the names of a host with their addresses.
func (q *Queries) entries(r *query.Reader, k hostKey) []nds.Entry {
	s, ok := q.services.Service.Get(r, k.HostView)
	if !ok || !isName(k.Host) {
		return nil
	}
	e := nds.Entry{Host: k.Host, Registry: external, Addresses: addresses(s, k.reach)}
	if s.OfCluster() {
		e.Registry, e.ShortName, e.Namespace = nds.Kubernetes, s.Name, s.Namespace
	}
	var pods []nds.Entry
	if len(e.Addresses) == 0 && (s.Headless || s.Dubbo != nil) { // no other DNS server knows the hosts of interfaces of Dubbo
		e.Addresses, pods = q.endpoints(r, s, k.reach)
	}
	if len(e.Addresses) == 0 {
		return nil
	}
	list := append([]nds.Entry{e}, pods...)
	for _, a := range q.services.Aliases(r, k.HostView) {
		name, namespace, ok := mesh.ClusterHost(a.Host, q.tables.Domain())
		if ok {
			list = append(list, nds.Entry{Host: a.Host, Registry: nds.Kubernetes, ShortName: name, Namespace: namespace, Addresses: e.Addresses})
		}
	}
	return list
}

// external is the registry of names that ServiceEntries declare.
const external = "External"

// isName reports whether a DNS query can ask for a host. The star alone would match every name.
func isName(host string) bool {
	_, err := netip.ParseAddr(host)
	return err != nil && host != "*"
}

// addresses are those at which proxies listen for a service.
func addresses(s *service.Service, k reach) []string {
	list := s.AddressesFor(k.families, k.cluster)
	if !s.ByFamily {
		return usable(list, k.families)
	}
	if len(list) == 0 { // clients of both IP versions get the first address
		list = s.AddressesFor(mesh.BothFamilies, k.cluster)
	}
	return list
}

// usable are the addresses of some IP versions, or all of them if there are none of these: then the name exists, and has no addresses
// of the versions that are asked for.
func usable(list []string, f mesh.Families) []string {
	if of := slices.DeleteFunc(slices.Clone(list), func(ip string) bool { return !f.Has(ip) }); len(of) > 0 {
		return of
	}
	return list
}

// endpoints are the addresses of the endpoints of a headless service, and the names of the endpoints that have one.
func (q *Queries) endpoints(r *query.Reader, s *service.Service, k reach) (list []string, pods []nds.Entry) {
	hostnames := q.services.HostNames(r, s)
	byName, listed := map[string]int{}, map[string]bool{}
	for _, at := range q.reachable(r, s, k) {
		if !listed[at.Address] {
			listed[at.Address], list = true, append(list, at.Address)
		}
		hostname := hostnames[at]
		if hostname == "" {
			continue
		}
		i, known := byName[hostname]
		if !known {
			i = len(pods)
			byName[hostname] = i
			pods = append(pods, nds.Entry{Host: hostname + "." + s.Host, Registry: nds.Kubernetes, ShortName: hostname + "." + s.Name, Namespace: s.Namespace})
		}
		pods[i].Addresses = append(pods[i].Addresses, at.Address)
	}
	for i := range pods {
		pods[i].Addresses = usable(pods[i].Addresses, k.families)
	}
	return usable(list, k.families), pods
}

// reachable are the endpoints of a service that take requests and that clients reach without a gateway, each once. Those in the cluster
// of the clients go before those in others.
func (q *Queries) reachable(r *query.Reader, s *service.Service, k reach) (found []service.EndpointAddress) {
	networkOf := q.services.Networks(r)
	seen := map[service.EndpointAddress]bool{}
	local := false
	for _, p := range s.Ports {
		for _, e := range q.services.Endpoints(r, s, p.Number) {
			at := service.EndpointAddress{Cluster: e.Cluster, Address: e.Address}
			if _, err := netip.ParseAddr(e.Address); err != nil || seen[at] || e.Health != mesh.Healthy {
				continue
			}
			if there := networkOf(e.Endpoint); there != "" && there != k.network && len(q.services.Gateways(r, there, e.Cluster)) > 0 {
				continue
			}
			seen[at] = true
			found = append(found, at)
			if e.Second != "" {
				found = append(found, service.EndpointAddress{Cluster: e.Cluster, Address: e.Second})
			}
			local = local || at.Cluster == k.cluster
		}
	}
	if k.cluster != "" && (local || s.ClusterLocal) {
		found = slices.DeleteFunc(found, func(at service.EndpointAddress) bool { return at.Cluster != k.cluster })
	}
	return found
}
