package state

import (
	"cmp"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/mesh"
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
	// SourceClaim says that a VirtualService which all see treats callers in the namespace of the claim's layer differently.
	SourceClaim
	// DelegateClaim says that a VirtualService which all see delegates to the claim's Delegate.
	DelegateClaim
	// ShortClaim says that somebody declared a short name of the host, name.namespace or name.namespace.svc, as a host of
	// its own.
	ShortClaim
)

// Kind is the kind of the objects that make such claims.
func (k ClaimKind) Kind() string {
	switch k {
	case ServiceClaim:
		return api.KindServiceEntry
	case PolicyClaim:
		return api.KindDestinationRule
	}
	return api.KindVirtualService
}

// Claim is one object's claim on one host, as one layer sees it. A host's claims are listed by kind, then age, so that
// who wins can be told from the list, without reading an object.
type Claim struct {
	Kind    ClaimKind
	Created int64 // microseconds
	// Namespace and Name are the object's.
	Namespace, Name string
	// Layer is the namespace of the callers whom the claim concerns; "": all callers.
	Layer string
	// Delegate is the VirtualService that a DelegateClaim names; zero in other claims.
	Delegate api.Key
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
	return cmp.Or(namespace, name, strings.Compare(c.Layer, o.Layer), c.Delegate.Compare(o.Delegate))
}

// AppendTo appends an unambiguous form.
func (c Claim) AppendTo(b []byte) []byte {
	b = appendInt(append(b, byte(c.Kind)), c.Created)
	for _, s := range [...]string{c.Namespace, c.Name, c.Layer} {
		b = append(append(b, s...), 0)
	}
	if c.Kind == DelegateClaim {
		b = c.Delegate.AppendTo(b)
	}
	return b
}

// Claims is what one object says about hosts: the row from which the lists of claims are made.
type Claims struct {
	Kind    ClaimKind
	Created int64
	Hosts   []string // full names, lower case, each once
	Layers  []string // who sees it: "" or namespaces, each once
	// Sources are the namespaces, and Labels the labels, of callers that it treats differently.
	Sources []string
	Labels  []mesh.Label
	// ByLocality says that by what the object says, endpoints may be preferred by where a client runs.
	ByLocality bool
	// Near is which endpoints of a service are preferred for being near.
	Near mesh.Nearness
	// Delegates are the VirtualServices that some of its rules are in. A delegate has no hosts.
	Delegates []api.Key
}

func (c *Claims) equal(o *Claims) bool {
	return c.Kind == o.Kind && c.Created == o.Created && c.ByLocality == o.ByLocality && c.Near == o.Near && slices.Equal(c.Hosts, o.Hosts) &&
		slices.Equal(c.Layers, o.Layers) && slices.Equal(c.Sources, o.Sources) && slices.Equal(c.Labels, o.Labels) &&
		slices.Equal(c.Delegates, o.Delegates)
}

func (t *Tables) defineClaims(db *store.DB) {
	t.Claims = store.NewTable[api.Key, *Claims](db, "claims", (*Claims).equal)
	domain := t.options.Domain
	t.ByHost = store.NewIndex(t.Claims, "claimsByHost", func(k api.Key, c *Claims, add func(string, Claim)) {
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
				claim.Kind, claim.Layer = DelegateClaim, ""
				for _, claim.Delegate = range c.Delegates {
					add(host, claim)
				}
				claim.Delegate = api.Key{}
			}
			if full, ok := mesh.LongHost(host, domain); ok && c.Kind != PolicyClaim {
				claim.Kind = ShortClaim
				for _, claim.Layer = range c.Layers {
					add(full, claim)
				}
			}
		}
	})
	t.DelegatedBy = store.NewIndex(t.Claims, "delegatedBy", func(k api.Key, c *Claims, add func(api.Key, api.Key)) {
		for _, delegate := range c.Delegates {
			add(delegate, k)
		}
	})
	t.Hosts = defineHosts(t.Claims, domain)
}

// public reports whether all callers see it.
func (c *Claims) public() bool { return slices.Contains(c.Layers, "") }

// isDelegate reports whether these are the claims of a VirtualService that is for others to delegate to.
func (c *Claims) isDelegate() bool { return c.Kind == RouteClaim && len(c.Hosts) == 0 }
