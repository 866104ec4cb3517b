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

// Reach selects the addresses that clients can use: addresses of some IP versions, of their cluster, and in their network.
type Reach struct {
	families         mesh.Families
	cluster, network string
}

// ReachOf is the reach of a class.
func ReachOf(c proxy.Class) Reach { return Reach{c.Families, c.Cluster, c.Network} }

// Differs reports whether names have other addresses for clients with this reach than for most clients of their IP versions.
func (k Reach) Differs() bool { return k.cluster != "" || k.network != "" }

// SetKey names the names of a set for clients of a network.
type SetKey struct {
	set     scope.Set
	network string
}

// SetKeyOf is the key of a class.
func SetKeyOf(c proxy.Class) SetKey { return SetKey{scope.SetOf(c), c.Network} }

func (k SetKey) reach() Reach { return Reach{k.set.Families, k.set.Cluster, k.network} }

// hostKey names a host as a view sees it, for clients with a reach.
type hostKey struct {
	service.HostView
	Reach
}

// Queries are the layers of names.
type Queries struct {
	tables   *state.Tables
	services *service.Queries
	scope    *scope.Queries
	// names are the names of a host.
	names query.Query[hostKey, []*resource.Resource]
	// Base has the names of the base view, ByReach the names with other addresses for clients in some cluster or network, and Scoped
	// the names of a set.
	Base    query.Collection[mesh.Families, *resource.Resource]
	ByReach query.Collection[Reach, *resource.Resource]
	Scoped  query.Collection[SetKey, *resource.Resource]
}

// Define adds the queries to a graph.
func Define(g *query.Graph, t *state.Tables, s *service.Queries, sc *scope.Queries) *Queries {
	q := &Queries{tables: t, services: s, scope: sc}
	q.names = query.Define(g, "names", layer.Equal, q.namesOf)
	q.Base = query.Each(g, "names.all", func(r *query.Reader, _ mesh.Families) scope.Hosts { return s.PublicHosts(r) },
		q.names, func(f mesh.Families, host omap.Name) hostKey {
			return hostKey{service.HostView{Host: string(host)}, Reach{families: f}}
		})
	q.ByReach = query.Each(g, "namesByReach.all", func(r *query.Reader, k Reach) scope.Hosts {
		if k.network != "" { // any endpoint may be there
			return s.PublicHosts(r)
		}
		return t.Hosts.ByCluster.Group(r, "")
	}, query.Define(g, "namesByReach", layer.Equal, q.differing), func(k Reach, host omap.Name) hostKey {
		return hostKey{service.HostView{Host: string(host)}, k}
	})
	type hostInSet struct {
		host string
		SetKey
	}
	scoped := query.Define(g, "scopedNames", layer.Equal, func(r *query.Reader, k hostInSet) ([]*resource.Resource, bool) {
		return q.namesIn(r, k.host, k.SetKey)
	})
	q.Scoped = query.Each(g, "scopedNames.all", func(r *query.Reader, k SetKey) scope.Hosts { return sc.Hosts(r, k.set) },
		scoped, func(k SetKey, host omap.Name) hostInSet { return hostInSet{string(host), k} })
	return q
}

// differing are the names of a host of the base view that are different for clients with a reach.
func (q *Queries) differing(r *query.Reader, k hostKey) ([]*resource.Resource, bool) {
	list, _ := q.names.Get(r, k)
	base, _ := q.names.Get(r, hostKey{k.HostView, Reach{families: k.families}})
	list = layer.Differences(list, base, resource.Hide)
	return list, len(list) > 0
}

// namesIn are the names of a host in the layer of a set.
func (q *Queries) namesIn(r *query.Reader, host string, k SetKey) ([]*resource.Resource, bool) {
	v := q.scope.View(r, scope.HostInSet{Host: host, Set: k.set})
	if k.set.Overlay() && v.Viewer == "" {
		return nil, false // the layers of the base view have the same
	}
	list, _ := q.names.Get(r, hostKey{v, k.reach()})
	if k.set.Overlay() {
		base, _ := q.names.Get(r, hostKey{service.HostView{Host: host}, k.reach()})
		list = layer.HideMissing(list, base, resource.Hide)
	}
	return list, len(list) > 0
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
	e := nds.Entry{Host: k.Host, Registry: external, Addresses: addresses(s, k.Reach)}
	if s.OfCluster() {
		e.Registry, e.ShortName, e.Namespace = nds.Kubernetes, s.Name, s.Namespace
	}
	var pods []nds.Entry
	if len(e.Addresses) == 0 && (s.Headless || s.Dubbo != nil) { // no other DNS server knows the hosts of interfaces of Dubbo
		e.Addresses, pods = q.endpoints(r, s, k.Reach)
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
func addresses(s *service.Service, k Reach) []string {
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
func (q *Queries) endpoints(r *query.Reader, s *service.Service, k Reach) (list []string, pods []nds.Entry) {
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
func (q *Queries) reachable(r *query.Reader, s *service.Service, k Reach) (found []service.EndpointAddress) {
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
