// Package extension translates WasmPlugins and TrafficExtensions into filters of listeners, and into the configuration that Envoys fetch for
// these by name.
//
// It owns the names of the filters, their order, and their configuration. Which extensions apply to a class is decided by the package of the
// same name among the views. Agents fetch modules: Envoy gets a file.
//
// Invariants: a filter in a listener has nothing but its name and its place, so that an edit of what an extension does changes no listener. A
// listener waits for the configuration of its filters: an extension may decide about access. The package starts no goroutines.
package extension

import (
	"encoding/hex"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	luav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	httpwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	networkwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/wasm/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	extensions "istio.io/api/extensions/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state"
	view "github.com/pilotmesh/pilot/internal/view/extension"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Parts of the names of filters. A WasmPlugin has the name that Istio gives to the TrafficExtension with its content.
const (
	prefix     = "extensions.istio.io/trafficextension/"
	pluginMark = "~istio-translated-wasmplugin"
)

// filterName is the name of the filter of an extension.
func filterName(k api.Key) string {
	name := prefix + k.Namespace + "." + k.Name
	if k.Kind == api.KindWasmPlugin {
		name += pluginMark
	}
	return name
}

// keyOf returns the extension whose filter has a name; false if it is the name of no extension.
func keyOf(name string) (k api.Key, ok bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	namespace, of, cut := strings.Cut(rest, ".")
	if !ok || !cut {
		return k, false
	}
	k = api.Key{Kind: api.KindTrafficExtension, Namespace: namespace, Name: of}
	if plugin, marked := strings.CutSuffix(of, pluginMark); marked {
		k.Kind, k.Name = api.KindWasmPlugin, plugin
	}
	return k, true
}

// Key names the filters of some proxies on one side of connections.
type Key struct {
	Set view.Set
	// Server is true for connections to the workload.
	Server bool
}

// Filters are the filters of extensions on one side of connections.
type Filters struct {
	list   []view.Placed
	server bool
}

// Queries are the extensions of proxies.
type Queries struct {
	tables *state.Tables
	// filters are the filters of proxies. configs are the configuration of the filters, one cell for each extension.
	filters query.Query[Key, Filters]
	configs query.Query[api.Key, *resource.Resource]
	// pulled is the same for an extension with a pull secret, whose content is part of the answer.
	pulled query.Query[api.Key, resource.Answer]
}

// PullSecrets returns the credentials of registries in a Secret. Without any, why says the reason.
type PullSecrets func(r *query.Reader, namespace, name string) (config []byte, why resource.Answer)

// Define adds the queries to a graph.
func Define(g *query.Graph, t *state.Tables, secrets PullSecrets) *Queries {
	q := &Queries{tables: t}
	same := func(a, b Filters) bool { return a.server == b.server && slices.Equal(a.list, b.list) }
	q.filters = query.Define(g, "extensions", same, func(r *query.Reader, k Key) (Filters, bool) {
		f := Filters{server: k.Server}
		for _, p := range k.Set.Ordered(t, r) {
			if len(p.Place.Traffic) == 0 || slices.ContainsFunc(p.Place.Traffic, f.on) {
				f.list = append(f.list, p)
			}
		}
		return f, true
	})
	q.configs = query.Define(g, "extension", func(a, b *resource.Resource) bool { return a.ContentHash() == b.ContentHash() },
		func(r *query.Reader, k api.Key) (*resource.Resource, bool) {
			content, ok := t.Extensions.Contents.Get(r, k)
			if !ok {
				return nil, false
			}
			return resource.New(resource.Extension, filterName(k), configOf(k, content, nil)), true
		})
	q.pulled = query.Guard(g, "extension with a pull secret", resource.Answer.Equal, resource.Answer{Denied: true},
		func(r *query.Reader, k api.Key) (resource.Answer, bool) {
			content, ok := t.Extensions.Contents.Get(r, k)
			if !ok {
				return resource.Answer{}, false
			}
			credentials, why := secrets(r, k.Namespace, content.Wasm.GetImagePullSecret())
			if credentials == nil {
				return why, true
			}
			return resource.Answer{Resource: resource.New(resource.Extension, filterName(k), configOf(k, content, credentials))}, true
		})
	return q
}

// KeyOf returns the key of a class.
func (q *Queries) KeyOf(r *query.Reader, c proxy.Class, server bool) Key {
	return Key{view.SetOf(q.tables, r, c), server}
}

// Filters returns the filters of proxies.
func (q *Queries) Filters(r *query.Reader, k Key) Filters {
	f, _ := q.filters.Get(r, k)
	return f
}

// Find answers a proxy that asks for the configuration of a filter; ok is false if the name is not one of this package. A proxy whose identity is
// not known gets no pull secret.
func (q *Queries) Find(r *query.Reader, c proxy.Class, name string, identified bool) (a resource.Answer, ok bool) {
	k, ok := keyOf(name)
	if !ok {
		return a, false
	}
	if !view.Applies(q.tables, r, c, k) {
		return resource.Answer{Reason: "the extension does not exist, or does not apply to the proxy"}, true
	}
	content, exists := q.tables.Extensions.Contents.Get(r, k)
	switch {
	case !exists || content.Wasm.GetImagePullSecret() == "":
		found, _ := q.configs.Get(r, k)
		return resource.Answer{Resource: found}, true
	case !identified:
		return resource.Answer{Denied: true, Reason: "the extension has a pull secret, and the proxy has not shown who it is; " +
			"connect it to the control plane over TLS, with a certificate of the mesh or a token"}, true
	}
	a, _ = q.pulled.Get(r, k)
	return a, true
}

// Phase is a place among the filters.
type Phase uint8

// The phases, in the order of their filters: before tokens are verified, before policies decide, and after that.
const (
	Authentication Phase = iota
	Authorization
	Rest
)

// at yields the extensions of a phase for the listener at a port. In the last phase, the ones for statistics come first.
func (f Filters) at(phase Phase, port uint32, network bool) (list []api.Key) {
	of := map[Phase][]extensions.TrafficExtension_ExecutionPhase{
		Authentication: {extensions.TrafficExtension_AUTHN}, Authorization: {extensions.TrafficExtension_AUTHZ},
		Rest: {extensions.TrafficExtension_STATS, extensions.TrafficExtension_UNSPECIFIED},
	}[phase]
	for _, p := range of {
		for _, e := range f.list {
			if e.Place.Phase == p && e.Place.Network == network && f.include(e.Place, port) {
				list = append(list, e.Key)
			}
		}
	}
	return list
}

// on reports whether traffic is on the side of the filters.
func (f Filters) on(t state.ExtensionTraffic) bool {
	return f.server && t.Server || !f.server && t.Client
}

// include reports whether an extension is for a port: one of its matches must have both the side and the port. A match without ports is for all.
func (f Filters) include(p *state.ExtensionPlace, port uint32) bool {
	return len(p.Traffic) == 0 || slices.ContainsFunc(p.Traffic, func(t state.ExtensionTraffic) bool {
		return f.on(t) && (len(t.Ports) == 0 || port != 0 && slices.Contains(t.Ports, port))
	})
}

// HTTP are the filters for requests in a phase, for the listener at a port. The port is 0 where it is not known.
func (f Filters) HTTP(phase Phase, port uint32) (list []*hcmv3.HttpFilter) {
	for _, k := range f.at(phase, port, false) {
		list = append(list, &hcmv3.HttpFilter{Name: filterName(k), ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: fetched(
			"envoy.extensions.filters.http.wasm.v3.Wasm", "envoy.extensions.filters.http.rbac.v3.RBAC", "envoy.extensions.filters.http.lua.v3.Lua")}})
	}
	return list
}

// Network are the filters for connections in a phase, for the listener at a port. The port is 0 where it is not known.
func (f Filters) Network(phase Phase, port uint32) (list []*listenerv3.Filter) {
	for _, k := range f.at(phase, port, true) {
		list = append(list, &listenerv3.Filter{Name: filterName(k), ConfigType: &listenerv3.Filter_ConfigDiscovery{ConfigDiscovery: fetched(
			"envoy.extensions.filters.network.wasm.v3.Wasm", "envoy.extensions.filters.network.rbac.v3.RBAC")}})
	}
	return list
}

// fetched is where Envoy fetches the configuration of a filter. It waits without end: the filter may decide about access. Agents put a filter
// of RBAC in the place of a module that is missing.
func fetched(types ...string) *corev3.ExtensionConfigSource {
	for i := range types {
		types[i] = "type.googleapis.com/" + types[i]
	}
	return &corev3.ExtensionConfigSource{TypeUrls: types, ConfigSource: &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}, ResourceApiVersion: corev3.ApiVersion_V3,
		InitialFetchTimeout: envoy.Duration(0),
	}}
}

// configOf is the configuration of the filter of an extension. credentials are for the registry of its image; nil for none.
func configOf(k api.Key, c *state.ExtensionContent, credentials []byte) *corev3.TypedExtensionConfig {
	var config proto.Message
	switch {
	case c.Lua != nil:
		config = &luav3.Lua{DefaultSourceCode: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: c.Lua.GetInlineCode()}}}
	case c.Wasm.GetType() == extensions.PluginType_NETWORK:
		config = &networkwasmv3.Wasm{Config: pluginOf(k, c, credentials)}
	default:
		config = &httpwasmv3.Wasm{Config: pluginOf(k, c, credentials)}
	}
	return &corev3.TypedExtensionConfig{Name: filterName(k), TypedConfig: envoy.Pack(config)}
}

// pluginOf is the configuration of a module of WebAssembly.
func pluginOf(k api.Key, c *state.ExtensionContent, credentials []byte) *wasmv3.PluginConfig {
	p := &wasmv3.PluginConfig{
		Name: k.Namespace + "." + k.Name, RootId: c.Wasm.GetPluginName(),
		FailurePolicy: map[extensions.FailStrategy]wasmv3.FailurePolicy{
			extensions.FailStrategy_FAIL_OPEN: wasmv3.FailurePolicy_FAIL_OPEN, extensions.FailStrategy_FAIL_RELOAD: wasmv3.FailurePolicy_FAIL_RELOAD,
		}[c.Wasm.GetFailStrategy()],
		Vm: &wasmv3.PluginConfig_VmConfig{VmConfig: &wasmv3.VmConfig{
			Runtime: "envoy.wasm.runtime.v8", Code: codeOf(c.Wasm), EnvironmentVariables: environmentOf(c, credentials),
		}},
	}
	if p.FailurePolicy == wasmv3.FailurePolicy_UNSPECIFIED {
		p.FailurePolicy = wasmv3.FailurePolicy_FAIL_CLOSED
	}
	if len(c.Wasm.GetPluginConfig().GetFields()) > 0 {
		p.Configuration = envoy.Pack(wrapperspb.String(textOf(c.Wasm.GetPluginConfig())))
	}
	return p
}

// textOf is a tree as JSON. protojson puts blanks at random, so the text is made from the sorted tree.
func textOf(tree *structpb.Struct) string {
	names := slices.Sorted(maps.Keys(tree.GetFields()))
	var b strings.Builder
	b.WriteByte('{')
	for i, name := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(valueText(structpb.NewStringValue(name)) + ":" + valueText(tree.GetFields()[name]))
	}
	b.WriteByte('}')
	return b.String()
}

func valueText(v *structpb.Value) string {
	switch v := v.GetKind().(type) {
	case *structpb.Value_StructValue:
		return textOf(v.StructValue)
	case *structpb.Value_ListValue:
		parts := make([]string, 0, len(v.ListValue.GetValues()))
		for _, item := range v.ListValue.GetValues() {
			parts = append(parts, valueText(item))
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	text, err := protojson.Marshal(v)
	if err != nil {
		return "null" // a number that JSON does not have
	}
	return string(text)
}

// fetchTime is how long an agent waits for a module before it puts the stand-in in its place.
const fetchTime = 30 * time.Second

// noSum is written for an empty checksum: Envoy would refuse an empty one, and agents know this one.
const noSum = "nil"

// codeOf says where the module is: in a file of the host, or at an address that the agent of the proxy fetches. Without a scheme, the address
// names an image.
func codeOf(w *extensions.WasmConfig) *corev3.AsyncDataSource {
	if path, ok := strings.CutPrefix(w.GetUrl(), "file://"); ok {
		return &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Local{
			Local: &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}},
		}}
	}
	at := w.GetUrl()
	if u, err := url.Parse(at); err != nil || !strings.Contains(at, "://") || u.Scheme == "" {
		at = "oci://" + at
	}
	sum := w.GetSha256()
	if sum == "" {
		sum = noSum
	}
	return &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Remote{Remote: &corev3.RemoteDataSource{
		HttpUri: &corev3.HttpUri{Uri: at, Timeout: envoy.Duration(fetchTime), HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: "_"}}, Sha256: sum,
	}}}
}

// Variables for agents, which remove them before Envoy gets the configuration. agentPrefix begins the names of all such variables.
const (
	agentPrefix    = "ISTIO_META_"
	policyVariable = agentPrefix + "WASM_IMAGE_PULL_POLICY"
	secretVariable = agentPrefix + "WASM_IMAGE_PULL_SECRET"
	// versionVariable changes with the object, so that an agent fetches an image with the policy Always once per version.
	versionVariable = agentPrefix + "WASM_PLUGIN_RESOURCE_VERSION"
)

// environmentOf are the variables of a module.
func environmentOf(c *state.ExtensionContent, credentials []byte) *wasmv3.EnvironmentVariables {
	e := &wasmv3.EnvironmentVariables{KeyValues: map[string]string{}}
	for _, v := range c.Wasm.GetVmConfig().GetEnv() {
		switch {
		case strings.HasPrefix(v.GetName(), agentPrefix): // agents would take it for their own
		case v.GetValueFrom() == extensions.EnvValueSource_HOST:
			e.HostEnvKeys = append(e.HostEnvKeys, v.GetName())
		default:
			e.KeyValues[v.GetName()] = v.GetValue()
		}
	}
	if policy := c.Wasm.GetImagePullPolicy(); policy != extensions.PullPolicy_UNSPECIFIED_POLICY {
		e.KeyValues[policyVariable] = policy.String()
	}
	if credentials != nil {
		e.KeyValues[secretVariable] = string(credentials)
	}
	e.KeyValues[versionVariable] = hex.EncodeToString(c.Hash[:8])
	return e
}
