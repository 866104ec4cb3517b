package accepted

import (
	"encoding/base64"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// tree is an object of JSON.
type tree = map[string]any

// draw makes random specs from descriptors.
type draw struct{ *rand.Rand }

func newDraw(seed uint64) draw { return draw{rand.New(rand.NewPCG(seed, 0))} }

func (d draw) chance(percent int) bool { return d.IntN(100) < percent }

func pick[V any](d draw, from []V) V { return from[d.IntN(len(from))] }

// maxDepth is how deep messages are in a spec. Fields below it are left out unless they are required.
const maxDepth = 9

// message draws a message as JSON. About four of its fields are set, and all that are required.
func (d draw) message(m protoreflect.MessageDescriptor, depth int) any {
	if v, ok := d.wellKnown(m, depth); ok {
		return v
	}
	out := tree{}
	fields := m.Fields()
	percent := max(12, min(70, 400/max(1, fields.Len())))
	if depth > maxDepth {
		percent = 0
	}
	required := requiredFields()[m.FullName()]
	chosen := map[protoreflect.FullName]int{} // the member of each oneof
	for i := range m.Oneofs().Len() {
		o := m.Oneofs().Get(i)
		chosen[o.FullName()] = d.IntN(o.Fields().Len())
	}
	for i := range fields.Len() {
		f := fields.Get(i)
		set := d.chance(percent)
		if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() {
			set = o.Fields().Get(chosen[o.FullName()]) == f && (d.chance(85) && depth <= maxDepth)
		}
		for _, name := range required {
			set = set || name == f.JSONName() && d.chance(98)
		}
		if set {
			out[f.JSONName()] = d.field(f, depth)
		}
	}
	return out
}

func (d draw) field(f protoreflect.FieldDescriptor, depth int) any {
	switch {
	case f.IsMap():
		out := tree{}
		for range d.length() {
			key := d.scalar(f.MapKey(), f)
			out[fmt.Sprint(key)] = d.value(f.MapValue(), f, depth)
		}
		return out
	case f.IsList():
		out := []any{}
		for range d.length() {
			out = append(out, d.value(f, f, depth))
		}
		return out
	}
	return d.value(f, f, depth)
}

// length is the length of a list or map: mostly one or two.
func (d draw) length() int { return pick(d, []int{0, 1, 1, 1, 1, 2, 2, 3}) }

// value draws a value; named is the field whose name says what texts are good for it.
func (d draw) value(f, named protoreflect.FieldDescriptor, depth int) any {
	if f.Message() != nil {
		return d.message(f.Message(), depth+1)
	}
	return d.scalar(f, named)
}

func (d draw) scalar(f, named protoreflect.FieldDescriptor) any {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return d.chance(50)
	case protoreflect.EnumKind:
		return string(f.Enum().Values().Get(d.IntN(f.Enum().Values().Len())).Name())
	case protoreflect.StringKind:
		return d.text(named, f != named)
	case protoreflect.BytesKind:
		return base64.StdEncoding.EncodeToString([]byte(pick(d, odd())))
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return pick(d, []float64{0, 0.01, 0.5, 1, 10, 50, 99.99, 100, 1e-9, 101, -1})
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return pick(d, append(numbers(), math.MaxUint32))
	}
	return pick(d, append(numbers(), -1, math.MinInt32))
}

func numbers() []int64 {
	return []int64{0, 1, 1, 2, 3, 80, 80, 443, 8080, 9090, 100, 50, 200, 503, 65535, 15001, 1024, 1 << 16, math.MaxInt32}
}

func durations() []string {
	return []string{
		"0s", "1s", "1s", "5s", "10s", "0.001s", "0.000001s", "0.000000001s", "3600s", "86400s", "-1s", "0.0015s",
		"9223372036s", "9223372035s", "315576000000s", "4294967s", "2147483.648s", "4294968s",
	}
}

// wellKnown draws the messages that JSON writes in a form of their own.
func (d draw) wellKnown(m protoreflect.MessageDescriptor, depth int) (any, bool) {
	switch m.FullName() {
	case "google.protobuf.Duration":
		return pick(d, durations()), true
	case "google.protobuf.Timestamp":
		return "2026-01-01T00:00:00Z", true
	case "google.protobuf.BoolValue":
		return d.chance(50), true
	case "google.protobuf.UInt32Value", "google.protobuf.UInt64Value":
		return pick(d, append(numbers(), math.MaxUint32)), true
	case "google.protobuf.Int32Value", "google.protobuf.Int64Value":
		return pick(d, append(numbers(), -1)), true
	case "google.protobuf.DoubleValue", "google.protobuf.FloatValue":
		return pick(d, []float64{0, 0.01, 0.5, 1, 10, 100, 101, -1}), true
	case "google.protobuf.StringValue":
		return pick(d, odd()), true
	case "google.protobuf.Struct":
		out := tree{}
		for i := range d.length() {
			out["k"+strconv.Itoa(i)] = d.json(depth)
		}
		return out, true
	case "google.protobuf.Value":
		return d.json(depth), true
	case "google.protobuf.ListValue":
		return []any{d.json(depth)}, true
	case "google.protobuf.Any":
		return d.extension(depth), true
	}
	return nil, false
}

// extension draws the configuration of an extension of Envoy.
func (d draw) extension(depth int) tree {
	name := pick(d, []string{
		"google.protobuf.Empty", "envoy.extensions.filters.http.router.v3.Router", "envoy.extensions.filters.http.lua.v3.Lua", "envoy.extensions.filters.http.rbac.v3.RBAC",
		"envoy.extensions.filters.http.fault.v3.HTTPFault", "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
		"envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", "envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
	})
	found, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	if err != nil {
		return tree{"@type": "type.googleapis.com/" + name}
	}
	out, ok := d.message(found.Descriptor(), depth+3).(tree)
	if !ok {
		out = tree{}
	}
	out["@type"] = "type.googleapis.com/" + name
	return out
}

func (d draw) json(depth int) any {
	switch d.IntN(5) {
	case 0:
		return pick(d, odd())
	case 1:
		return float64(d.IntN(1000))
	case 2:
		return d.chance(50)
	case 3:
		if depth < maxDepth {
			return tree{"x": d.json(depth + 1)}
		}
	}
	return "text"
}

// text draws a text that may be good for a field, and sometimes an odd one. key is true for the keys of a map.
func (d draw) text(f protoreflect.FieldDescriptor, key bool) string {
	if d.chance(6) {
		return pick(d, odd())
	}
	name := string(f.Parent().Name()) + "." + f.JSONName()
	if key {
		name += "[]"
	}
	if list, ok := words()[name]; ok {
		return pick(d, list)
	}
	if list, ok := words()[f.JSONName()]; ok {
		return pick(d, list)
	}
	return pick(d, append(odd(), "a", "a", "b", "x-a", "/a", "v1", "app", "http"))
}
