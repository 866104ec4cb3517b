package state

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"
	telemetry "istio.io/api/telemetry/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state/provider"
	"github.com/pilotmesh/pilot/internal/state/selected"
)

// Telemetry says which logs, traces and metrics proxies make, and where they send them.
type Telemetry struct {
	// Objects are the Telemetry objects.
	Objects store.Table[api.Key, *TelemetryObject]
	// Wide lists the Telemetries of a namespace that select all its workloads, oldest first. ByLabel lists the others by the first label
	// of their selector, oldest first.
	Wide    store.Index[string, selected.AgeKey]
	ByLabel store.Index[selected.LabelIn, SelectingTelemetry]
	// Measuring lists, under the empty key, the Telemetries with entries about metrics.
	Measuring store.Index[struct{}, api.Key]
	// Providers are the extension providers of the mesh configuration for logs, traces and metrics, by name in lower case.
	Providers store.Table[string, *meshconfig.MeshConfig_ExtensionProvider]
	// builtIn are the providers of the default mesh configuration, which exist also if there is no mesh configuration, by name. They do not change.
	builtIn map[string]*meshconfig.MeshConfig_ExtensionProvider
	// Backends lists, under the empty key, the hosts of the services that providers send to.
	Backends store.Index[struct{}, omap.Name]
}

// TelemetryObject is a Telemetry.
type TelemetryObject struct {
	Object  api.Key
	Created int64 // in microseconds since 1970
	Spec    *telemetry.Telemetry
	// Selection says which workloads of the namespace it is for.
	Selection selected.Workloads
	Hash      omap.Hash
}

// SelectingTelemetry is a Telemetry with a selector. It contains the labels, so that matching them reads no row.
type SelectingTelemetry struct {
	selected.AgeKey
	Labels mesh.Labels
}

// Compare orders by age, then key, then labels.
func (s SelectingTelemetry) Compare(o SelectingTelemetry) int {
	return cmp.Or(s.AgeKey.Compare(o.AgeKey), mesh.CompareLabels(s.Labels, o.Labels))
}

// AppendTo appends an unambiguous form.
func (s SelectingTelemetry) AppendTo(b []byte) []byte {
	b = s.AgeKey.AppendTo(b)
	for l := range s.Labels.All() {
		b = l.AppendTo(b)
	}
	return b
}

func (t *Tables) defineTelemetry(db *store.DB) {
	s := &t.Telemetry
	s.builtIn = map[string]*meshconfig.MeshConfig_ExtensionProvider{}
	for _, p := range api.DefaultMesh().GetExtensionProviders() {
		s.builtIn[p.GetName()] = p
	}
	s.Objects = store.NewTable[api.Key](db, "telemetries", func(a, b *TelemetryObject) bool { return a.Hash == b.Hash && a.Created == b.Created })
	s.Objects.SetRole("telemetry")
	s.Wide = store.NewIndex(s.Objects, "telemetriesForAll", func(k api.Key, o *TelemetryObject, add func(string, selected.AgeKey)) {
		if !o.Selection.Targeted && o.Selection.Labels.Empty() {
			add(k.Namespace, selected.AgeKey{Created: o.Created, Key: k})
		}
	})
	s.ByLabel = store.NewIndex(s.Objects, "telemetriesByLabel", func(k api.Key, o *TelemetryObject, add func(selected.LabelIn, SelectingTelemetry)) {
		selected.ByFirstLabel(k, o.Selection, func(in selected.LabelIn, p selected.Policy) {
			add(in, SelectingTelemetry{selected.AgeKey{Created: o.Created, Key: k}, p.Labels})
		})
	})
	s.Measuring = store.NewIndex(s.Objects, "measuringTelemetries", func(k api.Key, o *TelemetryObject, add func(struct{}, api.Key)) {
		if len(o.Spec.GetMetrics()) > 0 && (!o.Selection.Targeted || !o.Selection.Gateways.Empty()) {
			add(struct{}{}, k)
		}
	})
	s.Providers = store.NewTable[string](db, "telemetryProviders", func(a, b *meshconfig.MeshConfig_ExtensionProvider) bool { return proto.Equal(a, b) })
	s.Backends = store.NewIndex(s.Providers, "telemetryBackends", func(_ string, p *meshconfig.MeshConfig_ExtensionProvider, add func(struct{}, omap.Name)) {
		if service, _ := provider.TelemetryService(p); service != "" {
			_, host, _ := provider.SplitService(service)
			add(struct{}{}, omap.Name(host))
		}
	})
}

func (t *Tables) splitTelemetry(tx *store.Txn, o *api.Object, spec *telemetry.Telemetry) {
	t.Telemetry.Objects.Set(tx, o.Key, &TelemetryObject{
		Object: o.Key, Created: age(o), Spec: spec, Hash: o.Hash,
		Selection: selected.By(spec.GetSelector().GetMatchLabels(), spec.TargetRef, spec.TargetRefs),
	})
}

// writeTelemetryProviders replaces the extension providers for logs, traces and metrics.
func (t *Tables) writeTelemetryProviders(tx *store.Txn, m *meshconfig.MeshConfig) {
	named := map[string]bool{}
	for _, p := range m.GetExtensionProviders() {
		name := strings.ToLower(p.GetName())
		if _, ok := provider.UseOf(p); ok && !named[name] {
			named[name] = true
			t.Telemetry.Providers.Set(tx, name, t.withVariables(p))
		}
	}
	for name := range t.Telemetry.Providers.All() {
		if !named[name] {
			t.Telemetry.Providers.Delete(tx, name)
		}
	}
}

// withVariables returns a provider whose headers have the values of the variables that they name. A header whose variable does not exist keeps its
// name, and is not sent.
func (t *Tables) withVariables(p *meshconfig.MeshConfig_ExtensionProvider) *meshconfig.MeshConfig_ExtensionProvider {
	named := func(h *meshconfig.MeshConfig_ExtensionProvider_HttpHeader) bool { return h.GetEnvName() != "" }
	if t.options.Variable == nil || !slices.ContainsFunc(provider.Headers(p), named) {
		return p
	}
	p = proto.CloneOf(p)
	for _, h := range provider.Headers(p) {
		if !named(h) {
			continue
		}
		if value, ok := t.options.Variable(h.GetEnvName()); ok {
			h.HeaderValue = &meshconfig.MeshConfig_ExtensionProvider_HttpHeader_Value{Value: value}
		}
	}
	return p
}

// MissingVariable returns a variable that a header of a provider names and the control plane's environment does not have; empty if there is none,
// or if the environment is not known because files are analysed elsewhere.
func (t *Tables) MissingVariable(p *meshconfig.MeshConfig_ExtensionProvider) string {
	if t.options.Variable == nil {
		return ""
	}
	for _, h := range provider.Headers(p) {
		if h.GetEnvName() != "" {
			return h.GetEnvName()
		}
	}
	return ""
}

// ProviderFor returns the provider with a name, in any case, if it serves a use. found says that there is a provider with this name.
func (t *Telemetry) ProviderFor(r store.Reader, name string, use provider.Use) (p *meshconfig.MeshConfig_ExtensionProvider, found bool) {
	name = strings.ToLower(name)
	if p, found = t.Providers.Get(r, name); !found {
		p, found = t.builtIn[name], t.builtIn[name] != nil
	}
	if is, _ := provider.UseOf(p); is != use {
		return nil, found
	}
	return p, found
}
