// Package extension rewrites the configuration of Wasm filters, so that Envoy reads their modules from files of the host: it returns which
// module a filter needs, the filter with the file of its module, and the stand-in filter for use if the module is unavailable.
//
// Invariants: A resource for Envoy has no variable that is meant for the agent, so it has neither pull secrets nor pull policies. A
// resource that is no Wasm filter is not changed. The package has no state and starts no goroutines.
package extension

import (
	"encoding/json"
	"strings"
	"time"

	udpav1 "github.com/cncf/xds/go/udpa/type/v1"
	xdsv3 "github.com/cncf/xds/go/xds/type/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	httpwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	networkwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/wasm/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/internal/agent/wasm"
)

// URL is the type of the configuration of extensions.
const URL = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"

// Environment variables of a module in which a control plane gives the agent the parameters of the fetch.
const (
	agentPrefix = "ISTIO_META_"
	secretVar   = agentPrefix + "WASM_IMAGE_PULL_SECRET"
	policyVar   = agentPrefix + "WASM_IMAGE_PULL_POLICY"
	versionVar  = agentPrefix + "WASM_PLUGIN_RESOURCE_VERSION"
)

// noSum is what control planes of Istio send instead of an empty checksum, which Envoy would refuse.
const noSum = "nil"

const (
	// shortest and longest bound how long the agent waits for a module.
	shortest, longest = time.Second, time.Minute
	typePrefix        = "type.googleapis.com/"
	// denies is the statistics prefix of the stand-in for a network filter.
	denies = "wasm_module_missing."
)

// Filter is the configuration of a Wasm filter that Envoy cannot use as it is.
type Filter struct {
	// Name is the name of the extension.
	Name string
	// Module is the module to fetch; nil if the filter contains its module or names a file.
	Module *wasm.Module
	// Wait is how long the agent waits for the module.
	Wait time.Duration
	// Open says that requests pass if the module is unavailable.
	Open bool

	network bool
	whole   *corev3.TypedExtensionConfig
	config  proto.Message // a Wasm message of HTTP or network filters
	vm      *wasmv3.VmConfig
}

// Read returns the Wasm filter in a resource; nil if there is none, or Envoy can use it as it is.
func Read(resource *anypb.Any) *Filter {
	if resource.GetTypeUrl() != URL {
		return nil
	}
	f := &Filter{whole: &corev3.TypedExtensionConfig{}}
	if proto.Unmarshal(resource.GetValue(), f.whole) != nil {
		return nil // Envoy judges it
	}
	f.Name = f.whole.GetName()
	plugin := f.plugin()
	f.vm = plugin.GetVmConfig()
	if f.vm == nil {
		return nil
	}
	f.Open = plugin.GetFailurePolicy() == wasmv3.FailurePolicy_FAIL_OPEN || plugin.GetFailOpen() //nolint:staticcheck // which Istio sends
	variables := f.vm.GetEnvironmentVariables().GetKeyValues()
	remote := f.vm.GetCode().GetRemote()
	if remote != nil {
		f.want(remote, variables)
	}
	if !f.strip() && remote == nil {
		return nil
	}
	return f
}

// want notes which module the filter wants.
func (f *Filter) want(remote *corev3.RemoteDataSource, variables map[string]string) {
	f.Module = &wasm.Module{URL: remote.GetHttpUri().GetUri(), SHA256: remote.GetSha256(), Version: variables[versionVar]}
	if f.Module.SHA256 == noSum {
		f.Module.SHA256 = ""
	}
	if secret, ok := variables[secretVar]; ok {
		f.Module.Secret = []byte(secret)
	}
	switch variables[policyVar] {
	case "IfNotPresent":
		f.Module.Policy = wasm.IfNotPresent
	case "Always":
		f.Module.Policy = wasm.Always
	}
	f.Wait = wasm.DefaultWait
	if d := remote.GetHttpUri().GetTimeout().AsDuration(); d > 0 {
		f.Wait = min(max(d, shortest), longest)
	}
}

// plugin returns the configuration of the plugin; nil if the extension is no Wasm filter.
func (f *Filter) plugin() *wasmv3.PluginConfig {
	config := f.whole.GetTypedConfig()
	typeURL, text := config.GetTypeUrl(), config.GetValue()
	read := proto.Unmarshal
	if tree, of := untyped(config); tree != nil {
		var err error
		if text, err = json.Marshal(tree.AsMap()); err != nil {
			return nil
		}
		typeURL = of
		read = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal
	}
	switch strings.TrimPrefix(typeURL, typePrefix) {
	case "envoy.extensions.filters.http.wasm.v3.Wasm":
		m := &httpwasmv3.Wasm{}
		if f.config = m; read(text, m) == nil {
			return m.GetConfig()
		}
	case "envoy.extensions.filters.network.wasm.v3.Wasm":
		m := &networkwasmv3.Wasm{}
		if f.config, f.network = m, true; read(text, m) == nil {
			return m.GetConfig()
		}
	}
	return nil
}

// untyped returns a configuration that is a tree, as EnvoyFilters write it, and its type; nil if it is a message.
func untyped(config *anypb.Any) (tree *structpb.Struct, of string) {
	switch strings.TrimPrefix(config.GetTypeUrl(), typePrefix) {
	case "udpa.type.v1.TypedStruct":
		var m udpav1.TypedStruct
		if proto.Unmarshal(config.GetValue(), &m) == nil {
			return m.GetValue(), m.GetTypeUrl()
		}
	case "xds.type.v3.TypedStruct":
		var m xdsv3.TypedStruct
		if proto.Unmarshal(config.GetValue(), &m) == nil {
			return m.GetValue(), m.GetTypeUrl()
		}
	}
	return nil, ""
}

// strip removes the variables for the agent, and reports whether there were any.
func (f *Filter) strip() bool {
	env := f.vm.GetEnvironmentVariables()
	found := false
	for name := range env.GetKeyValues() {
		if strings.HasPrefix(name, agentPrefix) {
			delete(env.GetKeyValues(), name)
			found = true
		}
	}
	if found && len(env.GetKeyValues())+len(env.GetHostEnvKeys()) == 0 {
		f.vm.EnvironmentVariables = nil
	}
	return found
}

// With returns the resource with the module in a file; the path is empty if the filter wants none.
func (f *Filter) With(path string) (*anypb.Any, error) {
	if path != "" {
		f.vm.Code = &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Local{
			Local: &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}},
		}}
	}
	return f.pack(f.config)
}

// StandIn returns a filter that lets everything pass, or nothing, according to the failure policy of the Wasm filter.
func (f *Filter) StandIn() (*anypb.Any, error) {
	var rules *rbacv3.RBAC
	if !f.Open {
		rules = &rbacv3.RBAC{Action: rbacv3.RBAC_ALLOW} // of nothing
	}
	if f.network {
		return f.pack(&networkrbacv3.RBAC{Rules: rules, StatPrefix: denies})
	}
	return f.pack(&httprbacv3.RBAC{Rules: rules})
}

func (f *Filter) pack(config proto.Message) (*anypb.Any, error) {
	packed, err := anypb.New(config)
	if err != nil {
		return nil, err
	}
	return anypb.New(&corev3.TypedExtensionConfig{Name: f.Name, TypedConfig: packed})
}

// File returns the file of the module in a resource that was returned by With; empty if it has no file.
func File(resource *anypb.Any) string {
	f := &Filter{whole: &corev3.TypedExtensionConfig{}}
	if resource.GetTypeUrl() != URL || proto.Unmarshal(resource.GetValue(), f.whole) != nil {
		return ""
	}
	return f.plugin().GetVmConfig().GetCode().GetLocal().GetFilename()
}
