// Package envoy checks what users patch in messages of Envoy's API: whether Envoy could read it.
//
// The package is pure. It knows the names of all messages of the API (types.txt), and the fields of the messages that the program
// links. It accepts a message whose fields it does not know.
package envoy

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/structpb"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	cors "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	manager "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	// Extensions that are patched most.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/compression/gzip/compressor/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/buffer/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/compressor/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_stats/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/local_ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
)

// Check checks the value of a patch. object is the value of the field applyTo. refused is why Envoy cannot read the value; remark names
// a part that Envoy would ignore or refuse for another reason. Both are empty for a value that is right.
func Check(object string, value *structpb.Struct) (refused, remark string) {
	m := messageOf(object)
	if m == nil {
		return "", ""
	}
	text, err := value.MarshalJSON()
	if err != nil {
		return fmt.Sprintf("cannot be written as JSON: %v", err), ""
	}
	err = protojson.UnmarshalOptions{DiscardUnknown: true, Resolver: resolver{}}.Unmarshal(text, m)
	switch reason := reasonOf(err); {
	case err == nil:
	case strings.Contains(reason, "is already set"):
		return "", "sets two alternatives of one choice, and only one counts: " + reason
	default:
		return fmt.Sprintf("is no %s of Envoy's API: %s", m.ProtoReflect().Descriptor().Name(), reason), ""
	}
	linked := true
	for _, name := range typesIn(value, nil) {
		if isForeign(name) {
			advice, _ := Foreign(name)
			return "", fmt.Sprintf("%s is an extension of Istio's own proxy, and an unmodified Envoy does not have it; %s", name, advice)
		}
		_, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
		linked = linked && err == nil
	}
	if linked {
		if refused, remark = strictly(m, text); refused != "" || remark != "" {
			return refused, remark
		}
	}
	if _, named := value.GetFields()["name"]; named && isExtension(object) && value.GetFields()["typed_config"] == nil &&
		value.GetFields()["typedConfig"] == nil && value.GetFields()["config_discovery"] == nil && value.GetFields()["configDiscovery"] == nil {
		return "", "names an extension and does not configure it; add typed_config"
	}
	return "", ""
}

// strictly reads a value whose messages are all linked, and refuses fields that Envoy does not know.
func strictly(m proto.Message, text []byte) (refused, remark string) {
	proto.Reset(m)
	err := protojson.UnmarshalOptions{Resolver: resolver{}}.Unmarshal(text, m)
	reason := reasonOf(err)
	switch {
	case err == nil:
		return "", ""
	case strings.HasPrefix(reason, "invalid value for enum"):
		return fmt.Sprintf("is no %s of Envoy's API: %s", m.ProtoReflect().Descriptor().Name(), reason), ""
	}
	return "", "Envoy refuses it: " + reason
}

// isExtension reports whether a patch is about an extension by itself.
func isExtension(object string) bool {
	switch object {
	case "NETWORK_FILTER", "HTTP_FILTER", "LISTENER_FILTER", "EXTENSION_CONFIG":
		return true
	}
	return false
}

// messageOf returns a new message of the type that a patch applies to; nil if it is not known.
func messageOf(object string) proto.Message {
	switch object {
	case "LISTENER":
		return new(listenerv3.Listener)
	case "FILTER_CHAIN":
		return new(listenerv3.FilterChain)
	case "NETWORK_FILTER":
		return new(listenerv3.Filter)
	case "LISTENER_FILTER":
		return new(listenerv3.ListenerFilter)
	case "HTTP_FILTER":
		return new(manager.HttpFilter)
	case "ROUTE_CONFIGURATION":
		return new(routev3.RouteConfiguration)
	case "VIRTUAL_HOST":
		return new(routev3.VirtualHost)
	case "HTTP_ROUTE":
		return new(routev3.Route)
	case "CLUSTER":
		return new(clusterv3.Cluster)
	case "EXTENSION_CONFIG":
		return new(corev3.TypedExtensionConfig)
	case "BOOTSTRAP":
		return new(bootstrapv3.Bootstrap)
	}
	return nil
}

// position is where the decoder found a mistake, in a text that the user has not seen.
var position = regexp.MustCompile(`^\(line \d+:\d+\): `)

// reasonOf returns the text of an error of the decoder, without parts that differ from build to build.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	text := strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: ")
	return position.ReplaceAllString(strings.TrimPrefix(text, "syntax error "), "")
}

//go:embed types.txt
var typeNames string

// known holds the names of all messages of Envoy's API.
var known = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	for name := range strings.FieldsSeq(typeNames) {
		names[name] = true
	}
	return names
})

// isForeign reports whether a message belongs to the extensions that only Istio's own proxy has.
func isForeign(name string) bool {
	return strings.HasPrefix(name, "istio.") || strings.HasPrefix(name, "envoy.tcp.metadataexchange.") || strings.HasPrefix(name, "stats.") || strings.HasPrefix(name, "io.istio.")
}

// typesIn appends the names of the messages that a value names by @type.
func typesIn(value *structpb.Struct, names []string) []string {
	for _, key := range slices.Sorted(maps.Keys(value.GetFields())) {
		v := value.Fields[key]
		if key == "@type" {
			names = append(names, nameOf(v.GetStringValue()))
		}
		if v.GetStructValue() != nil {
			names = typesIn(v.GetStructValue(), names)
		}
		for _, item := range v.GetListValue().GetValues() {
			names = typesIn(item.GetStructValue(), names)
		}
	}
	return names
}

func nameOf(url string) string { return url[strings.LastIndexByte(url, '/')+1:] }

// resolver finds the messages that the type of an Any names. For one that is not linked it returns a message without fields.
type resolver struct{}

func (resolver) FindMessageByName(name protoreflect.FullName) (protoreflect.MessageType, error) {
	return resolver{}.FindMessageByURL(string(name))
}

func (resolver) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	name := nameOf(url)
	t, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	switch {
	case err == nil:
		return t, nil
	case !errors.Is(err, protoregistry.NotFound):
		return nil, err
	case known()[name] || isForeign(name):
		return (*cors.Cors)(nil).ProtoReflect().Type(), nil
	}
	return nil, fmt.Errorf("Envoy knows no message %s; types of version 2 of its API are gone", name)
}

func (resolver) FindExtensionByName(name protoreflect.FullName) (protoreflect.ExtensionType, error) {
	return protoregistry.GlobalTypes.FindExtensionByName(name)
}

func (resolver) FindExtensionByNumber(message protoreflect.FullName, field protoreflect.FieldNumber) (protoreflect.ExtensionType, error) {
	return protoregistry.GlobalTypes.FindExtensionByNumber(message, field)
}
