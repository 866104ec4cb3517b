// Package service merges the declarations of a host into a service. It answers which object declares a host for a client,
// where the endpoints of a service are, which ports and addresses a host takes up on the client's side, and what a
// workload serves.
//
// Everything is keyed by a HostView: a host as the clients of a namespace see it. Which hosts a proxy sees at all is
// decided by package scope, and which rules apply to a host by package traffic.
//
// Everything here is a query or a pure function of rows. Results are immutable. The package starts no goroutines.
package service

import (
	"iter"
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/claim"
	"github.com/pilotmesh/pilot/internal/view/peer"
	"github.com/pilotmesh/pilot/internal/view/service/exposure"
)

// maxDeclarations bounds how many objects are merged into one service. Further declarations are ignored.
const maxDeclarations = 50

// HostView names a host as some clients see it. It is the key of everything that is computed about a host. Keys are
// normalised by scope.Queries.View, so that all clients for whom a host looks the same share the cells.
type HostView struct {
	// Host is the host as clients call it.
	Host string
	// Viewer is the namespace of the clients if some object makes the host look different there. It is empty for the base
	// view, which all other namespaces share.
	Viewer string
	// Declarer is the namespace whose declaration of the host is used, if a Sidecar makes that another one than
	// DeclaringNamespace chooses. NoDeclarer means that no declaration is used.
	Declarer string
	// ExcludedRoutes lists the VirtualServices for the host that the egress hosts of a Sidecar do not import, sorted by
	// key.
	ExcludedRoutes intern.List[api.Key]
}

// NoDeclarer is the value of HostView.Declarer that selects no declaration. No namespace can have this name.
const NoDeclarer = "~"

// DeclaringNamespace is the namespace whose declaration of the host the view uses. claims are all claims on the host. It
// is empty if no declaration is visible.
func (v HostView) DeclaringNamespace(claims omap.Map[claim.Claim, omap.Unit]) string {
	if v.Declarer != "" {
		return v.Declarer
	}
	return DeclaringNamespace(claims, v.Viewer)
}

// Service is a service as a view sees it: the merge of all declarations that the view uses.
type Service struct {
	// Host is the host as clients call it.
	Host string
	// Service is the sum of the declarations. The first declaration gives its name and namespace.
	*mesh.Service
	// Created is the creation time of the first declaration in Unix microseconds. It decides conflicts between hosts,
	// so for a Service of a Kubernetes cluster it is earlier by exposure.BeforeEntries.
	Created int64
	// Declarations are the objects that declare the service: Services of Kubernetes clusters, then ServiceEntries, each oldest first, then
	// services of registries. All but the latter are in one namespace. There is at least one. Each Service is followed by its members: the
	// Services of its name in other clusters.
	Declarations []Declaration
	// OverruledNamespaces are the namespaces whose declaration of the host is visible but lost the conflict, in the order
	// of their claims.
	OverruledNamespaces []string
}

// Declaration is one object's declaration of a service.
type Declaration struct {
	Object api.Key
	Spec   *mesh.Service
	// Member is true for a Service beside one of another cluster that defines the service. It adds endpoints,
	// identities and, for clients in its cluster, addresses.
	Member bool
	// Joined is true for a service of a registry whose host something else defines. It adds endpoints.
	Joined bool
}

// isService reports whether the object is a Service of a Kubernetes cluster, and not a ServiceEntry.
func (p Declaration) isService() bool { return p.Object.Kind == kube.KindService }

func (s *Service) equal(o *Service) bool {
	return s.Host == o.Host && s.Created == o.Created && s.Service.Equal(o.Service) && slices.Equal(s.OverruledNamespaces, o.OverruledNamespaces) &&
		slices.EqualFunc(s.Declarations, o.Declarations, func(a, b Declaration) bool {
			return a.Object == b.Object && a.Member == b.Member && a.Joined == b.Joined && a.Spec.Equal(b.Spec)
		})
}

// DiffersForGateways reports whether gateways reach the service in another way than sidecars do. No connection is redirected to a
// gateway, so it knows no original destination and uses the endpoints of the service instead; and it does not detect protocols.
func (s *Service) DiffersForGateways() bool {
	return s.Resolution == mesh.Passthrough || slices.ContainsFunc(s.Ports, func(p mesh.Port) bool { return p.Protocol.Sniffed() })
}

// ResolvesNames reports whether Envoy resolves names to reach the service. A proxy with only IPv6 addresses
// resolves names to IPv6 addresses, any other proxy to IPv4 addresses, or in a dual-stack mesh to addresses of its versions.
func (s *Service) ResolvesNames() bool {
	return s.Resolution == mesh.DNS || s.Resolution == mesh.DNSRoundRobin || s.Resolution == mesh.DynamicDNS
}

// AddressesIn are the addresses of the service for clients in a cluster: the addresses of the Service in that cluster,
// or else of the Service that decides. foreign is true in the second case.
func (s *Service) AddressesIn(cluster string) (list []string, foreign bool) {
	if !s.ByFamily || cluster == "" || !s.OfCluster() {
		return s.Addresses, false
	}
	for _, p := range s.Declarations {
		if p.isService() && p.Object.Cluster == cluster && p.Spec.Headless == s.Headless {
			return p.Spec.Addresses, false
		}
	}
	return s.Addresses, true
}

// Foreign reports whether the addresses of the service are from another cluster. A service of the cluster itself may have the same addresses.
func (s *Service) Foreign(cluster string) bool {
	_, foreign := s.AddressesIn(cluster)
	return foreign
}

// AddressesFor are the addresses of the service that clients of some families in a cluster call. Clients of both families call the
// first one, and all in a dual-stack mesh.
func (s *Service) AddressesFor(f mesh.Families, cluster string) []string {
	addresses, _ := s.AddressesIn(cluster)
	all, _ := exposure.SplitAddresses(s.Host, addresses)
	switch {
	case !s.ByFamily:
		return all
	case f == mesh.BothFamilies:
		return all[:min(len(all), 1)]
	}
	return slices.DeleteFunc(all, func(ip string) bool { return !f.Has(ip) })
}

// ListensAt reports whether proxies of some families in a cluster listen at an address of the service: one that their clients call, or
// the first one if these can call none.
func (s *Service) ListensAt(ip string, f mesh.Families, cluster string) bool {
	if !s.ByFamily {
		return true
	}
	if of := s.AddressesFor(f, cluster); len(of) > 0 {
		return slices.Contains(of, ip)
	}
	addresses, _ := s.AddressesIn(cluster)
	all, _ := exposure.SplitAddresses(s.Host, addresses)
	return len(all) == 0 || all[0] == ip
}

// Queries answer questions about services.
type Queries struct {
	tables *state.Tables
	// Peers answers which connections workloads take.
	Peers *peer.Queries
	// Service is the service of a view. It is absent if the view has no declaration of the host.
	Service query.Query[HostView, *Service]
	// SelectedEndpoints are the workloads that a selector picks, as endpoints. There is one cell per workload.
	SelectedEndpoints query.Collection[Selection, SelectedEndpoint]
	// sliceEndpoints are the endpoints in the slices of a Service. There is one cell per slice. selectedPods are the pods that a
	// selector of a ServiceEntry picks, as endpoints.
	sliceEndpoints query.Collection[api.Key, SelectedEndpoint]
	selectedPods   query.Collection[Selection, SelectedEndpoint]
	// identities groups the selected endpoints by service account, and under meshTLSAccount the endpoints that accept
	// mesh TLS.
	identities, podIdentities query.Groups[Selection, omap.Name, omap.Name]
	sliceIdentities           query.Groups[api.Key, omap.Name, omap.Name]
	// Accounts are the service accounts of the endpoints of each Service of type ClusterIP. The owner of the store passes changes to
	// RememberAccounts of the tables.
	Accounts query.Collection[struct{}, state.Accounts]
	// slicesWith maps an address, or the name of a pod, to the slices of a Service with such an endpoint.
	slicesWith query.Groups[api.Key, omap.Name, omap.Name]
	// selectedLabels groups the selected endpoints by label.
	selectedLabels, podLabels query.Groups[Selection, mesh.Label, omap.Name]
	sliceLabels               query.Groups[api.Key, mesh.Label, omap.Name]
	// inlineLabels are the sets of labels of the endpoints that an object lists itself, one per distinct set, each sorted.
	inlineLabels query.Query[api.Key, [][]mesh.Label]
	// gateways are the gateways into a network; hasGateways reports whether there are any.
	gateways    query.Query[string, []Gateway]
	hasGateways query.Query[string, bool]
	// mixedGateways reports whether gateways have addresses of both versions of IP.
	mixedGateways query.Query[All, bool]
	// gatewayNames are the host names of all gateways into networks.
	gatewayNames query.Query[All, []GatewayName]
	// Workload describes a workload by the services that have an endpoint at its addresses.
	Workload query.Query[Workload, WorkloadDescription]
	// Footprints has the footprint of every host of the base view.
	Footprints query.Collection[All, exposure.Footprint]
	// Index groups these footprints by port, address and domain.
	Index *exposure.Index[All]
}

// All is the key of collections that exist once, such as the collections of the base view.
type All struct{}

// Define adds the queries to a graph.
func Define(g *query.Graph, t *state.Tables) *Queries {
	q := &Queries{tables: t, Peers: peer.Define(g, t)}
	q.Service = query.Define(g, "service", (*Service).equal, q.service)
	q.defineNetworks(g)
	q.defineSelected(g)
	q.definePods(g)
	q.defineIdentities(g)
	q.defineAccounts(g)
	q.defineLabels(g)
	q.Workload = query.Define(g, "serves", WorkloadDescription.Equal, q.describeWorkload)
	elem := query.Define(g, "footprint", exposure.Equal, func(r *query.Reader, host string) ([]exposure.Footprint, bool) {
		return optional(q.Footprint(r, HostView{Host: host}))
	})
	public := func(r *query.Reader, _ All) omap.Map[omap.Name, omap.Unit] { return q.PublicHosts(r) }
	q.Footprints = query.Each(g, "footprints", public, elem, func(_ All, host omap.Name) string { return string(host) })
	q.Index = exposure.DefineIndex(g, "", t.Domain(), q.Footprints)
	return q
}

// PublicHosts are the hosts that objects export to all namespaces: the hosts of the base view.
func (q *Queries) PublicHosts(r *query.Reader) omap.Map[omap.Name, omap.Unit] {
	return q.tables.Hosts.SeenBy.Group(r, "")
}

// rank is the creation time by which the host of a claim competes with other hosts.
func rank(c claim.Claim) int64 {
	if c.IsService() {
		return c.Created - exposure.BeforeEntries
	}
	return c.Created
}

// service merges the declarations of a host. The claims are sorted and say who declares it, so only the rows of
// the declarations that are used are read.
func (q *Queries) service(r *query.Reader, v HostView) (*Service, bool) {
	var claims []claim.Claim
	var others []string
	named, hasOwner := q.NameOwner(r, v.Host, v.Viewer)
	for c, status := range Declarations(q.tables.ByHost.Group(r, v.Host), v) {
		if hasOwner && c.Namespace != named.Namespace && !c.Registry {
			continue
		}
		switch {
		case status == DeclarationOverruled && !slices.Contains(others, c.Namespace):
			others = append(others, c.Namespace)
		case status == DeclarationUsed && len(claims) < maxDeclarations && !slices.ContainsFunc(claims, func(p claim.Claim) bool { return p.Object() == c.Object() }):
			claims = append(claims, c)
		}
	}
	if len(claims) == 0 {
		return nil, false
	}
	s := &Service{Host: v.Host, Created: rank(claims[0]), OverruledNamespaces: others}
	for _, c := range claims {
		spec, ok := q.tables.Services.Get(r, c.Object())
		if !ok {
			continue
		}
		p := Declaration{Object: c.Object(), Spec: spec.For(v.Host), Joined: c.Registry && len(s.Declarations) > 0}
		s.Declarations = append(s.Declarations, p)
		if p.isService() {
			s.Declarations = append(s.Declarations, q.members(r, p.Object, v.Host)...)
		}
	}
	if len(s.Declarations) == 0 {
		return nil, false
	}
	s.Service = merge(s.Declarations)
	return s, true
}

// members are the Services of the name of a Service in other clusters, in the order of the IDs of their clusters.
func (q *Queries) members(r *query.Reader, leader api.Key, host string) (list []Declaration) {
	for c := range q.tables.ByHost.Group(r, host).All() {
		k := c.Object()
		if c.Kind != claim.Member || k.Namespace != leader.Namespace || k.Name != leader.Name || len(list) == maxDeclarations {
			continue
		}
		if slices.ContainsFunc(list, func(p Declaration) bool { return p.Object == k }) {
			continue // it has a claim for each layer
		}
		if spec, ok := q.tables.Services.Get(r, k); ok {
			list = append(list, Declaration{Object: k, Spec: spec, Member: true})
		}
	}
	slices.SortFunc(list, func(a, b Declaration) int { return a.Object.Compare(b.Object) })
	return list
}

// PortOf returns the port of a declaration that belongs to a port of the service. A member is asked for the port of the same name, which
// may have another number in its cluster. A joined declaration has no such port: PortsOf has its ports.
func (s *Service) PortOf(declaration Declaration, number uint32) (mesh.Port, bool) {
	if !declaration.Member {
		return declaration.Spec.Port(number)
	}
	p, ok := s.Port(number)
	if !ok {
		return mesh.Port{}, false
	}
	i := slices.IndexFunc(declaration.Spec.Ports, func(o mesh.Port) bool {
		return o.Name == p.Name && (o.Protocol == mesh.UDP) == (p.Protocol == mesh.UDP)
	})
	if i < 0 {
		return mesh.Port{}, false
	}
	return declaration.Spec.Ports[i], true
}

// DeclarationStatus is the outcome of one declaration of a host in a view.
type DeclarationStatus uint8

// The statuses.
const (
	// DeclarationUsed means that the declaration is the service, or is merged into it.
	DeclarationUsed DeclarationStatus = iota
	// DeclarationOverruled means that the declaration of another namespace is used.
	DeclarationOverruled
	// DeclarationNotExported means that the object is not exported to the viewing namespace.
	DeclarationNotExported
)

// Declarations yields the declarations of a view's host with their status, in the order of claims. claims are all claims on the
// host.
func Declarations(claims omap.Map[claim.Claim, omap.Unit], v HostView) iter.Seq2[claim.Claim, DeclarationStatus] {
	winner := v.DeclaringNamespace(claims)
	return func(yield func(claim.Claim, DeclarationStatus) bool) {
		for c := range claims.All() {
			if c.Kind != claim.Service {
				return // claims are sorted by kind
			}
			status := DeclarationUsed
			switch {
			case c.Registry && winner != "" && winner != NoDeclarer: // it joins whatever defines the host
			case c.Registry:
				status = DeclarationNotExported
			case !c.VisibleTo(v.Viewer):
				status = DeclarationNotExported
			case c.Namespace != winner:
				status = DeclarationOverruled
			}
			if !yield(c, status) {
				return
			}
		}
	}
}

// DeclaringNamespace is the namespace whose declaration of a host is used for clients of the viewing namespace: that
// namespace itself if it declares the host, else the namespace of the first visible declaration: the oldest Service of a
// Kubernetes cluster, else the oldest ServiceEntry. It is empty if none is visible. Where a Service or ServiceEntry declares the host, no
// registry does: the objects decide about the visibility of the host. Else the first registry declares it. claims are all claims on the host.
func DeclaringNamespace(claims omap.Map[claim.Claim, omap.Unit], layer string) string {
	first, declared := "", api.Key{}
	for c := range claims.All() {
		if c.Kind != claim.Service || c.Registry && declared != (api.Key{}) && declared != c.Object() {
			break // claims are sorted by kind, and claims of registries are last
		}
		declared = c.Object()
		if !c.VisibleTo(layer) {
			continue
		}
		if layer != "" && c.Namespace == layer {
			return layer
		}
		if first == "" {
			first = c.Namespace
		}
	}
	return first
}

// merge adds up declarations of one namespace. The first decides; the others add ports, addresses and subject
// alternative names that it does not have. Services of registries that join another definition add nothing here. Beside a Service, ServiceEntries add endpoints only, and Services of other clusters add
// subject alternative names.
func merge(declarations []Declaration) *mesh.Service {
	if of := slices.DeleteFunc(slices.Clone(declarations), func(p Declaration) bool { return !p.isService() }); len(of) > 0 {
		return mergeServices(of)
	}
	declarations = slices.DeleteFunc(slices.Clone(declarations), func(p Declaration) bool { return p.Joined })
	if len(declarations) == 1 {
		return declarations[0].Spec
	}
	m := *declarations[0].Spec
	m.Ports, m.Addresses, m.SubjectAltNames = slices.Clone(m.Ports), slices.Clone(m.Addresses), slices.Clone(m.SubjectAltNames)
	for _, p := range declarations[1:] {
		for _, port := range p.Spec.Ports {
			if _, taken := m.Port(port.Number); !taken {
				m.Ports = append(m.Ports, port)
			}
		}
		m.Addresses = union(m.Addresses, p.Spec.Addresses)
		m.SubjectAltNames = union(m.SubjectAltNames, p.Spec.SubjectAltNames)
	}
	return &m
}

// mergeServices returns the Service that decides, with the subject alternative names of its members.
func mergeServices(declarations []Declaration) *mesh.Service {
	m := *declarations[0].Spec
	names := slices.Clone(m.SubjectAltNames)
	for _, p := range declarations[1:] {
		names = union(names, p.Spec.SubjectAltNames)
	}
	if len(names) == len(m.SubjectAltNames) {
		return declarations[0].Spec
	}
	m.SubjectAltNames = names
	return &m
}

func union[V comparable](a, b []V) []V {
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}

// HasService reports whether a view has a service.
func (q *Queries) HasService(r *query.Reader, v HostView) bool {
	_, ok := q.Service.Get(r, v)
	return ok
}

func optional[V any](v V, ok bool) ([]V, bool) {
	if !ok {
		return nil, false
	}
	return []V{v}, true
}
