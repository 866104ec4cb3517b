// Package policies defines the tables of the policies about requests and connections to workloads, and splits these objects into rows: AuthorizationPolicies,
// RequestAuthentications with the key sets that they need, and PeerAuthentications. Rows do not change once written. The package starts no goroutines.
// Only the owner of the store may call the methods that write.
package policies

import (
	"cmp"
	"encoding/binary"
	"net/url"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"
	security "istio.io/api/security/v1beta1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state/provider"
	"github.com/pilotmesh/pilot/internal/state/selected"
)

// Requests are the policies about requests to workloads.
type Requests struct {
	// Authorizations are the AuthorizationPolicies, and Authentications the RequestAuthentications.
	Authorizations  store.Table[api.Key, *Authorization]
	Authentications store.Table[api.Key, *Authentication]
	// Selections are the selectors of the policies of both kinds. ForAll lists the policies of a namespace that select all workloads,
	// and ByLabel the others by the first label of their selector.
	Selections store.Table[api.Key, selected.Workloads]
	ForAll     store.Index[string, api.Key]
	ByLabel    store.Index[selected.LabelIn, selected.Policy]
	// CustomForAll lists the policies of a namespace with the action CUSTOM that may apply to all workloads, and CustomSelecting such
	// policies with a selector.
	CustomForAll, CustomSelecting store.Index[string, api.Key]
	// FetchingForAll and FetchingSelecting list RequestAuthentications likewise whose keys proxies may fetch from services.
	FetchingForAll, FetchingSelecting store.Index[string, api.Key]
	// Providers are the extension providers of the mesh configuration that decide about requests, by name.
	Providers store.Table[string, *meshconfig.MeshConfig_ExtensionProvider]
	// Authorizers lists, under the empty key, the hosts of the services of these providers.
	Authorizers store.Index[struct{}, omap.Name]
	// KeySets are the key sets that were fetched, or could not be fetched, by their source.
	KeySets store.Table[KeySource, KeySet]
	// Bundles are the last good roots of SPIFFE bundles, as PEM, by the address of the bundle.
	Bundles store.Table[string, string]
	// WantedKeys lists, under the empty key, the key sets that must be fetched.
	WantedKeys store.Index[struct{}, WantedKeySet]

	fetcher mesh.KeyFetcher
}

// Authorization is an AuthorizationPolicy.
type Authorization struct {
	Object api.Key
	Spec   *security.AuthorizationPolicy
	// DryRun is true if the policy is only tried out.
	DryRun bool
	Hash   omap.Hash
}

// Authentication is a RequestAuthentication.
type Authentication struct {
	Object api.Key
	Spec   *security.RequestAuthentication
	Hash   omap.Hash
}

// KeySource names a key set that must be fetched: by its address, or by the issuer that publishes the address. Timeout is how long an
// attempt may take; 0 for the default.
type KeySource struct {
	URL, Issuer string
	Timeout     time.Duration
}

// Compare orders by URL, then issuer, then timeout.
func (k KeySource) Compare(o KeySource) int {
	return cmp.Or(cmp.Compare(k.URL, o.URL), cmp.Compare(k.Issuer, o.Issuer), cmp.Compare(k.Timeout, o.Timeout))
}

// AppendTo appends an unambiguous form.
func (k KeySource) AppendTo(b []byte) []byte {
	b = append(binary.BigEndian.AppendUint64(b, uint64(len(k.URL))), k.URL...)
	b = append(binary.BigEndian.AppendUint64(b, uint64(len(k.Issuer))), k.Issuer...)
	return binary.BigEndian.AppendUint64(b, uint64(k.Timeout))
}

// WantedKeySet is a key set that RequestAuthentications of a namespace need.
type WantedKeySet struct {
	KeySource
	Namespace string
}

// Compare orders by key set, then namespace.
func (k WantedKeySet) Compare(o WantedKeySet) int {
	return cmp.Or(k.KeySource.Compare(o.KeySource), cmp.Compare(k.Namespace, o.Namespace))
}

// AppendTo appends an unambiguous form.
func (k WantedKeySet) AppendTo(b []byte) []byte {
	return append(k.KeySource.AppendTo(b), k.Namespace...)
}

// Shown returns where the key set comes from, as it may be logged: without credentials and query.
func (k KeySource) Shown() string {
	from := cmp.Or(k.URL, k.Issuer)
	u, err := url.Parse(from)
	if err != nil || u.Host == "" {
		return strconv.Quote(k.Issuer)
	}
	return u.Scheme + "://" + u.Host + u.Path
}

// FetchedByProxy returns the address from which a proxy may fetch the keys of a rule, and the fetcher if it does not see the service
// there; false if proxies do not fetch the keys.
func (s *Requests) FetchedByProxy(rule *security.JWTRule) (address string, only, ok bool) {
	if s.fetcher == mesh.ControlPlaneFetches || rule.GetJwks() != "" || rule.GetJwksUri() == "" {
		return "", false, false
	}
	return rule.JwksUri, s.fetcher == mesh.ProxyFetches, true
}

// KeySourceOf returns the key set that a rule needs to be fetched; false if it has its keys inline.
func KeySourceOf(rule *security.JWTRule) (KeySource, bool) {
	timeout := rule.GetTimeout().AsDuration()
	switch {
	case rule.GetJwks() != "":
		return KeySource{}, false
	case rule.GetJwksUri() != "":
		return KeySource{URL: rule.JwksUri, Timeout: timeout}, true
	}
	return KeySource{Issuer: rule.GetIssuer(), Timeout: timeout}, true
}

// kindKeySet is the kind of the events about key sets. They have no object.
const kindKeySet = "KeySet"

// fetchedKeys is the result of fetching a key set, as the value of an event.
type fetchedKeys struct {
	Source KeySource
	KeySet KeySet
}

// Kind implements kube.Value.
func (*fetchedKeys) Kind() string { return kindKeySet }

// Same implements kube.Value.
func (f *fetchedKeys) Same(v kube.Value) bool {
	o, ok := v.(*fetchedKeys)
	return ok && *o == *f
}

// KeySetEvent is the event that a key set was fetched, or that an attempt failed. A nil set removes its row.
func KeySetEvent(k KeySource, set *KeySet) source.Event {
	e := source.Event{Key: api.Key{Kind: kindKeySet, Cluster: k.Timeout.String(), Namespace: k.Issuer, Name: k.URL}}
	if set != nil {
		e.Value = &fetchedKeys{k, *set}
	}
	return e
}

// Apply writes the row of a key set or of a bundle. It reports whether the event is about one.
func (s *Requests) Apply(tx *store.Txn, e source.Event) bool {
	return s.applyKeySet(tx, e) || s.applyBundle(tx, e)
}

// applyKeySet writes the row of a key set. It reports whether the event is about one.
func (s *Requests) applyKeySet(tx *store.Txn, e source.Event) bool {
	if e.Key.Kind != kindKeySet {
		return false
	}
	if f, ok := e.Value.(*fetchedKeys); ok {
		s.KeySets.Set(tx, f.Source, f.KeySet)
		return true
	}
	timeout, _ := time.ParseDuration(e.Key.Cluster)
	s.KeySets.Delete(tx, KeySource{URL: e.Key.Name, Issuer: e.Key.Namespace, Timeout: timeout})
	return true
}

// KeySet is the state of a key set that is fetched.
type KeySet struct {
	// Keys is the last good key set, as JSON; empty if none was fetched yet.
	Keys string
	// Failure says why the last attempt to fetch it failed; empty if it did not. It contains no keys.
	Failure string
}

// Define defines the tables in a store. fetcher fetches the keys of tokens that have an address.
func (s *Requests) Define(db *store.DB, fetcher mesh.KeyFetcher) {
	s.fetcher = fetcher
	s.Authorizations = store.NewTable[api.Key](db, "authorizationPolicies", func(a, b *Authorization) bool { return a.Hash == b.Hash })
	s.Authorizations.SetRole("access")
	s.Authentications = store.NewTable[api.Key](db, "requestAuthentications", func(a, b *Authentication) bool { return a.Hash == b.Hash })
	s.Authentications.SetRole("tokens")
	s.Selections = store.NewTable[api.Key](db, "policySelections", func(a, b selected.Workloads) bool { return a == b })
	s.ForAll = store.NewIndex(s.Selections, "policiesForAll", selected.ForAll)
	s.ByLabel = store.NewIndex(s.Selections, "policiesByLabel", selected.ByFirstLabel)
	custom := func(selecting bool) func(api.Key, *Authorization, func(string, api.Key)) {
		return func(k api.Key, p *Authorization, add func(string, api.Key)) {
			if p.Spec.GetAction() == security.AuthorizationPolicy_CUSTOM && selecting == (len(p.Spec.GetSelector().GetMatchLabels()) > 0) {
				add(k.Namespace, k)
			}
		}
	}
	s.CustomForAll = store.NewIndex(s.Authorizations, "customPoliciesForAll", custom(false))
	s.CustomSelecting = store.NewIndex(s.Authorizations, "customPoliciesSelecting", custom(true))
	fetching := func(selecting bool) func(api.Key, *Authentication, func(string, api.Key)) {
		return func(k api.Key, a *Authentication, add func(string, api.Key)) {
			fetched := func(rule *security.JWTRule) bool { _, _, ok := s.FetchedByProxy(rule); return ok }
			if selecting == (len(a.Spec.GetSelector().GetMatchLabels()) > 0) && slices.ContainsFunc(a.Spec.GetJwtRules(), fetched) {
				add(k.Namespace, k)
			}
		}
	}
	s.FetchingForAll = store.NewIndex(s.Authentications, "fetchingForAll", fetching(false))
	s.FetchingSelecting = store.NewIndex(s.Authentications, "fetchingSelecting", fetching(true))
	s.Providers = store.NewTable[string](db, "authorizationProviders", func(a, b *meshconfig.MeshConfig_ExtensionProvider) bool { return proto.Equal(a, b) })
	s.Authorizers = store.NewIndex(s.Providers, "authorizers", func(_ string, p *meshconfig.MeshConfig_ExtensionProvider, add func(struct{}, omap.Name)) {
		if service, _ := provider.AuthorizerService(p); service != "" {
			_, host, _ := provider.SplitService(service)
			add(struct{}{}, omap.Name(host))
		}
	})
	s.KeySets = store.NewTable[KeySource](db, "keySets", func(a, b KeySet) bool { return a == b })
	s.Bundles = store.NewTable[string](db, "bundles", func(a, b string) bool { return a == b })
	s.KeySets.OmitFromJournal()
	s.WantedKeys = store.NewIndex(s.Authentications, "wantedKeys", func(k api.Key, a *Authentication, add func(struct{}, WantedKeySet)) {
		for source := range s.sources(a) {
			add(struct{}{}, WantedKeySet{source, k.Namespace})
		}
	})
}

// sources are the key sets that the control plane must fetch for the rules.
func (s *Requests) sources(a *Authentication) map[KeySource]bool {
	all := map[KeySource]bool{}
	for _, rule := range a.Spec.GetJwtRules() {
		_, only, _ := s.FetchedByProxy(rule)
		if source, ok := KeySourceOf(rule); ok && !only {
			all[source] = true
		}
	}
	return all
}

// SplitAuthorization writes the rows of an AuthorizationPolicy.
func (s *Requests) SplitAuthorization(tx *store.Txn, o *api.Object, spec *security.AuthorizationPolicy) {
	dry, _ := strconv.ParseBool(o.Annotations[api.DryRun])
	s.Authorizations.Set(tx, o.Key, &Authorization{Object: o.Key, Spec: spec, DryRun: dry, Hash: o.Hash})
	s.Selections.Set(tx, o.Key, selected.By(spec.GetSelector().GetMatchLabels(), spec.TargetRef, spec.TargetRefs))
}

// SplitAuthentication writes the rows of a RequestAuthentication.
func (s *Requests) SplitAuthentication(tx *store.Txn, o *api.Object, spec *security.RequestAuthentication) {
	s.Authentications.Set(tx, o.Key, &Authentication{Object: o.Key, Spec: spec, Hash: o.Hash})
	s.Selections.Set(tx, o.Key, selected.By(spec.GetSelector().GetMatchLabels(), spec.TargetRef, spec.TargetRefs))
}

// WriteProviders replaces the extension providers that decide about requests.
func (s *Requests) WriteProviders(tx *store.Txn, m *meshconfig.MeshConfig) {
	named := map[string]bool{}
	for _, p := range m.GetExtensionProviders() {
		if p.GetEnvoyExtAuthzHttp() != nil || p.GetEnvoyExtAuthzGrpc() != nil {
			named[p.Name] = true
			s.Providers.Set(tx, p.Name, p)
		}
	}
	for name := range s.Providers.All() {
		if !named[name] {
			s.Providers.Delete(tx, name)
		}
	}
}
