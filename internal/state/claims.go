package state

import (
	"cmp"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/store"
)

// ClaimKind says what an object says about a host.
type ClaimKind uint8

// The kinds of claims, in the order in which a host's claims are listed.
const (
	// ServiceClaim declares a service.
	ServiceClaim ClaimKind = iota
	// RouteClaim has routes for it (VirtualService).
	RouteClaim
	// PolicyClaim has traffic policy for it (DestinationRule).
	PolicyClaim
	// SourceClaim says that a VirtualService which all see treats callers of the claim's layer differently.
	SourceClaim
	// DelegateClaim says that a VirtualService which all see delegates to the claim's layer, as "namespace/name". Under that
	// name it is listed, too.
	DelegateClaim
	// ShortClaim says that somebody declared a short name of the host, name.namespace or name.namespace.svc, as a host of
	// its own.
	ShortClaim
)

// Kind is the kind of the objects that make such claims.
func (k ClaimKind) Kind() string {
	switch k {
	case ServiceClaim:
		return KindServiceEntry
	case PolicyClaim:
		return KindDestinationRule
	}
	return KindVirtualService
}

// Claim is one object's claim on one host, as one layer sees it. A host's claims are listed by kind, then age, so that
// who wins can be told from the list, without reading an object.
type Claim struct {
	Kind    ClaimKind
	Created int64 // microseconds
	// Namespace and Name are the object's.
	Namespace, Name string
	// Layer is who sees the claim: "" everybody, else a namespace.
	Layer string
}

// Object is the key of who claims.
func (c Claim) Object() api.Key {
	return api.Key{Kind: c.Kind.Kind(), Namespace: c.Namespace, Name: c.Name}
}

// VisibleTo reports whether callers in a namespace see the claim; the namespace "" stands for those of whom nothing
// special is said.
func (c Claim) VisibleTo(namespace string) bool { return c.Layer == "" || c.Layer == namespace }

// Compare orders claims by kind and age. Of routes of one age the object's name decides, then its namespace, as with
// Istio; of other claims the namespace, then the name, as with Istio's services.
func (c Claim) Compare(o Claim) int {
	switch {
	case c.Kind != o.Kind:
		return int(c.Kind) - int(o.Kind)
	case c.Created < o.Created:
		return -1
	case c.Created > o.Created:
		return 1
	}
	name, namespace := strings.Compare(c.Name, o.Name), strings.Compare(c.Namespace, o.Namespace)
	if c.Kind == RouteClaim {
		return cmp.Or(name, namespace, strings.Compare(c.Layer, o.Layer))
	}
	return cmp.Or(namespace, name, strings.Compare(c.Layer, o.Layer))
}

// AppendTo appends an unambiguous form.
func (c Claim) AppendTo(b []byte) []byte {
	b = appendInt(append(b, byte(c.Kind)), c.Created)
	for _, s := range [...]string{c.Namespace, c.Name, c.Layer} {
		b = append(append(b, s...), 0)
	}
	return b
}

// Claims is what one object says about hosts: the row from which the lists of claims are made.
type Claims struct {
	Kind    ClaimKind
	Created int64
	Hosts   []string // full names, lower case, each once
	Layers  []string // who sees it: "" or namespaces, each once
	// Sources are the namespaces, Labels the pairs of labels of callers that it treats differently.
	Sources, Labels []string
	// Sited says that by what the object says, endpoints may be preferred by where a client runs.
	Sited bool
	// Near is which endpoints of a service are preferred for being near.
	Near mesh.Nearness
	// Delegates are the objects that some of its rules are in, as "namespace/name". A delegate has no hosts.
	Delegates []string
}

func (c *Claims) equal(o *Claims) bool {
	return c.Kind == o.Kind && c.Created == o.Created && c.Sited == o.Sited && c.Near == o.Near && slices.Equal(c.Hosts, o.Hosts) &&
		slices.Equal(c.Layers, o.Layers) && slices.Equal(c.Sources, o.Sources) && slices.Equal(c.Labels, o.Labels) &&
		slices.Equal(c.Delegates, o.Delegates)
}

// Grouping is a way of putting hosts together.
type Grouping uint8

// The groups of hosts.
const (
	// SeenBy: hosts with a service or routes that the layer Of sees and others do not ("" for all).
	SeenBy Grouping = iota
	// ServiceUnder: public hosts with a service that the pattern Of covers.
	ServiceUnder
	// RoutesUnder: public hosts with routes that the pattern Of covers.
	RoutesUnder
	// DeclaredIn: hosts with a service or routes declared in namespace Of, for the layer In.
	DeclaredIn
	// Touched: hosts that may look different to callers in namespace Of.
	Touched
	// TouchedUnder: patterns below which hosts may look different to callers in namespace Of.
	TouchedUnder
	// SinglesOut: delegates, as "namespace/name", that treat callers in namespace Of differently.
	SinglesOut
	// Labelled: hosts, patterns and delegates with rules, seen by the layer In, that name the pair of labels Of.
	Labelled
	// Through: hosts and patterns of which the layer In sees rules that are in the delegate Of.
	Through
	// BareIn: hosts of services which callers in namespace Of can call by their bare names.
	BareIn
	// Sited: hosts and patterns whose endpoints may be preferred by where a client runs; SitedUnder: only the patterns.
	Sited
	SitedUnder
	// Near: those of services that prefer the kind of nearness Of.
	Near
)

// HostGroup names a group of hosts.
type HostGroup struct {
	By Grouping
	Of string
	In string
}

func (t *Tables) defineClaims(db *store.DB) {
	t.Claims = store.NewTable[api.Key, *Claims](db, "claims", (*Claims).equal)
	domain := t.options.Domain
	t.ByHost = store.NewIndex(t.Claims, "claimsByHost", func(k api.Key, c *Claims, add func(string, Claim)) {
		for _, d := range c.Delegates {
			add(d, Claim{Kind: DelegateClaim, Created: c.Created, Namespace: k.Namespace, Name: k.Name})
		}
		for _, host := range c.Hosts {
			claim := Claim{Kind: c.Kind, Created: c.Created, Namespace: k.Namespace, Name: k.Name}
			for _, claim.Layer = range c.Layers {
				add(host, claim)
			}
			if c.public() {
				claim.Kind = SourceClaim
				for _, claim.Layer = range c.Sources {
					add(host, claim)
				}
				claim.Kind = DelegateClaim
				for _, claim.Layer = range c.Delegates {
					add(host, claim)
				}
			}
			if full, ok := mesh.LongHost(host, domain); ok && c.Kind != PolicyClaim {
				claim.Kind = ShortClaim
				for _, claim.Layer = range c.Layers {
					add(full, claim)
				}
			}
		}
	})
	t.Hosts = store.NewIndex(t.Claims, "hosts", func(k api.Key, c *Claims, add func(HostGroup, omap.Name)) {
		if c.Kind == RouteClaim && len(c.Hosts) == 0 {
			c.groupDelegate(DelegateName(k), add)
		}
		for _, host := range c.Hosts {
			c.group(k.Namespace, host, domain, func(g HostGroup) { add(g, omap.Name(host)) })
			if full, ok := mesh.LongHost(host, domain); ok && c.Kind != PolicyClaim {
				for _, layer := range c.Layers {
					if layer != "" {
						add(HostGroup{By: Touched, Of: layer}, omap.Name(full))
					}
				}
			}
		}
	})
}

// public reports whether all see it.
func (c *Claims) public() bool { return slices.Contains(c.Layers, "") }

// groupDelegate adds a delegate to its groups. Who sees its rules depends on those who delegate to it.
func (c *Claims) groupDelegate(name string, add func(HostGroup, omap.Name)) {
	for _, ns := range c.Sources {
		add(HostGroup{By: SinglesOut, Of: ns}, omap.Name(name))
	}
	for _, pair := range c.Labels {
		add(HostGroup{By: Labelled, Of: pair}, omap.Name(name))
	}
}

// group calls add for every group one host of the claims belongs to.
func (c *Claims) group(namespace, host, domain string, add func(HostGroup)) {
	touched := func(ns string) {
		add(HostGroup{By: Touched, Of: ns})
		if mesh.IsWildcard(host) && c.Kind != ServiceClaim {
			add(HostGroup{By: TouchedUnder, Of: ns})
		}
	}
	if c.public() {
		for _, ns := range c.Sources {
			touched(ns)
		}
	}
	if c.Sited {
		add(HostGroup{By: Sited})
		if mesh.IsWildcard(host) && c.Kind == PolicyClaim {
			add(HostGroup{By: SitedUnder})
		}
	}
	if c.Near != mesh.Anywhere {
		add(HostGroup{By: Near, Of: c.Near.String()})
	}
	for _, layer := range c.Layers {
		for _, pair := range c.Labels {
			add(HostGroup{By: Labelled, Of: pair, In: layer})
		}
		for _, d := range c.Delegates {
			add(HostGroup{By: Through, Of: d, In: layer})
		}
		if layer != "" {
			touched(layer)
		}
		if c.Kind == PolicyClaim {
			if layer == "" { // it applies to callers of its own namespace first
				touched(namespace)
			}
			continue
		}
		add(HostGroup{By: SeenBy, Of: layer})
		if layer == "" {
			under := ServiceUnder
			if c.Kind == RouteClaim {
				under = RoutesUnder
			}
			for pattern := range mesh.Patterns(host) {
				add(HostGroup{By: under, Of: pattern})
			}
		}
		add(HostGroup{By: DeclaredIn, Of: namespace, In: layer})
		if c.Kind != ServiceClaim {
			continue
		}
		if _, ns, ok := mesh.ClusterHost(host, domain); ok && (layer == "" || layer == ns) {
			add(HostGroup{By: BareIn, Of: ns})
		}
	}
}
