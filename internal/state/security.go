package state

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
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/source"
)

// Security are the policies about requests to workloads.
type Security struct {
	// Authorizations are the AuthorizationPolicies, and Authentications the RequestAuthentications.
	Authorizations  store.Table[api.Key, *AuthorizationPolicy]
	Authentications store.Table[api.Key, *RequestAuthentication]
	// Selections are the selectors of the policies of both kinds. ForAll lists the policies of a namespace that select all workloads,
	// and ByLabel the others by the first label of their selector.
	Selections store.Table[api.Key, Selection]
	ForAll     store.Index[string, api.Key]
	ByLabel    store.Index[LabelIn, SelectingPolicy]
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
}

// AuthorizationPolicy is an AuthorizationPolicy.
type AuthorizationPolicy struct {
	Object api.Key
	Spec   *security.AuthorizationPolicy
	// DryRun is true if the policy is only tried out.
	DryRun bool
	Hash   omap.Hash
}

// RequestAuthentication is a RequestAuthentication.
type RequestAuthentication struct {
	Object api.Key
	Spec   *security.RequestAuthentication
	Hash   omap.Hash
}

// Selection says which workloads a policy selects.
type Selection struct {
	// Labels are the labels that a workload must have. If there are none, the policy selects all workloads of its namespace, or of the mesh
	// if its namespace is the root namespace.
	Labels mesh.Labels
	// Targeted is true if the policy names targets, so that it selects only the workloads of Gateways: the names of Gateways of the Gateway API, which
	// are in the namespace of the policy.
	Targeted bool
	Gateways intern.List[string]
}

// selectionOf returns which workloads an object selects by labels, or by targets.
func selectionOf(labels map[string]string, one *typev1beta1.PolicyTargetReference, all []*typev1beta1.PolicyTargetReference) Selection {
	s := Selection{Labels: mesh.LabelsOf(labels)}
	if one != nil {
		all = append([]*typev1beta1.PolicyTargetReference{one}, all...)
	}
	var gateways []string
	for _, target := range all {
		s.Targeted = true
		if target.GetKind() == "Gateway" && !slices.Contains(gateways, target.GetName()) {
			gateways = append(gateways, target.GetName())
		}
	}
	s.Gateways = intern.Of(gateways...)
	return s
}

// Selects reports whether an object with this selection, in the namespace from, selects a workload. root is the root namespace.
func (s Selection) Selects(from, root, namespace string, labels mesh.Labels) bool {
	if !s.Targeted {
		return (from == root || from == namespace) && mesh.Contains(labels, s.Labels)
	}
	name, ok := mesh.LabelValue(labels, mesh.GatewayNameLabel)
	return ok && from == namespace && s.Gateways.Has(name)
}

// SelectingPolicy is an object that selects workloads by labels. It contains the labels, so that matching them reads no row.
type SelectingPolicy struct {
	Key    api.Key
	Labels mesh.Labels
	// Targeted is true if the object names a Gateway as target, which has the label GatewayNameLabel. It selects nothing in other namespaces, even
	// from the root namespace.
	Targeted bool
}

// Compare orders by key, then labels, then objects with a selector before ones with targets.
func (p SelectingPolicy) Compare(o SelectingPolicy) int {
	switch c := cmp.Or(p.Key.Compare(o.Key), mesh.CompareLabels(p.Labels, o.Labels)); {
	case c != 0 || p.Targeted == o.Targeted:
		return c
	case p.Targeted:
		return 1
	}
	return -1
}

// Selects reports whether the object selects a workload of a namespace.
func (p SelectingPolicy) Selects(namespace string, labels mesh.Labels) bool {
	return (p.Key.Namespace == namespace || !p.Targeted) && mesh.Contains(labels, p.Labels)
}

// AppendTo appends an unambiguous form.
func (p SelectingPolicy) AppendTo(b []byte) []byte {
	b = p.Key.AppendTo(b)
	for l := range p.Labels.All() {
		b = l.AppendTo(b)
	}
	return strconv.AppendBool(b, p.Targeted)
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
func (t *Tables) FetchedByProxy(rule *security.JWTRule) (address string, only, ok bool) {
	if t.options.KeyFetcher == mesh.ControlPlaneFetches || rule.GetJwks() != "" || rule.GetJwksUri() == "" {
		return "", false, false
	}
	return rule.JwksUri, t.options.KeyFetcher == mesh.ProxyFetches, true
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

// applyKeySet writes the row of a key set. It reports whether the event is about one.
func (t *Tables) applyKeySet(tx *store.Txn, e source.Event) bool {
	if e.Key.Kind != kindKeySet {
		return false
	}
	if f, ok := e.Value.(*fetchedKeys); ok {
		t.Security.KeySets.Set(tx, f.Source, f.KeySet)
		return true
	}
	timeout, _ := time.ParseDuration(e.Key.Cluster)
	t.Security.KeySets.Delete(tx, KeySource{URL: e.Key.Name, Issuer: e.Key.Namespace, Timeout: timeout})
	return true
}

// KeySet is the state of a key set that is fetched.
type KeySet struct {
	// Keys is the last good key set, as JSON; empty if none was fetched yet.
	Keys string
	// Failure says why the last attempt to fetch it failed; empty if it did not. It contains no keys.
	Failure string
}

// forAll lists the objects of a namespace that select all workloads.
func forAll(k api.Key, sel Selection, add func(string, api.Key)) {
	if !sel.Targeted && sel.Labels.Empty() {
		add(k.Namespace, k)
	}
}

// byFirstLabel lists the objects that select workloads by labels, by the first one. The workloads of a Gateway have a label with its name.
func byFirstLabel(k api.Key, sel Selection, add func(LabelIn, SelectingPolicy)) {
	for name := range sel.Gateways.All() {
		l := mesh.Label{Name: mesh.GatewayNameLabel, Value: name}
		add(LabelIn{k.Namespace, l}, SelectingPolicy{k, intern.Of(l), true})
	}
	if sel.Targeted {
		return
	}
	for first := range sel.Labels.All() {
		add(LabelIn{k.Namespace, first}, SelectingPolicy{Key: k, Labels: sel.Labels})
		break
	}
}

func (t *Tables) defineSecurity(db *store.DB) {
	s := &t.Security
	s.Authorizations = store.NewTable[api.Key](db, "authorizationPolicies", func(a, b *AuthorizationPolicy) bool { return a.Hash == b.Hash })
	s.Authentications = store.NewTable[api.Key](db, "requestAuthentications", func(a, b *RequestAuthentication) bool { return a.Hash == b.Hash })
	s.Selections = store.NewTable[api.Key](db, "policySelections", same[Selection])
	s.ForAll = store.NewIndex(s.Selections, "policiesForAll", forAll)
	s.ByLabel = store.NewIndex(s.Selections, "policiesByLabel", byFirstLabel)
	custom := func(selecting bool) func(api.Key, *AuthorizationPolicy, func(string, api.Key)) {
		return func(k api.Key, p *AuthorizationPolicy, add func(string, api.Key)) {
			if p.Spec.GetAction() == security.AuthorizationPolicy_CUSTOM && selecting == (len(p.Spec.GetSelector().GetMatchLabels()) > 0) {
				add(k.Namespace, k)
			}
		}
	}
	s.CustomForAll = store.NewIndex(s.Authorizations, "customPoliciesForAll", custom(false))
	s.CustomSelecting = store.NewIndex(s.Authorizations, "customPoliciesSelecting", custom(true))
	fetching := func(selecting bool) func(api.Key, *RequestAuthentication, func(string, api.Key)) {
		return func(k api.Key, a *RequestAuthentication, add func(string, api.Key)) {
			fetched := func(rule *security.JWTRule) bool { _, _, ok := t.FetchedByProxy(rule); return ok }
			if selecting == (len(a.Spec.GetSelector().GetMatchLabels()) > 0) && slices.ContainsFunc(a.Spec.GetJwtRules(), fetched) {
				add(k.Namespace, k)
			}
		}
	}
	s.FetchingForAll = store.NewIndex(s.Authentications, "fetchingForAll", fetching(false))
	s.FetchingSelecting = store.NewIndex(s.Authentications, "fetchingSelecting", fetching(true))
	s.Providers = store.NewTable[string](db, "authorizationProviders", func(a, b *meshconfig.MeshConfig_ExtensionProvider) bool { return proto.Equal(a, b) })
	s.Authorizers = store.NewIndex(s.Providers, "authorizers", func(_ string, p *meshconfig.MeshConfig_ExtensionProvider, add func(struct{}, omap.Name)) {
		if service, _ := AuthorizerService(p); service != "" {
			_, host, _ := SplitService(service)
			add(struct{}{}, omap.Name(host))
		}
	})
	s.KeySets = store.NewTable[KeySource](db, "keySets", same[KeySet])
	s.Bundles = store.NewTable[string](db, "bundles", same[string])
	s.KeySets.OmitFromJournal()
	s.WantedKeys = store.NewIndex(s.Authentications, "wantedKeys", func(k api.Key, a *RequestAuthentication, add func(struct{}, WantedKeySet)) {
		for source := range t.sources(a) {
			add(struct{}{}, WantedKeySet{source, k.Namespace})
		}
	})
}

// sources are the key sets that the control plane must fetch for the rules.
func (t *Tables) sources(a *RequestAuthentication) map[KeySource]bool {
	all := map[KeySource]bool{}
	for _, rule := range a.Spec.GetJwtRules() {
		_, only, _ := t.FetchedByProxy(rule)
		if source, ok := KeySourceOf(rule); ok && !only {
			all[source] = true
		}
	}
	return all
}

func (t *Tables) splitAuthorizationPolicy(tx *store.Txn, o *api.Object, spec *security.AuthorizationPolicy) {
	dry, _ := strconv.ParseBool(o.Annotations[api.DryRun])
	t.Security.Authorizations.Set(tx, o.Key, &AuthorizationPolicy{Object: o.Key, Spec: spec, DryRun: dry, Hash: o.Hash})
	t.Security.Selections.Set(tx, o.Key, selectionOf(spec.GetSelector().GetMatchLabels(), spec.TargetRef, spec.TargetRefs))
}

func (t *Tables) splitRequestAuthentication(tx *store.Txn, o *api.Object, spec *security.RequestAuthentication) {
	t.Security.Authentications.Set(tx, o.Key, &RequestAuthentication{Object: o.Key, Spec: spec, Hash: o.Hash})
	t.Security.Selections.Set(tx, o.Key, selectionOf(spec.GetSelector().GetMatchLabels(), spec.TargetRef, spec.TargetRefs))
}

// AuthorizerService returns the service of a provider that decides about requests, as it is written: host, or namespace/host.
func AuthorizerService(p *meshconfig.MeshConfig_ExtensionProvider) (service string, port uint32) {
	if o := p.GetEnvoyExtAuthzGrpc(); o != nil {
		return o.Service, o.Port
	}
	return p.GetEnvoyExtAuthzHttp().GetService(), p.GetEnvoyExtAuthzHttp().GetPort()
}

// writeProviders replaces the extension providers that decide about requests.
func (t *Tables) writeProviders(tx *store.Txn, m *meshconfig.MeshConfig) {
	named := map[string]bool{}
	for _, p := range m.GetExtensionProviders() {
		if p.GetEnvoyExtAuthzHttp() != nil || p.GetEnvoyExtAuthzGrpc() != nil {
			named[p.Name] = true
			t.Security.Providers.Set(tx, p.Name, p)
		}
	}
	for name := range t.Security.Providers.All() {
		if !named[name] {
			t.Security.Providers.Delete(tx, name)
		}
	}
}
