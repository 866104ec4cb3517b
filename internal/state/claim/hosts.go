package claim

import (
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// Hosts are indexes of the claims. Each groups hosts by properties of their claims. A host is a fully qualified name or a pattern.
type Hosts struct {
	// SeenBy are hosts with a service or routes that only callers in a namespace see; under "", hosts that all callers see.
	SeenBy store.Index[string, omap.Name]
	// ServiceUnder are the public hosts with a service that a pattern covers, RoutesUnder the public hosts with routes.
	ServiceUnder, RoutesUnder store.Index[string, omap.Name]
	// DeclaredIn are hosts with a service or routes, by where they are declared and who sees that.
	DeclaredIn store.Index[NamespaceLayer, omap.Name]
	// DifferentFor are hosts that may look different to callers in a namespace than to others; DifferentUnder are the patterns among them.
	DifferentFor, DifferentUnder store.Index[string, omap.Name]
	// ForLabel are hosts with rules for callers with a label.
	ForLabel store.Index[ForLabel, omap.Name]
	// ByDelegate are hosts with rules in a delegate.
	ByDelegate store.Index[DelegateLayer, omap.Name]
	// BareIn are hosts of services that callers in a namespace can call by their bare names, or by the bare names of their aliases.
	BareIn store.Index[string, omap.Name]
	// Bare are the hosts of one label that ServiceEntries declare. NamesIn are the names of the Services of Kubernetes clusters in a namespace.
	Bare    store.Index[struct{}, omap.Name]
	NamesIn store.Index[string, omap.Name]
	// ByLocality are, under the empty key, the hosts whose endpoints may be preferred by where a client runs; ByLocalityUnder
	// are the patterns among the hosts of DestinationRules.
	ByLocality, ByLocalityUnder store.Index[struct{}, omap.Name]
	// ByCredential are likewise the hosts of DestinationRules that name a Secret which gateways use, and ByCredentialUnder the patterns among them.
	ByCredential, ByCredentialUnder store.Index[struct{}, omap.Name]
	// PreferNear are hosts of services that prefer endpoints which are near in some way.
	PreferNear store.Index[mesh.Nearness, omap.Name]

	// ByCluster are hosts of services that clients call at other addresses in another cluster, or at other endpoints, by who sees them.
	// ClusterLocal are the latter.
	ByCluster, ClusterLocal store.Index[string, omap.Name]

	// DelegatesFor are delegates with rules for callers in a namespace, DelegatesForLabel delegates with rules for callers
	// that have a label. Which hosts these rules are for depends on who delegates.
	DelegatesFor      store.Index[string, api.Key]
	DelegatesForLabel store.Index[mesh.Label, api.Key]
}

// NamespaceLayer is a namespace that declares hosts, and a layer of callers that see them.
type NamespaceLayer struct{ Namespace, Layer string }

// ForLabel is a label of callers in rules, and a layer of callers that see the rules.
type ForLabel struct {
	Label mesh.Label
	Layer string
}

// DelegateLayer is a VirtualService to which others delegate, and a layer of callers that see these others.
type DelegateLayer struct {
	Delegate api.Key
	Layer    string
}

// claimsTable is the table that the indexes group.
type claimsTable = store.Table[api.Key, *Claims]

func defineHosts(claims claimsTable, domain string) Hosts {
	h := Hosts{
		SeenBy: hostIndex(claims, "hostsSeenBy", func(_ api.Key, c *Claims, _ string, add func(string)) {
			if c.declares() {
				each(c.Layers, add)
			}
		}),
		ServiceUnder: hostIndex(claims, "servicesUnder", func(_ api.Key, c *Claims, host string, add func(string)) {
			addPatterns(c, Service, host, add)
		}),
		RoutesUnder: hostIndex(claims, "routesUnder", func(_ api.Key, c *Claims, host string, add func(string)) {
			addPatterns(c, Route, host, add)
		}),
		DeclaredIn: hostIndex(claims, "hostsDeclaredIn", func(k api.Key, c *Claims, _ string, add func(NamespaceLayer)) {
			if c.declares() {
				each(c.Layers, func(layer string) { add(NamespaceLayer{k.Namespace, layer}) })
			}
		}),
		BareIn: hostIndex(claims, "bareNamesIn", func(k api.Key, c *Claims, host string, add func(string)) {
			_, ns, ok := mesh.ClusterHost(host, domain)
			if c.Kind == Alias {
				ns, ok = k.Namespace, true
			}
			if ok && (c.Kind == Service || c.Kind == Alias) {
				each(c.Layers, func(layer string) {
					if layer == "" || layer == ns {
						add(ns)
					}
				})
			}
		}),
	}
	h.Bare = hostIndex(claims, "bareHosts", func(k api.Key, c *Claims, host string, add func(struct{})) {
		if c.Kind == Service && k.Kind != kube.KindService && !strings.Contains(host, ".") {
			add(struct{}{})
		}
	})
	h.NamesIn = store.NewIndex(claims, "namesIn", func(k api.Key, c *Claims, add func(string, omap.Name)) {
		if c.isService(k) {
			add(k.Namespace, omap.Name(k.Name))
		}
	})
	h.defineDifferences(claims, domain)
	h.defineLocalities(claims)
	h.defineDelegates(claims)
	h.ByCluster = hostIndex(claims, "hostsByCluster", func(_ api.Key, c *Claims, _ string, add func(string)) {
		if c.ByCluster || c.ClusterLocal {
			each(c.Layers, add)
		}
	})
	h.ClusterLocal = hostIndex(claims, "hostsClusterLocal", func(_ api.Key, c *Claims, _ string, add func(string)) {
		if c.ClusterLocal {
			each(c.Layers, add)
		}
	})
	return h
}

// hostIndex groups the hosts of claims: groups adds the keys of the groups that one host of an object's claims is in.
func hostIndex[G comparable](claims claimsTable, name string, groups func(k api.Key, c *Claims, host string, add func(G))) store.Index[G, omap.Name] {
	return store.NewIndex(claims, name, func(k api.Key, c *Claims, add func(G, omap.Name)) {
		for _, host := range c.Hosts {
			groups(k, c, host, func(g G) { add(g, omap.Name(host)) })
		}
	})
}

func each(list []string, do func(string)) {
	for _, s := range list {
		do(s)
	}
}

// addPatterns adds the patterns that cover a host, if the claims are of the kind and all callers see them.
func addPatterns(c *Claims, kind Kind, host string, add func(string)) {
	if c.Kind != kind || !c.public() {
		return
	}
	for pattern := range mesh.Patterns(host) {
		add(pattern)
	}
}

// defineDifferences groups hosts by the callers that may see them differently than other callers do.
func (h *Hosts) defineDifferences(claims claimsTable, domain string) {
	h.DifferentFor = store.NewIndex(claims, "hostsDifferentFor", func(k api.Key, c *Claims, add func(string, omap.Name)) {
		for _, host := range c.Hosts {
			c.concerned(k.Namespace, func(ns string) { add(ns, omap.Name(host)) })
			full, ok := mesh.LongHost(host, domain)
			if !ok || !c.declares() {
				continue
			}
			for _, layer := range c.Layers {
				if layer != "" {
					add(layer, omap.Name(full))
				}
			}
		}
		if c.isService(k) {
			c.hideNames(k, domain, add)
		}
	})
	h.DifferentUnder = hostIndex(claims, "patternsDifferentFor", func(k api.Key, c *Claims, host string, add func(string)) {
		if mesh.IsWildcard(host) && c.Kind != Service {
			c.concerned(k.Namespace, add)
		}
	})
	h.ForLabel = hostIndex(claims, "hostsForLabel", func(_ api.Key, c *Claims, _ string, add func(ForLabel)) {
		for _, layer := range c.Layers {
			for _, label := range c.Labels {
				add(ForLabel{label, layer})
			}
		}
	})
}

// hideNames adds the names of a Service of a Kubernetes cluster that only callers in some namespaces see: ServiceEntries of other
// namespaces do not declare them there.
func (c *Claims) hideNames(k api.Key, domain string, add func(string, omap.Name)) {
	for _, layer := range c.Layers {
		if layer == "" {
			continue
		}
		full := mesh.FullHost(k.Name, k.Namespace, domain)
		for _, name := range append(mesh.ShortNames(full, domain), full) {
			add(layer, omap.Name(name))
		}
	}
}

// concerned adds the namespaces whose callers may see the hosts of the claims differently, for an object in a namespace.
func (c *Claims) concerned(namespace string, add func(string)) {
	if c.public() {
		each(c.Sources, add)
	}
	for _, layer := range c.Layers {
		switch {
		case layer != "":
			add(layer)
		case c.Kind == Policy: // it applies to callers of its own namespace first
			add(namespace)
		}
	}
}

// defineLocalities groups hosts by how endpoints are preferred.
func (h *Hosts) defineLocalities(claims claimsTable) {
	h.ByLocality = hostIndex(claims, "hostsByLocality", func(_ api.Key, c *Claims, _ string, add func(struct{})) {
		if c.ByLocality {
			add(struct{}{})
		}
	})
	h.ByLocalityUnder = hostIndex(claims, "patternsByLocality", func(_ api.Key, c *Claims, host string, add func(struct{})) {
		if c.ByLocality && mesh.IsWildcard(host) && c.Kind == Policy {
			add(struct{}{})
		}
	})
	h.ByCredential = hostIndex(claims, "hostsByCredential", func(_ api.Key, c *Claims, _ string, add func(struct{})) {
		if c.ByCredential {
			add(struct{}{})
		}
	})
	h.ByCredentialUnder = hostIndex(claims, "patternsByCredential", func(_ api.Key, c *Claims, host string, add func(struct{})) {
		if c.ByCredential && mesh.IsWildcard(host) {
			add(struct{}{})
		}
	})
	h.PreferNear = hostIndex(claims, "hostsPreferNear", func(_ api.Key, c *Claims, _ string, add func(mesh.Nearness)) {
		if c.Near != mesh.Anywhere {
			add(c.Near)
		}
	})
}

// defineDelegates groups hosts by the delegates of their routes, and delegates by the callers they have rules for.
func (h *Hosts) defineDelegates(claims claimsTable) {
	h.ByDelegate = hostIndex(claims, "hostsThrough", func(_ api.Key, c *Claims, _ string, add func(DelegateLayer)) {
		for _, layer := range c.Layers {
			for _, delegate := range c.Delegates {
				add(DelegateLayer{delegate, layer})
			}
		}
	})
	h.DelegatesFor = store.NewIndex(claims, "delegatesFor", func(k api.Key, c *Claims, add func(string, api.Key)) {
		if c.isDelegate() {
			each(c.Sources, func(ns string) { add(ns, k) })
		}
	})
	h.DelegatesForLabel = store.NewIndex(claims, "delegatesForLabel", func(k api.Key, c *Claims, add func(mesh.Label, api.Key)) {
		if !c.isDelegate() {
			return
		}
		for _, label := range c.Labels {
			add(label, k)
		}
	})
}
