package client

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// Fault is something a server may never do. Rule is the rule it breaks, as family/rule.
type Fault struct{ Rule, Text string }

func fault(rule, format string, args ...any) Fault { return Fault{rule, fmt.Sprintf(format, args...)} }

// Checker opens resources and judges their content. It remembers results by content, so that a thousand clients cost
// little more than one. It is safe for concurrent use.
type Checker struct {
	mu   sync.Mutex
	seen map[[sha256.Size]byte]*opened
}

// opened is the result of decoding one content.
type opened struct {
	message proto.Message
	name    string
	faults  []Fault
}

// NewChecker returns a checker that has seen nothing.
func NewChecker() *Checker { return &Checker{seen: map[[sha256.Size]byte]*opened{}} }

func (k *Checker) open(url string, body []byte) *opened {
	h := sha256.New()
	h.Write([]byte(url))
	h.Write([]byte{0})
	h.Write(body)
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	k.mu.Lock()
	defer k.mu.Unlock()
	if o, ok := k.seen[sum]; ok {
		return o
	}
	o := open(url, body)
	k.seen[sum] = o
	return o
}

func open(url string, body []byte) *opened {
	m, err := (&anypb.Any{TypeUrl: url, Value: body}).UnmarshalNew()
	if err != nil {
		return &opened{faults: []Fault{fault("content/known-types", "a resource of type %q cannot be opened: %v", url, err)}}
	}
	o := &opened{message: m, name: nameOf(m)}
	if o.name == "" {
		o.report("content/names", "a resource of type %s has no name", url)
	}
	o.walk(m)
	switch m := m.(type) {
	case *routev3.RouteConfiguration:
		o.route(m)
	case *listenerv3.Listener:
		o.listener(m)
	case *clusterv3.Cluster:
		o.cluster(m)
	}
	return o
}

func (o *opened) report(rule, format string, args ...any) {
	f := fault(rule, format, args...)
	if o.name != "" {
		f.Text = o.name + ": " + f.Text
	}
	o.faults = append(o.faults, f)
}

// nameOf is the name a resource carries inside.
func nameOf(m proto.Message) string {
	switch m := m.(type) {
	case *clusterv3.Cluster:
		return m.Name
	case *endpointv3.ClusterLoadAssignment:
		return m.ClusterName
	case *listenerv3.Listener:
		return m.Name
	case *routev3.RouteConfiguration:
		return m.Name
	}
	return ""
}

// walk validates a message and everything packed inside.
func (o *opened) walk(m proto.Message) {
	name := string(m.ProtoReflect().Descriptor().FullName())
	if !slices.ContainsFunc([]string{"envoy.", "udpa.", "xds.", "google.protobuf."}, func(p string) bool { return strings.HasPrefix(name, p) }) {
		o.report("content/stock-envoy", "%s is no type of upstream Envoy", name)
	}
	for _, c := range contrib() {
		if strings.HasPrefix(name, c) {
			o.report("content/stock-envoy", "%s is a contrib extension: stock Envoy does not have it", name)
		}
	}
	if v, ok := m.(interface{ ValidateAll() error }); ok {
		if err := v.ValidateAll(); err != nil {
			o.report("content/valid", "%s: %v", name, err)
		}
	}
	packed(m.ProtoReflect(), func(a *anypb.Any) {
		inner, err := a.UnmarshalNew()
		if err != nil {
			o.report("content/known-types", "%q, packed in %s, cannot be opened: %v", a.TypeUrl, name, err)
			return
		}
		o.walk(inner)
	})
}

// contrib are packages of Envoy's API whose code is only in the contrib images.
func contrib() []string {
	return []string{
		"envoy.extensions.filters.network.mysql_proxy.", "envoy.extensions.filters.network.kafka_",
		"envoy.extensions.filters.network.postgres_proxy.", "envoy.extensions.filters.network.rocketmq_proxy.",
		"envoy.extensions.filters.network.sip_proxy.", "envoy.extensions.filters.network.golang.",
		"envoy.extensions.filters.network.client_ssl_auth.", "envoy.extensions.filters.http.golang.",
		"envoy.extensions.filters.http.squash.", "envoy.extensions.filters.http.sxg.", "envoy.extensions.filters.http.checksum.",
		"envoy.extensions.private_key_providers.", "envoy.extensions.matching.input_matchers.hyperscan.",
		"envoy.extensions.regex_engines.hyperscan.", "envoy.extensions.vcl.", "envoy.extensions.network.connection_balance.dlb.",
	}
}

// packed calls visit for every Any directly or deeper inside m, but not inside other Anys.
func packed(m protoreflect.Message, visit func(*anypb.Any)) {
	if a, ok := m.Interface().(*anypb.Any); ok {
		visit(a)
		return
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap():
			if fd.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, e protoreflect.Value) bool {
					packed(e.Message(), visit)
					return true
				})
			}
		case fd.Message() == nil:
		case fd.IsList():
			for i := range v.List().Len() {
				packed(v.List().Get(i).Message(), visit)
			}
		default:
			packed(v.Message(), visit)
		}
		return true
	})
}

// each calls visit for m and every message inside, through Anys that can be opened.
func each(m proto.Message, visit func(proto.Message)) {
	var down func(protoreflect.Message)
	down = func(m protoreflect.Message) {
		visit(m.Interface())
		if a, ok := m.Interface().(*anypb.Any); ok {
			if inner, err := a.UnmarshalNew(); err == nil {
				down(inner.ProtoReflect())
			}
			return
		}
		m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			switch {
			case fd.IsMap():
				if fd.MapValue().Message() != nil {
					v.Map().Range(func(_ protoreflect.MapKey, e protoreflect.Value) bool {
						down(e.Message())
						return true
					})
				}
			case fd.Message() == nil:
			case fd.IsList():
				for i := range v.List().Len() {
					down(v.List().Get(i).Message())
				}
			default:
				down(v.Message())
			}
			return true
		})
	}
	down(m.ProtoReflect())
}
