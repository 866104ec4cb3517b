package state

import (
	"bytes"
	"cmp"
	"slices"

	extensions "istio.io/api/extensions/v1alpha1"
	networking "istio.io/api/networking/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/state/selected"
)

// Extensions are the filters that users add to proxies: WasmPlugins and TrafficExtensions.
type Extensions struct {
	// Places have the place of the filter of an extension in proxies, and Contents its code and settings. So an edit of the code changes no listener.
	Places   store.Table[api.Key, *ExtensionPlace]
	Contents store.Table[api.Key, *ExtensionContent]
	// Selections are the workloads that extensions select. ForAll lists the extensions of a namespace that select all workloads, and ByLabel
	// the others by the first label of their selector.
	Selections store.Table[api.Key, selected.Workloads]
	ForAll     store.Index[string, api.Key]
	ByLabel    store.Index[selected.LabelIn, selected.Policy]
	// PullSecrets lists the Secrets with credentials of registries that extensions name, by namespace and name, under the empty key.
	PullSecrets store.Index[struct{}, api.Key]
	// ProxyConfigs are the ProxyConfig objects, which count when a proxy is injected.
	ProxyConfigs store.Table[api.Key, *ProxyConfig]
	// ProxyConfigVersions lists the ProxyConfigs under the empty key, the oldest first.
	ProxyConfigVersions store.Index[struct{}, ProxyConfigVersion]
}

// ExtensionPlace says in which chains of filters the filter of an extension is, and where in these.
type ExtensionPlace struct {
	Phase    extensions.TrafficExtension_ExecutionPhase
	Priority int32
	// Network is true if the filter is for connections, and false if it is for requests. Lua is true if it is code in Lua.
	Network, Lua bool
	// Traffic is the traffic that it is for; empty for all.
	Traffic []ExtensionTraffic
}

// ExtensionTraffic is traffic that an extension is for.
type ExtensionTraffic struct {
	// Client and Server are the sides of connections.
	Client, Server bool
	// Ports are the ports of the listeners; empty for all.
	Ports []uint32
}

func (p *ExtensionPlace) equal(o *ExtensionPlace) bool {
	return p.Phase == o.Phase && p.Priority == o.Priority && p.Network == o.Network && p.Lua == o.Lua &&
		slices.EqualFunc(p.Traffic, o.Traffic, func(a, b ExtensionTraffic) bool {
			return a.Client == b.Client && a.Server == b.Server && slices.Equal(a.Ports, b.Ports)
		})
}

// ExtensionContent is what the filter of an extension does. One of the two is set.
type ExtensionContent struct {
	Wasm *extensions.WasmConfig
	Lua  *extensions.LuaConfig
	// Hash identifies the content.
	Hash omap.Hash
}

// ProxyConfig is a ProxyConfig object.
type ProxyConfig struct {
	Created int64 // in microseconds since 1970
	Spec    *networking.ProxyConfig
	Hash    omap.Hash
}

// ProxyConfigVersion is a version of a ProxyConfig object. It changes whenever the object does.
type ProxyConfigVersion struct {
	selected.AgeKey
	Hash omap.Hash
}

// Compare orders by age, then by key.
func (v ProxyConfigVersion) Compare(o ProxyConfigVersion) int {
	return cmp.Or(v.AgeKey.Compare(o.AgeKey), bytes.Compare(v.Hash[:], o.Hash[:]))
}

// AppendTo appends an unambiguous form.
func (v ProxyConfigVersion) AppendTo(b []byte) []byte {
	return append(v.AgeKey.AppendTo(b), v.Hash[:]...)
}

func (t *Tables) defineExtensions(db *store.DB) {
	e := &t.Extensions
	e.Places = store.NewTable[api.Key](db, "extensionPlaces", (*ExtensionPlace).equal)
	e.Places.SetRole("extension")
	e.Contents = store.NewTable[api.Key](db, "extensionContents", func(a, b *ExtensionContent) bool { return a.Hash == b.Hash })
	e.Contents.SetRole("extension")
	e.PullSecrets = store.NewIndex(e.Contents, "pullSecrets", func(k api.Key, c *ExtensionContent, add func(struct{}, api.Key)) {
		if name := c.Wasm.GetImagePullSecret(); name != "" {
			add(struct{}{}, api.Key{Namespace: k.Namespace, Name: name})
		}
	})
	e.Selections = store.NewTable[api.Key](db, "extensionSelections", same[selected.Workloads])
	e.ForAll = store.NewIndex(e.Selections, "extensionsForAll", selected.ForAll)
	e.ByLabel = store.NewIndex(e.Selections, "extensionsByLabel", selected.ByFirstLabel)
	e.ProxyConfigs = store.NewTable[api.Key](db, "proxyConfigs", func(a, b *ProxyConfig) bool { return a.Hash == b.Hash && a.Created == b.Created })
	e.ProxyConfigs.SetRole("settings of proxies")
	e.ProxyConfigVersions = store.NewIndex(e.ProxyConfigs, "proxyConfigVersions", func(k api.Key, p *ProxyConfig, add func(struct{}, ProxyConfigVersion)) {
		add(struct{}{}, ProxyConfigVersion{selected.AgeKey{Created: p.Created, Key: k}, p.Hash})
	})
}

func (t *Tables) splitTrafficExtension(tx *store.Txn, o *api.Object, spec *extensions.TrafficExtension) {
	place := &ExtensionPlace{
		Phase: spec.GetPhase(), Priority: spec.GetPriority().GetValue(), Lua: spec.GetLua() != nil,
		Network: spec.GetWasm().GetType() == extensions.PluginType_NETWORK, Traffic: extensionTraffic(spec.GetMatch()),
	}
	t.writeExtension(tx, o, place, &ExtensionContent{Wasm: spec.GetWasm(), Lua: spec.GetLua(), Hash: o.Hash},
		selected.By(spec.GetSelector().GetMatchLabels(), nil, spec.GetTargetRefs()))
}

func (t *Tables) splitWasmPlugin(tx *store.Txn, o *api.Object, spec *extensions.WasmPlugin) {
	place := &ExtensionPlace{
		Phase: extensions.TrafficExtension_ExecutionPhase(spec.GetPhase()), Priority: spec.GetPriority().GetValue(),
		Network: spec.GetType() == extensions.PluginType_NETWORK, Traffic: extensionTraffic(spec.GetMatch()),
	}
	content := &ExtensionContent{Hash: o.Hash, Wasm: &extensions.WasmConfig{
		Url: spec.GetUrl(), Sha256: spec.GetSha256(), ImagePullPolicy: spec.GetImagePullPolicy(), ImagePullSecret: spec.GetImagePullSecret(),
		PluginConfig: spec.GetPluginConfig(), PluginName: spec.GetPluginName(), FailStrategy: spec.GetFailStrategy(), VmConfig: spec.GetVmConfig(), Type: spec.GetType(),
	}}
	t.writeExtension(tx, o, place, content, selected.By(spec.GetSelector().GetMatchLabels(), spec.GetTargetRef(), spec.GetTargetRefs()))
}

func (t *Tables) writeExtension(tx *store.Txn, o *api.Object, place *ExtensionPlace, content *ExtensionContent, to selected.Workloads) {
	t.Extensions.Places.Set(tx, o.Key, place)
	t.Extensions.Contents.Set(tx, o.Key, content)
	t.Extensions.Selections.Set(tx, o.Key, to)
}

func extensionTraffic[M interface {
	GetMode() typev1beta1.WorkloadMode
	GetPorts() []*typev1beta1.PortSelector
}](list []M) (all []ExtensionTraffic) {
	for _, m := range list {
		out := ExtensionTraffic{Client: m.GetMode() != typev1beta1.WorkloadMode_SERVER, Server: m.GetMode() != typev1beta1.WorkloadMode_CLIENT}
		for _, p := range m.GetPorts() {
			out.Ports = append(out.Ports, p.GetNumber())
		}
		all = append(all, out)
	}
	return all
}

func (t *Tables) splitProxyConfig(tx *store.Txn, o *api.Object, spec *networking.ProxyConfig) {
	t.Extensions.ProxyConfigs.Set(tx, o.Key, &ProxyConfig{age(o), spec, o.Hash})
}
