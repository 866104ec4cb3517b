// Package state is every table and index of the mesh, in one readable place, and the one way to write what sources say.
//
// It owns the split of a user's object into rows by who reads them: what an object says about hosts (claims), what
// callers must know of a service, its endpoints, its rules. A query that reads one of them does not run when another
// changes. Apply turns a batch of a source into rows inside the caller's transaction.
//
// Invariants: a row is immutable; equality of rows is exact and cheap; a batch that changes no meaning writes nothing;
// an object that two sources hold is taken from the source that was configured first.
//
// The package starts no goroutines; its writing functions belong to the owner of the store. It must not import query,
// views, xds or Envoy's protos.
package state

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/store"
)

// Options are what the tables need to know before the first batch.
type Options struct {
	// Domain is the suffix of cluster host names; default "cluster.local".
	Domain string
	// ClusterID names the cluster of proxies that do not say in which they are.
	ClusterID string
	// Sources are the names of the sources in order of precedence. Others come after them, by name.
	Sources []string
}

// Tables are the rows of the mesh.
type Tables struct {
	DB *store.DB

	// Settings are the mesh-wide settings, one row each.
	Settings *store.Table[Setting, Value]

	// MeshConfig is the mesh configuration in force as a whole, for people. No query reads it.
	MeshConfig *store.Table[struct{}, *meshconfig.MeshConfig]

	// Objects are the objects in force, for checks that need to see one whole. Their positions are elsewhere.
	Objects *store.Table[api.Key, *api.Object]
	// Kinds lists the keys of the objects by kind.
	Kinds *store.Index[string, api.Key]
	// Positions say where objects were read. No query reads them.
	Positions *store.Table[api.Key, api.Position]
	// Shadowed are the objects that several sources hold: the sources' names, the one in force first.
	Shadowed *store.Table[api.Key, []string]
	// SourceProblems are what the sources complain about, by source.
	SourceProblems *store.Table[string, Problems]
	// SourceNames lists the sources that have problems, under the empty key.
	SourceNames *store.Index[struct{}, omap.Name]
	// Sources are what is known of the sources themselves.
	Sources *store.Table[string, Source]

	// Claims are what objects say about hosts.
	Claims *store.Table[api.Key, *Claims]
	// ByHost lists who says something about a host or host pattern.
	ByHost *store.Index[string, Claim]
	// DelegatedBy lists the VirtualServices with rules that are in a VirtualService.
	DelegatedBy *store.Index[api.Key, api.Key]
	// Hosts group hosts by what is said about them.
	Hosts Hosts

	// Services are what ServiceEntries declare, apart from their endpoints.
	Services *store.Table[api.Key, *mesh.Service]
	// Endpoints are the endpoints ServiceEntries declare or select.
	Endpoints *store.Table[api.Key, *Endpoints]
	// Identities are who the endpoints of ServiceEntries say they are.
	Identities *store.Table[api.Key, *Identities]
	// Workloads are the WorkloadEntries.
	Workloads *store.Table[api.Key, mesh.Endpoint]
	// WorkloadsByLabel lists workloads by a label they have.
	WorkloadsByLabel *store.Index[LabelIn, api.Key]
	// SelectorsByLabel lists ServiceEntries that select workloads, by the first label of their selector.
	SelectorsByLabel *store.Index[LabelIn, api.Key]
	// ServicesAt and WorkloadsAt list ServiceEntries and WorkloadEntries with an endpoint at an address.
	ServicesAt  *store.Index[AddressIn, api.Key]
	WorkloadsAt *store.Index[AddressIn, api.Key]

	// Labelled lists ServiceEntries with an inline endpoint that has a label; those that are crowded under AnyLabel.
	Labelled *store.Index[LabelIn, api.Key]

	// VirtualServices and DestinationRules are the rules; their hosts are full names.
	VirtualServices  *store.Table[api.Key, *VirtualService]
	DestinationRules *store.Table[api.Key, *DestinationRule]
	// SelectingPolicies lists the DestinationRules of a namespace that are for some of its workloads only, oldest first.
	SelectingPolicies *store.Index[string, Aged]
	// SiteLabels lists, under the empty key, the labels by which DestinationRules prefer endpoints.
	SiteLabels *store.Index[struct{}, omap.Name]
	// Sidecars are the scopes.
	Sidecars *store.Table[api.Key, *Sidecar]
	// SidecarsFor lists the Sidecars of a namespace that are for all its workloads, SidecarsByLabel the others by the first
	// label of their selector; oldest first.
	SidecarsFor     *store.Index[string, Aged]
	SidecarsByLabel *store.Index[LabelIn, Aged]

	// Proxies are the connected proxies by node id.
	Proxies *store.Table[string, *proxy.Proxy]
	// ProxiesIn lists the connected proxies of a namespace.
	ProxiesIn *store.Index[string, omap.Name]

	// Rejections are what connected proxies rejected.
	Rejections *store.Table[RejectionKey, Rejection]
	// RejectionsOf lists what a connection rejected; Rejecting lists, under the empty key, the connections that rejected
	// something.
	RejectionsOf *store.Index[string, Rejected]
	Rejecting    *store.Index[struct{}, omap.Name]
	// Origins are the objects that rejected content was made of when it was rejected. What has no row is still looked into.
	Origins *store.Table[Rejected, []api.Key]

	// Faults are the cells that failed; FaultKeys lists them under the empty key.
	Faults    *store.Table[FaultKey, Fault]
	FaultKeys *store.Index[struct{}, FaultKey]

	// Withheld are resources whose acknowledgement connected proxies withhold. WithheldBy lists who, WithheldNames which.
	Withheld      *store.Table[WithheldKey, Withheld]
	WithheldBy    *store.Index[Sent, omap.Name]
	WithheldNames *store.Index[struct{}, Sent]

	// Wants are what connected proxies ask for by name. WantsOf lists what a connection asks for, WantedBy which connections ask for
	// something, Wanted, under the empty key, everything that is asked for.
	Wants    *store.Table[WantKey, Want]
	WantsOf  *store.Index[string, Sent]
	WantedBy *store.Index[Sent, omap.Name]
	Wanted   *store.Index[struct{}, Sent]

	sourced *store.Table[sourcedKey, *api.Object]
	kinds   map[string]kind
	options Options
}

// LabelIn is a label of workloads of a namespace.
type LabelIn struct {
	Namespace string
	Label     mesh.Label
}

// AddressIn is an address of workloads of a namespace.
type AddressIn struct{ Namespace, Address string }

// Aged is a key that is ordered by age first.
type Aged struct {
	Created int64 // microseconds
	Key     api.Key
}

// Compare orders by age, then key.
func (a Aged) Compare(o Aged) int {
	if a.Created != o.Created {
		if a.Created < o.Created {
			return -1
		}
		return 1
	}
	return a.Key.Compare(o.Key)
}

// AppendTo appends an unambiguous form.
func (a Aged) AppendTo(b []byte) []byte { return a.Key.AppendTo(appendInt(b, a.Created)) }

func appendInt(b []byte, n int64) []byte {
	u := uint64(n)
	return append(b, byte(u>>56), byte(u>>48), byte(u>>40), byte(u>>32), byte(u>>24), byte(u>>16), byte(u>>8), byte(u))
}

// New returns empty tables in a store of their own.
func New(o Options) *Tables {
	if o.Domain == "" {
		o.Domain = "cluster.local"
	}
	db := store.New()
	db.KeepJournal(journalRows)
	t := &Tables{DB: db, options: o}
	t.Settings = store.NewTable[Setting, Value](db, "settings", Value.equal)
	t.MeshConfig = store.NewTable[struct{}, *meshconfig.MeshConfig](db, "meshConfig", func(a, b *meshconfig.MeshConfig) bool { return proto.Equal(a, b) })
	t.Objects = store.NewTable[api.Key, *api.Object](db, "objects", func(a, b *api.Object) bool { return a.Hash == b.Hash })
	t.Kinds = store.NewIndex(t.Objects, "kinds", func(k api.Key, _ *api.Object, add func(string, api.Key)) { add(k.Kind, k) })
	t.Positions = store.NewTable[api.Key, api.Position](db, "positions", same[api.Position])
	t.Shadowed = store.NewTable[api.Key, []string](db, "shadowed", slices.Equal[[]string])
	t.SourceProblems = store.NewTable[string, Problems](db, "sourceProblems", Problems.Equal)
	t.SourceNames = store.NewIndex(t.SourceProblems, "sourceNames", func(k string, _ Problems, add func(struct{}, omap.Name)) {
		add(struct{}{}, omap.Name(k))
	})
	t.Sources = store.NewTable[string, Source](db, "sources", same[Source])
	t.sourced = store.NewTable[sourcedKey, *api.Object](db, "sourced", func(a, b *api.Object) bool {
		return a.Hash == b.Hash && a.Position == b.Position
	})
	t.defineClaims(db)
	t.defineServices(db)
	t.defineRules(db)
	t.defineRejections(db)
	t.defineFaults(db)
	t.defineWithheld(db)
	t.defineWants(db)
	t.defineKinds()
	t.Proxies = store.NewTable[string, *proxy.Proxy](db, "proxies", (*proxy.Proxy).Equal)
	t.ProxiesIn = store.NewIndex(t.Proxies, "proxiesIn", func(id string, p *proxy.Proxy, add func(string, omap.Name)) {
		add(p.Namespace, omap.Name(id))
	})
	t.Proxies.OmitFromJournal()
	t.Rejections.OmitFromJournal()
	t.Origins.OmitFromJournal()
	t.Faults.OmitFromJournal()
	t.Withheld.OmitFromJournal()
	return t
}

// ClusterID names the cluster of proxies that do not say in which they are. It does not change.
func (t *Tables) ClusterID() string { return t.options.ClusterID }

// Domain is the suffix of cluster host names. It does not change.
func (t *Tables) Domain() string { return t.options.Domain }

func (t *Tables) defineServices(db *store.DB) {
	t.Services = store.NewTable[api.Key, *mesh.Service](db, "services", (*mesh.Service).Equal)
	t.Endpoints = store.NewTable[api.Key, *Endpoints](db, "endpoints", (*Endpoints).equal)
	t.Identities = store.NewTable[api.Key, *Identities](db, "identities", (*Identities).equal)
	t.ServicesAt = store.NewIndex(t.Endpoints, "servicesAt", func(k api.Key, e *Endpoints, add func(AddressIn, api.Key)) {
		for _, ep := range e.Inline {
			add(AddressIn{k.Namespace, ep.Address}, k)
		}
	})
	t.Labelled = store.NewIndex(t.Endpoints, "labelled", func(k api.Key, e *Endpoints, add func(LabelIn, api.Key)) {
		for _, label := range e.Labels() {
			add(LabelIn{k.Namespace, label}, k)
		}
	})
	t.SelectorsByLabel = store.NewIndex(t.Endpoints, "selectorsByLabel", func(k api.Key, e *Endpoints, add func(LabelIn, api.Key)) {
		if labels := mesh.SortedLabels(e.Selector); len(labels) > 0 {
			add(LabelIn{k.Namespace, labels[0]}, k)
		}
	})
	t.Workloads = store.NewTable[api.Key, mesh.Endpoint](db, "workloads", mesh.Endpoint.Equal)
	t.WorkloadsAt = store.NewIndex(t.Workloads, "workloadsAt", func(k api.Key, e mesh.Endpoint, add func(AddressIn, api.Key)) {
		add(AddressIn{k.Namespace, e.Address}, k)
	})
	t.WorkloadsByLabel = store.NewIndex(t.Workloads, "workloadsByLabel", func(k api.Key, e mesh.Endpoint, add func(LabelIn, api.Key)) {
		for name, value := range e.Labels {
			add(LabelIn{k.Namespace, mesh.Label{Name: name, Value: value}}, k)
		}
	})
}

func (t *Tables) defineRules(db *store.DB) {
	t.VirtualServices = store.NewTable[api.Key, *VirtualService](db, "virtualServices", func(a, b *VirtualService) bool { return a.Hash == b.Hash })
	t.DestinationRules = store.NewTable[api.Key, *DestinationRule](db, "destinationRules", (*DestinationRule).equal)
	t.SelectingPolicies = store.NewIndex(t.DestinationRules, "selectingPolicies", func(k api.Key, d *DestinationRule, add func(string, Aged)) {
		if len(d.Selector) > 0 {
			add(k.Namespace, Aged{d.Created, k})
		}
	})
	t.SiteLabels = store.NewIndex(t.DestinationRules, "siteLabels", func(_ api.Key, d *DestinationRule, add func(struct{}, omap.Name)) {
		for label := range siteLabels(d.Spec) {
			add(struct{}{}, omap.Name(label))
		}
	})
	t.Sidecars = store.NewTable[api.Key, *Sidecar](db, "sidecars", func(a, b *Sidecar) bool { return a.Hash == b.Hash && a.Created == b.Created })
	t.SidecarsFor = store.NewIndex(t.Sidecars, "sidecarsFor", func(k api.Key, s *Sidecar, add func(string, Aged)) {
		if len(s.Selector) == 0 {
			add(k.Namespace, Aged{s.Created, k})
		}
	})
	t.SidecarsByLabel = store.NewIndex(t.Sidecars, "sidecarsByLabel", func(k api.Key, s *Sidecar, add func(LabelIn, Aged)) {
		if labels := mesh.SortedLabels(s.Selector); len(labels) > 0 {
			add(LabelIn{k.Namespace, labels[0]}, Aged{s.Created, k})
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
