// Package claim owns the claims of configuration on hosts: which objects declare a host, route it, or have a policy for it, in the order of
// their precedence, and who sees them. Queries find the objects about a host here without reading any other.
//
// The package has no goroutines; the loop writes its table.
package claim

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// Kind is what an object contributes to a host.
type Kind uint8

// The kinds of claims, in the order in which a host's claims are listed.
const (
	// Service: the object declares a service (ServiceEntry, or a Service with endpoints).
	Service Kind = iota
	// Route: the object has routes for the host (VirtualService).
	Route
	// Policy: the object has a traffic policy for the host (DestinationRule).
	Policy
	// Source: a VirtualService that all callers see has rules for callers in one namespace, which is the claim's layer.
	Source
	// Delegate: a VirtualService that all callers see delegates to the claim's Delegate.
	Delegate
	// Short: the object declares a short name of the host, name.namespace or name.namespace.svc, as a host of its own.
	Short
	// Alias: the object is a Service of type ExternalName, whose name is another name for the host.
	Alias
	// Member: the object is a Service with the same name as a Service of another cluster, which has the claim Service and
	// decides the properties of the service.
	Member
	// Name: the host is the name of the object, a Service of type ExternalName.
	Name
)

// Kind returns the kind of the objects that make such claims.
func (k Kind) Kind() string {
	switch k {
	case Service:
		return api.KindServiceEntry
	case Alias, Member, Name:
		return kube.KindService
	case Policy:
		return api.KindDestinationRule
	}
	return api.KindVirtualService
}

// Claim is the claim of one object on one host, for one layer. The claims on a host are ordered by kind, then by age, so the order
// decides which object takes precedence, without reading the objects.
type Claim struct {
	Kind    Kind
	Created int64 // in microseconds since 1970
	// Namespace, Name and Cluster identify the object. The object of a claim Service with a cluster is a Service of Kubernetes, unless Registry is true.
	Namespace, Name, Cluster string
	// Layer is the namespace of the callers that the claim is for; "" for all callers.
	Layer string
	// Delegate is the VirtualService that the object of a claim Delegate delegates to. It is zero in other claims.
	Delegate api.Key
	// Registry is true for the claim Service of a service of a registry, whose name is Cluster. Such claims are after all others of the kind, in
	// the order of their registries.
	Registry bool
}

// Object returns the key of the object that makes the claim.
func (c Claim) Object() api.Key {
	kind := c.Kind.Kind()
	switch {
	case c.Registry:
		kind = registry.KindService
	case c.Cluster != "":
		kind = kube.KindService
	}
	return api.Key{Kind: kind, Namespace: c.Namespace, Name: c.Name, Cluster: c.Cluster}
}

// VisibleTo reports whether callers in a namespace see the claim. The namespace "" means callers that see only the claims for all callers.
func (c Claim) VisibleTo(namespace string) bool { return c.Layer == "" || c.Layer == namespace }

// IsService reports whether the object is a Service of a Kubernetes cluster.
func (c Claim) IsService() bool { return c.Cluster != "" && !c.Registry }

// Compare orders claims by kind, then by age. A Service of a Kubernetes cluster goes before all ServiceEntries, whatever their age. If the
// ages are equal, routes are ordered by name, then namespace, and other claims by namespace, then name, as in Istio.
func (c Claim) Compare(o Claim) int {
	switch {
	case c.Kind != o.Kind:
		return int(c.Kind) - int(o.Kind)
	case c.Registry != o.Registry:
		return last(c.Registry)
	case c.Kind == Service && c.IsService() != o.IsService():
		return -last(c.IsService())
	case c.Created < o.Created:
		return -1
	case c.Created > o.Created:
		return 1
	}
	name, namespace := strings.Compare(c.Name, o.Name), strings.Compare(c.Namespace, o.Namespace)
	if c.Kind == Route {
		return cmp.Or(name, namespace, strings.Compare(c.Layer, o.Layer))
	}
	return cmp.Or(namespace, name, strings.Compare(c.Cluster, o.Cluster), strings.Compare(c.Layer, o.Layer), c.Delegate.Compare(o.Delegate))
}

// last orders the one of two claims that has a property behind the one that has not.
func last(has bool) int {
	if has {
		return 1
	}
	return -1
}

// AppendTo appends an unambiguous form.
func (c Claim) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(append(b, byte(c.Kind)), uint64(c.Created))
	for _, s := range [...]string{c.Namespace, c.Name, c.Layer, c.Cluster} {
		b = append(append(b, s...), 0)
	}
	if c.Kind == Delegate {
		b = c.Delegate.AppendTo(b)
	}
	if c.Registry {
		b = append(b, 1)
	}
	return b
}

// Claims is the row with the hosts that one object is about. Indexes of it list the claims on each host.
type Claims struct {
	Kind    Kind
	Created int64
	Hosts   []string // fully qualified names in lower case, each once
	Layers  []string // the namespaces that see the object, each once; "" for all
	// Sources and Labels are the namespaces and labels of callers that the rules of the object name.
	Sources []string
	Labels  []mesh.Label
	// ByLocality is true if the object may make the choice of endpoints depend on where the client runs.
	ByLocality bool
	// ByCredential is true for a rule that names a Secret which gateways use.
	ByCredential bool
	// Leader is the cluster of the leading Service, in claims Member.
	Leader string
	// ByCluster is true for the claims Member of a Service that has other addresses than the leading Service. Clients in its cluster
	// call the service at its own addresses.
	ByCluster bool
	// ClusterLocal is true for the claims Member of a host whose clients use only the endpoints in their own cluster.
	ClusterLocal bool
	// Near is which endpoints of a service are preferred because they are near the client.
	Near mesh.Nearness
	// Delegates are the VirtualServices that the object delegates to. A delegate itself has no hosts.
	Delegates []api.Key
}

func (c *Claims) equal(o *Claims) bool {
	return c.Kind == o.Kind && c.Created == o.Created && c.ByLocality == o.ByLocality && c.ByCredential == o.ByCredential && c.ByCluster == o.ByCluster && c.Leader == o.Leader && c.ClusterLocal == o.ClusterLocal && c.Near == o.Near && slices.Equal(c.Hosts, o.Hosts) &&
		slices.Equal(c.Layers, o.Layers) && slices.Equal(c.Sources, o.Sources) && slices.Equal(c.Labels, o.Labels) &&
		slices.Equal(c.Delegates, o.Delegates)
}

// Index is the claims of all objects, with the indexes that read them by host.
type Index struct {
	// Claims are the hosts that objects claim.
	Claims store.Table[api.Key, *Claims]
	// ByHost lists the claims on a host or host pattern, in order of precedence.
	ByHost store.Index[string, Claim]
	// BareNames lists the claims of the Services of Kubernetes clusters that have a name, in whatever namespace.
	BareNames store.Index[string, Claim]
	// DelegatedBy lists the VirtualServices that delegate to a VirtualService.
	DelegatedBy store.Index[api.Key, api.Key]
	// Hosts are the indexes that group hosts by their claims.
	Hosts Hosts
}

// Define defines the table and its indexes in a store. domain is the suffix of the host names of clusters.
func Define(db *store.DB, domain string) Index {
	t := Index{}
	t.Claims = store.NewTable[api.Key, *Claims](db, "claims", (*Claims).equal)
	t.ByHost = store.NewIndex(t.Claims, "claimsByHost", func(k api.Key, c *Claims, add func(string, Claim)) {
		for _, host := range c.Hosts {
			claim := Claim{Kind: c.Kind, Created: c.Created, Namespace: k.Namespace, Name: k.Name, Cluster: k.Cluster, Registry: k.Kind == registry.KindService}
			for _, claim.Layer = range c.Layers {
				add(host, claim)
			}
			if c.public() {
				claim.Kind = Source
				for _, claim.Layer = range c.Sources {
					add(host, claim)
				}
				claim.Kind, claim.Layer = Delegate, ""
				for _, claim.Delegate = range c.Delegates {
					add(host, claim)
				}
				claim.Delegate = api.Key{}
			}
			if c.Kind == Alias {
				claim.Kind = Name
				for _, claim.Layer = range c.Layers {
					add(mesh.FullHost(k.Name, k.Namespace, domain), claim)
				}
			}
			if full, ok := mesh.LongHost(host, domain); ok && c.declares() {
				claim.Kind = Short
				for _, claim.Layer = range c.Layers {
					add(full, claim)
				}
			}
		}
	})
	t.BareNames = store.NewIndex(t.Claims, "servicesByBareName", func(k api.Key, c *Claims, add func(string, Claim)) {
		if k.Kind != kube.KindService || c.Kind != Service && c.Kind != Alias {
			return
		}
		claim := Claim{Kind: c.Kind, Created: c.Created, Namespace: k.Namespace, Name: k.Name, Cluster: k.Cluster}
		for _, claim.Layer = range c.Layers {
			add(k.Name, claim)
		}
	})
	t.DelegatedBy = store.NewIndex(t.Claims, "delegatedBy", func(k api.Key, c *Claims, add func(api.Key, api.Key)) {
		for _, delegate := range c.Delegates {
			add(delegate, k)
		}
	})
	t.Hosts = defineHosts(t.Claims, domain)
	return t
}

// declares reports whether the object declares its hosts, as services or with routes for them.
func (c *Claims) declares() bool { return c.Kind == Service || c.Kind == Route }

// isService reports whether these are the claims of a Service of a Kubernetes cluster that leads the Services of its name.
func (c *Claims) isService(k api.Key) bool {
	return c.Kind == Alias || c.Kind == Service && k.Kind == kube.KindService
}

// public reports whether all callers see the object.
func (c *Claims) public() bool { return slices.Contains(c.Layers, "") }

// isDelegate reports whether these are the claims of a VirtualService to which others delegate.
func (c *Claims) isDelegate() bool { return c.Kind == Route && len(c.Hosts) == 0 }
