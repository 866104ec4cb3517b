// Package state defines all tables and indexes of the mesh, and writes the objects of sources into them.
//
// It splits each object into several rows by their readers: its hosts (claims), the description of a service,
// its endpoints, its rules. A query that reads one of these rows does not run when another one changes. Apply writes a batch of
// a source inside the transaction of the caller.
//
// Invariants: rows are immutable. Their comparison is exact and cheap. A batch that changes no row writes nothing. If several
// sources have the same object, the object of the source with the highest precedence is in force.
//
// The package starts no goroutines. Only the owner of the store may call functions that write. It exports more than 60 names, because
// each table has a type of rows, which queries of many packages read.
package state

import (
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/destination"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/security/compliance"
	"github.com/pilotmesh/pilot/internal/state/claim"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/state/gatewayrows"
	"github.com/pilotmesh/pilot/internal/state/policies"
	"github.com/pilotmesh/pilot/internal/state/selected"
	"github.com/pilotmesh/pilot/internal/state/settings"
)

// Options are the settings of the tables. They do not change.
type Options struct {
	// Domain is the suffix of cluster host names; default "cluster.local".
	Domain string
	// ClusterID is the cluster of proxies that do not report theirs.
	ClusterID string
	// Sources are the names of sources, the one with the highest precedence first. All other sources follow, by name.
	Sources []string
	// Ranges are the ranges from which addresses are allocated; default DefaultRanges.
	Ranges mesh.Ranges
	// ControlNamespace is the namespace of the control plane in the cluster whose configuration it reads; empty if it reads none.
	ControlNamespace string
	// RegisterUnverified is true if unauthenticated proxies may ask to be registered.
	RegisterUnverified bool
	// Compliance restricts the TLS of proxies.
	Compliance compliance.Policy
	// ScopeGateways is true if Gateways are for gateways of their own namespace only.
	ScopeGateways bool
	// QUIC is true if gateways take HTTP/3 where their Service has a UDP port.
	QUIC bool
	// StripHostPort is true if gateways remove the port from the Host of requests.
	StripHostPort bool
	// FilterGatewayClusters is true if gateways have the clusters of the services only to which they route.
	FilterGatewayClusters bool
	// Sessions is true if requests of services with sessions reach the endpoint of their session.
	Sessions bool
	// DualStack is true if proxies with addresses of both IP versions use both.
	DualStack bool
	// Unready says whether clients know endpoints that take no requests at the moment.
	Unready mesh.UnreadyEndpoints
	// SidecarRemoteAddress is true if sidecars add the address of the application to x-forwarded-for of its requests.
	SidecarRemoteAddress bool
	// ServicesBesideIngress is true if the ports of services count at a workload whose Sidecar has ingress listeners for other ports.
	ServicesBesideIngress bool
	// HTTP10 is true if all proxies accept HTTP/1.0, whatever their metadata say.
	HTTP10 bool
	// TraceSampling is the percentage of new requests that are traced if nothing else sets one; nil for 1.
	TraceSampling *float64
	// Variable returns a variable of the control plane's environment, for headers of extension providers with an envName; nil if there are none.
	Variable func(name string) (value string, ok bool)
	// KeyFetcher fetches the keys of tokens that have an address (jwksUri).
	KeyFetcher mesh.KeyFetcher
}

// Tables are all tables of the mesh.
type Tables struct {
	DB *store.DB

	settings.Settings

	// MeshConfig is the whole mesh configuration in force, for debug pages. No query reads it.
	MeshConfig store.Table[struct{}, *meshconfig.MeshConfig]

	// Objects are the objects in force, without positions, for checks that need a whole object.
	Objects store.Table[api.Key, *api.Object]
	// Kinds lists the keys of the objects by kind.
	Kinds store.Index[string, api.Key]
	// Positions are where the objects in force were read, and which versions of them. No query that proxies depend on reads them.
	Positions store.Table[api.Key, api.Position]
	// Duplicates has, for each object that several sources have, the names of the sources. The first one is in force.
	Duplicates store.Table[api.Key, []string]
	// SourceProblems are the problems that sources report, by source.
	SourceProblems store.Table[string, Problems]
	// SourceNames lists the sources that have problems, under the empty key.
	SourceNames store.Index[struct{}, omap.Name]
	// Sources are the states of the sources themselves.
	Sources store.Table[string, Source]

	// Index has the claims of objects on hosts.
	claim.Index

	// Services are the services that ServiceEntries declare, without their endpoints.
	Services store.Table[api.Key, *mesh.Service]
	// InSession lists, under the empty key, the services whose labels ask for sessions.
	InSession store.Index[struct{}, api.Key]
	// Endpoints are the endpoints that ServiceEntries declare or select.
	Endpoints store.Table[api.Key, *Endpoints]
	// Identities are the identities of the endpoints of ServiceEntries.
	Identities store.Table[api.Key, *Identities]
	// Workloads are the WorkloadEntries.
	Workloads store.Table[api.Key, mesh.Endpoint]
	// WorkloadsByLabel lists workloads by a label they have.
	WorkloadsByLabel store.Index[selected.LabelIn, api.Key]
	// SelectorsByLabel lists ServiceEntries that select workloads, by the first label of their selector.
	SelectorsByLabel store.Index[selected.LabelIn, api.Key]
	// ServicesAt and WorkloadsAt list ServiceEntries and WorkloadEntries with an endpoint at an address.
	ServicesAt  store.Index[AddressIn, api.Key]
	WorkloadsAt store.Index[AddressIn, api.Key]

	// AddressHolders lists the ServiceEntries that use an address, by age. TakenIn lists by section of the ranges the addresses that have a
	// holder. NamedBlocks lists, under the empty key, the blocks of addresses that ServiceEntries name. Named addresses are listed if they
	// may be allocated.
	AddressHolders store.Index[netip.Addr, Holder]
	TakenIn        store.Index[netip.Prefix, mesh.AddressBlock]
	NamedBlocks    store.Index[struct{}, mesh.AddressBlock]

	// InlineByLabel lists the ServiceEntries with an inline endpoint that has a label. It lists crowded ServiceEntries under AnyLabel.
	InlineByLabel store.Index[selected.LabelIn, api.Key]

	// VirtualServices and DestinationRules are the rules. Their hosts are fully qualified names.
	VirtualServices  store.Table[api.Key, *VirtualService]
	DestinationRules store.Table[api.Key, *DestinationRule]
	// SelectingPolicies lists the DestinationRules of a namespace that have a workload selector, oldest first.
	SelectingPolicies store.Index[string, selected.AgeKey]
	// CredentialUsers lists the DestinationRules that name a credential.
	CredentialUsers store.Index[string, api.Key]
	// NamedConfigMaps lists, under the empty key, the credentials by which DestinationRules name ConfigMaps of their namespaces.
	NamedConfigMaps store.Index[struct{}, omap.Name]
	// SiteLabels lists, under the empty key, the labels in the failover priorities of DestinationRules.
	SiteLabels store.Index[struct{}, omap.Name]
	// Sidecars are the Sidecar objects.
	Sidecars store.Table[api.Key, *Sidecar]
	// SidecarsFor lists the Sidecars of a namespace without a selector. SidecarsByLabel lists the others by the first label of their
	// selector. Both list the oldest first.
	SidecarsFor     store.Index[string, selected.AgeKey]
	SidecarsByLabel store.Index[selected.LabelIn, selected.AgeKey]

	// Security are the policies about requests to workloads.
	Security policies.Requests

	// Filters are the EnvoyFilters.
	Filters Filters
	// Telemetry says which logs, traces and metrics proxies make.
	Telemetry Telemetry
	// Extensions are the filters that users add, and the ProxyConfigs.
	Extensions Extensions

	// Peers are the PeerAuthentications.
	Peers policies.Peers

	// Rows are about connected proxies.
	connected.Rows

	// Registrations are about WorkloadEntries that control planes make.
	Registrations Registrations

	// Gateways are the servers and routes of gateways.
	Gateways gatewayrows.Tables

	// Kube are the objects of Kubernetes clusters.
	Kube Kube
	// Registries are the services of registries outside Kubernetes, and migrations between registries.
	Registries Registries
	// Networks are the networks in which endpoints and proxies are.
	Networks Networks

	sourced store.Table[sourcedKey, *api.Object]
	kinds   map[string]kind
	options Options
}

// AddressIn is an address of workloads in a namespace.
type AddressIn struct{ Namespace, Address string }

// New returns empty tables in a store of their own.
func New(o Options) *Tables {
	if o.Domain == "" {
		o.Domain = "cluster.local"
	}
	db := store.New()
	db.KeepJournal(journalRows)
	t := &Tables{DB: db, options: o}
	t.Settings = settings.New(db, o.Domain, o.Compliance)
	t.MeshConfig = store.NewTable[struct{}, *meshconfig.MeshConfig](db, "meshConfig", func(a, b *meshconfig.MeshConfig) bool { return proto.Equal(a, b) })
	t.Objects = store.NewTable[api.Key, *api.Object](db, "objects", func(a, b *api.Object) bool { return a.Hash == b.Hash })
	t.Kinds = store.NewIndex(t.Objects, "kinds", func(k api.Key, _ *api.Object, add func(string, api.Key)) { add(k.Kind, k) })
	t.Positions = store.NewTable[api.Key, api.Position](db, "positions", same[api.Position])
	t.Duplicates = store.NewTable[api.Key, []string](db, "duplicates", slices.Equal[[]string])
	t.SourceProblems = store.NewTable[string, Problems](db, "sourceProblems", Problems.Equal)
	t.SourceNames = store.NewIndex(t.SourceProblems, "sourceNames", func(k string, _ Problems, add func(struct{}, omap.Name)) {
		add(struct{}{}, omap.Name(k))
	})
	t.Sources = store.NewTable[string, Source](db, "sources", same[Source])
	t.sourced = store.NewTable[sourcedKey, *api.Object](db, "sourced", func(a, b *api.Object) bool {
		return a.Hash == b.Hash && a.Position == b.Position
	})
	t.defineAddresses()
	t.Index = claim.Define(db, o.Domain)
	t.defineServices(db)
	t.defineKube(db)
	t.defineRegistries(db)
	t.defineNetworks(db)
	t.defineRules(db)
	t.Security.Define(db, t.options.KeyFetcher)
	t.defineFilters(db)
	t.defineTelemetry(db)
	t.defineExtensions(db)
	t.Peers.Define(db)
	t.Gateways.Define(db, o.Domain)
	t.Rows = connected.New(db)
	t.defineRegistrations(db)
	t.defineKinds()
	return t
}

// ClusterID returns the cluster of proxies that do not report theirs. It does not change.
func (t *Tables) ClusterID() string { return t.options.ClusterID }

// ScopesGateways reports whether Gateways are for gateways of their own namespace only. It does not change.
func (t *Tables) ScopesGateways() bool { return t.options.ScopeGateways }

// FiltersGatewayClusters reports whether gateways have the clusters of the services only to which they route. It does not change.
func (t *Tables) FiltersGatewayClusters() bool { return t.options.FilterGatewayClusters }

// QUIC reports whether gateways take HTTP/3 where their Service has a UDP port. It does not change.
func (t *Tables) QUIC() bool { return t.options.QUIC }

// StripsHostPort reports whether gateways remove the port from the Host of requests. It does not change.
func (t *Tables) StripsHostPort() bool { return t.options.StripHostPort }

// Sessions reports whether requests of services with sessions reach the endpoint of their session. It does not change.
func (t *Tables) Sessions() bool { return t.options.Sessions }

// DualStack reports whether proxies with addresses of both IP versions use both. It does not change.
func (t *Tables) DualStack() bool { return t.options.DualStack }

// FamiliesOf returns the IP versions of the addresses of a workload, and whether its proxy uses both.
func (t *Tables) FamiliesOf(addresses []string) mesh.Families {
	f := mesh.FamiliesOf(addresses)
	if f == mesh.BothFamilies && t.options.DualStack {
		return mesh.DualStack
	}
	return f
}

// Unready says whether clients know endpoints that take no requests at the moment. It does not change.
func (t *Tables) Unready() mesh.UnreadyEndpoints { return t.options.Unready }

// SidecarRemoteAddress reports whether sidecars add the address of the application to x-forwarded-for of its requests. It does not change.
func (t *Tables) SidecarRemoteAddress() bool { return t.options.SidecarRemoteAddress }

// ServicesBesideIngress reports whether the ports of services count at a workload whose Sidecar has ingress listeners for other ports. It does not
// change.
func (t *Tables) ServicesBesideIngress() bool { return t.options.ServicesBesideIngress }

// HTTP10 reports whether all proxies accept HTTP/1.0. It does not change.
func (t *Tables) HTTP10() bool { return t.options.HTTP10 }

// TraceSampling returns the percentage of new requests that are traced if nothing else sets one. It does not change.
func (t *Tables) TraceSampling() float64 {
	if p := t.options.TraceSampling; p != nil {
		return *p
	}
	return 1
}

// Domain returns the suffix of cluster host names. It does not change.
func (t *Tables) Domain() string { return t.options.Domain }

func (t *Tables) defineServices(db *store.DB) {
	t.Services = store.NewTable[api.Key, *mesh.Service](db, "services", (*mesh.Service).Equal)
	t.Services.SetRole("service")
	t.InSession = store.NewIndex(t.Services, "servicesInSession", func(k api.Key, s *mesh.Service, add func(struct{}, api.Key)) {
		if s.Session != (mesh.Session{}) {
			add(struct{}{}, k)
		}
	})
	t.Endpoints = store.NewTable[api.Key, *Endpoints](db, "endpoints", (*Endpoints).equal)
	t.Endpoints.SetRole("endpoints")
	t.Identities = store.NewTable[api.Key, *Identities](db, "identities", (*Identities).equal)
	t.ServicesAt = store.NewIndex(t.Endpoints, "servicesAt", func(k api.Key, e *Endpoints, add func(AddressIn, api.Key)) {
		for _, ep := range e.Inline {
			add(AddressIn{k.Namespace, ep.Address}, k)
		}
	})
	t.InlineByLabel = store.NewIndex(t.Endpoints, "labelled", func(k api.Key, e *Endpoints, add func(selected.LabelIn, api.Key)) {
		for _, label := range e.Labels() {
			add(selected.LabelIn{Namespace: k.Namespace, Label: label}, k)
			add(selected.LabelIn{Namespace: "", Label: label}, k)
		}
	})
	t.SelectorsByLabel = store.NewIndex(t.Endpoints, "selectorsByLabel", func(k api.Key, e *Endpoints, add func(selected.LabelIn, api.Key)) {
		if labels := mesh.SortedLabels(e.Selector); len(labels) > 0 {
			add(selected.LabelIn{Namespace: k.Namespace, Label: labels[0]}, k)
		}
	})
	t.Workloads = store.NewTable[api.Key, mesh.Endpoint](db, "workloads", mesh.Endpoint.Equal)
	t.Workloads.SetRole("endpoint")
	t.WorkloadsAt = store.NewIndex(t.Workloads, "workloadsAt", func(k api.Key, e mesh.Endpoint, add func(AddressIn, api.Key)) {
		add(AddressIn{k.Namespace, e.Address}, k)
	})
	t.WorkloadsByLabel = store.NewIndex(t.Workloads, "workloadsByLabel", func(k api.Key, e mesh.Endpoint, add func(selected.LabelIn, api.Key)) {
		for label := range e.Labels.All() {
			add(selected.LabelIn{Namespace: k.Namespace, Label: label}, k)
			add(selected.LabelIn{Namespace: "", Label: label}, k)
		}
	})
}

func (t *Tables) defineRules(db *store.DB) {
	t.VirtualServices = store.NewTable[api.Key, *VirtualService](db, "virtualServices", func(a, b *VirtualService) bool { return a.Hash == b.Hash })
	t.VirtualServices.SetRole("routes")
	t.DestinationRules = store.NewTable[api.Key, *DestinationRule](db, "destinationRules", (*DestinationRule).equal)
	t.DestinationRules.SetRole("policy")
	t.SelectingPolicies = store.NewIndex(t.DestinationRules, "selectingPolicies", func(k api.Key, d *DestinationRule, add func(string, selected.AgeKey)) {
		if len(d.Selector) > 0 {
			add(k.Namespace, selected.AgeKey{Created: d.Created, Key: k})
		}
	})
	t.CredentialUsers = store.NewIndex(t.DestinationRules, "credentialUsers", func(k api.Key, d *DestinationRule, add func(string, api.Key)) {
		for name := range destination.Credentials(d.Spec) {
			add(name, k)
		}
	})
	t.NamedConfigMaps = store.NewIndex(t.DestinationRules, "namedConfigMaps", func(k api.Key, d *DestinationRule, add func(struct{}, omap.Name)) {
		for name := range destination.ConfigMaps(k.Namespace, d.Spec) {
			add(struct{}{}, omap.Name(name))
		}
	})
	t.SiteLabels = store.NewIndex(t.DestinationRules, "siteLabels", func(_ api.Key, d *DestinationRule, add func(struct{}, omap.Name)) {
		for label := range destination.SiteLabels(d.Spec) {
			add(struct{}{}, omap.Name(label))
		}
	})
	t.Sidecars = store.NewTable[api.Key, *Sidecar](db, "sidecars", func(a, b *Sidecar) bool { return a.Hash == b.Hash && a.Created == b.Created })
	t.Sidecars.SetRole("scope")
	t.SidecarsFor = store.NewIndex(t.Sidecars, "sidecarsFor", func(k api.Key, s *Sidecar, add func(string, selected.AgeKey)) {
		if len(s.Selector) == 0 {
			add(k.Namespace, selected.AgeKey{Created: s.Created, Key: k})
		}
	})
	t.SidecarsByLabel = store.NewIndex(t.Sidecars, "sidecarsByLabel", func(k api.Key, s *Sidecar, add func(selected.LabelIn, selected.AgeKey)) {
		if labels := mesh.SortedLabels(s.Selector); len(labels) > 0 {
			add(selected.LabelIn{Namespace: k.Namespace, Label: labels[0]}, selected.AgeKey{Created: s.Created, Key: k})
		}
	})
}

func same[T comparable](a, b T) bool { return a == b }

// sourceOrder sorts the names of sources by precedence.
func (t *Tables) sourceOrder(names []string) {
	rank := func(name string) int {
		if i := slices.Index(t.options.Sources, name); i >= 0 {
			return i
		}
		return len(t.options.Sources)
	}
	slices.SortFunc(names, func(a, b string) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
}
