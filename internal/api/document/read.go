package document

import (
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Options of Read. The zero Options read as strictly as an API server does.
type Options struct {
	// Lenient makes all unknown fields Warnings.
	Lenient bool
	// Strict makes all unknown fields errors, even if the document may be newer, because their restrictions would be lost.
	Strict bool
	// Newer makes unknown fields Warnings, unless they look misspelt or leave a choice without an alternative: the document was
	// written for a newer version of the API.
	Newer bool
	// JSON accepts what the JSON mapping of protobuf permits beyond the schemas of API servers: numbers as texts, enums by
	// number, and null for a field that is left out.
	JSON bool
	// NotZero returns why a field must not be zero, although it may be omitted; "" if it may be zero. Only Read can check this,
	// because a zero and an omitted field are the same in a message.
	NotZero func(protoreflect.FieldDescriptor) string
	// Written checks which fields of a message are written, even if they are empty, and calls fail for each mistake. Only Read can
	// check this, because an empty list or text and an omitted field are the same in a message.
	Written func(d protoreflect.MessageDescriptor, v *Value, fail func(field, reason string))
}

// Read fills the new message m from v. If one of the findings is not a warning, m must not be used. Null means the empty
// message.
func Read(m proto.Message, v *Value, at *Path, o Options) []Finding {
	if v.Kind == Null {
		return nil
	}
	r := reader{Options: o}
	r.message(at, v, m.ProtoReflect().Descriptor())
	if r.Failed() {
		return r.Findings()
	}
	// The reader checks fields and knows lines. The JSON decoder of protobuf checks everything else.
	if err := (protojson.UnmarshalOptions{RecursionLimit: 2 * maxDepth}).Unmarshal(r.json, m); err != nil {
		r.Fail(v.Line, at, "cannot be read: %v", err)
	}
	return r.Findings()
}

// reader turns the values of one document into the JSON form of a protobuf message. It compares the document with the descriptor
// of the message, so one pass finds all mistakes, with their lines and fields.
type reader struct {
	Options
	Report
	json []byte
}

// Expect reports whether v is of a kind, and adds a finding if it is not.
func (r *Report) Expect(p *Path, v *Value, k Kind) bool {
	if v.Kind == k {
		return true
	}
	r.Fail(v.Line, p, "must be %v, not %s", k, Describe(v))
	return false
}

// Describe returns the kind of v as text and, for a scalar, its value.
func Describe(v *Value) string {
	switch v.Kind {
	case Boolean, Integer, Number:
		return fmt.Sprintf("%v (%s)", v.Kind, v.Scalar)
	case String:
		return fmt.Sprintf("%v (%s)", v.Kind, Quote(v.Scalar))
	}
	return v.Kind.String()
}

// message reads v as a message and appends its JSON.
func (r *reader) message(p *Path, v *Value, d protoreflect.MessageDescriptor) {
	if wellKnown(d) {
		r.wellKnown(p, v, d)
		return
	}
	if !r.Expect(p, v, Mapping) {
		return
	}
	r.json = append(r.json, '{')
	oneofs := map[protoreflect.FullName]string{} // the member that is set
	for _, m := range r.distinct(v.Members, p.Field, LowerCamel) {
		at := p.Field(m.Key)
		f := d.Fields().ByJSONName(m.Key)
		if f == nil {
			f = d.Fields().ByTextName(m.Key)
		}
		if f == nil {
			r.unknown(v, m, at, d)
			continue
		}
		if m.Value.Kind == Null && !(f.Message() != nil && f.Message().FullName() == "google.protobuf.Value") {
			if !r.JSON && !nullable(f) {
				r.Fail(m.Line, at, "must not be null; give it a value, or leave it out")
			}
			continue // the same as leaving it out
		}
		if one := f.ContainingOneof(); one != nil && !one.IsSynthetic() {
			if first, dup := oneofs[one.FullName()]; dup {
				r.Fail(m.Line, at, "excludes %s, which is set as well; keep one of them", first)
				continue
			}
			oneofs[one.FullName()] = m.Key
		}
		r.comma('{')
		r.json = append(appendString(r.json, f.JSONName()), ':')
		r.field(at, m.Value, f)
	}
	r.json = append(r.json, '}')
	if r.Written != nil {
		r.Written(d, v, func(field, reason string) {
			if m := v.Find(field); m != nil {
				r.Fail(m.Line, p.Field(m.Key), "%s", reason)
			}
		})
	}
}

// nullable reports whether API servers take null for a field: if its message is a wrapper, for which zero and absent differ.
func nullable(f protoreflect.FieldDescriptor) bool {
	m := f.Message()
	return m != nil && !f.IsList() && !f.IsMap() && wellKnown(m) && strings.HasSuffix(string(m.Name()), "Value")
}

// Distinct returns the members of a mapping without duplicate keys, and adds a finding for each of these. It keeps the first member
// of duplicate keys. The path of a key is at(key).
func (r *Report) Distinct(members []Member, at func(string) *Path) []Member {
	return r.distinct(members, at, func(key string) string { return key })
}

// distinct returns the members of a mapping without keys of equal identity, like Distinct.
func (r *Report) distinct(members []Member, at func(string) *Path, identity func(string) string) []Member {
	index := make(map[string]int, len(members))
	out := make([]Member, 0, len(members))
	for _, m := range members {
		id := identity(m.Key)
		i, dup := index[id]
		switch {
		case !dup:
			index[id] = len(out)
			out = append(out, m)
		default:
			r.Fail(m.Line, at(m.Key), "given twice, in line %d as well; remove one", out[i].Line)
		}
	}
	return out
}

func (r *reader) comma(open byte) {
	if r.json[len(r.json)-1] != open {
		r.json = append(r.json, ',')
	}
}

// unknown reports a field that the API module does not have. It is a mistake, unless the document is for a newer version of the
// API: then it is ignored with a warning, except in two cases: when it looks like a misspelt field, and when the message is a
// plain choice without another alternative, because an ignored choice changes the meaning of its parent (a match on an
// unknown condition would match everything).
func (r *reader) unknown(of *Value, m Member, at *Path, d protoreflect.MessageDescriptor) {
	names := make([]string, d.Fields().Len())
	for i := range names {
		names[i] = d.Fields().Get(i).JSONName()
	}
	reason := Unknown("field", m.Key, names)
	switch {
	case r.Lenient:
		r.Warn(m.Line, at, "%s (ignored)", reason)
	case r.Strict && closest(m.Key, names) == "":
		r.Fail(m.Line, at, "%s; an access policy is not used without a part of it: remove the field, or upgrade the control plane if the field is newer", reason)
	case isChoice(d) && len(of.Members) == 1:
		r.Fail(m.Line, at, "%s; one of %s is needed", reason, strings.Join(names, ", "))
	case closest(m.Key, names) != "":
		r.Fail(m.Line, at, "%s", reason)
	case !r.Newer:
		r.Fail(m.Line, at, "%s; remove it, or move it to where it belongs", reason)
	default:
		r.Warn(m.Line, at, "%s: ignored; it may be newer than this version", reason)
	}
	r.Mark("field-unknown")
}

// isChoice reports whether all fields of a message are alternatives of one oneof.
func isChoice(d protoreflect.MessageDescriptor) bool {
	return d.Oneofs().Len() == 1 && !d.Oneofs().Get(0).IsSynthetic() && d.Oneofs().Get(0).Fields().Len() == d.Fields().Len()
}

func (r *reader) field(p *Path, v *Value, f protoreflect.FieldDescriptor) {
	switch {
	case f.IsMap():
		if !r.Expect(p, v, Mapping) {
			return
		}
		r.json = append(r.json, '{')
		for _, m := range r.Distinct(v.Members, p.Key) {
			at := p.Key(m.Key)
			if reason := checkKey(m.Key, f.MapKey().Kind()); reason != "" {
				r.Fail(m.Line, at, "%s", reason)
				continue
			}
			r.comma('{')
			r.json = append(appendString(r.json, m.Key), ':')
			r.single(at, m.Value, f.MapValue())
		}
		r.json = append(r.json, '}')
	case f.IsList():
		if !r.Expect(p, v, List) {
			return
		}
		r.json = append(r.json, '[')
		for i, item := range v.Items {
			r.comma('[')
			r.single(p.At(i), item, f)
		}
		r.json = append(r.json, ']')
	default:
		if v.Kind == Integer && v.Scalar == "0" && r.NotZero != nil {
			if reason := r.NotZero(f); reason != "" {
				r.Fail(v.Line, p, "%s; leave it out for the default", reason)
				return
			}
		}
		r.single(p, v, f)
	}
}

// checkKey returns why a map with keys of a kind cannot have a key; "" if it can.
func checkKey(key string, k protoreflect.Kind) string {
	if k != protoreflect.Uint32Kind {
		return "" // the API has no maps with keys of other kinds of numbers
	}
	if n, err := strconv.ParseUint(key, 10, 32); err != nil || strconv.FormatUint(n, 10) != key {
		return fmt.Sprintf("the key must be a number, not %s", Quote(key))
	}
	return ""
}

// single reads one value of the type of a field. If the value has another type, it adds a finding, and the JSON is not used.
func (r *reader) single(p *Path, v *Value, f protoreflect.FieldDescriptor) {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		r.message(p, v, f.Message())
	case protoreflect.EnumKind:
		r.enum(p, v, f.Enum())
	default:
		r.scalar(p, v, f.Kind())
	}
}

func (r *reader) enum(p *Path, v *Value, d protoreflect.EnumDescriptor) {
	if r.JSON && v.Kind == Integer {
		if n, err := strconv.ParseInt(v.Scalar, 10, 32); err == nil && d.Values().ByNumber(protoreflect.EnumNumber(n)) != nil {
			r.json = append(r.json, v.Scalar...)
			return
		}
	}
	if !r.Expect(p, v, String) {
		return
	}
	if d.Values().ByName(protoreflect.Name(v.Scalar)) == nil {
		names := make([]string, d.Values().Len())
		for i := range names {
			names[i] = string(d.Values().Get(i).Name())
		}
		r.Fail(v.Line, p, "must be one of %s, not %s", strings.Join(names, ", "), Quote(v.Scalar))
		return
	}
	r.json = appendString(r.json, v.Scalar)
}

func (r *reader) scalar(p *Path, v *Value, k protoreflect.Kind) {
	switch k {
	case protoreflect.BoolKind:
		if word, ok := yaml11Bool(v); ok {
			r.json = strconv.AppendBool(r.json, word)
			return
		}
		if !r.Expect(p, v, Boolean) {
			return
		}
	case protoreflect.StringKind:
		if !r.Expect(p, v, String) {
			return
		}
		r.json = appendString(r.json, v.Scalar)
		return
	case protoreflect.BytesKind:
		r.bytes(p, v)
		return
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		v = r.numeric(v)
		if v.Kind != Integer && !r.Expect(p, v, Number) {
			return
		}
	default:
		v = r.numeric(v)
		if !r.whole(p, v, k) {
			return
		}
	}
	r.json = append(r.json, v.Scalar...)
}

// numeric returns the number in a text, where the JSON mapping of protobuf permits texts, and else the value itself.
func (r *reader) numeric(v *Value) *Value {
	if !r.JSON || v.Kind != String {
		return v
	}
	out := &Value{Line: v.Line}
	if n, err := strconv.ParseInt(v.Scalar, 10, 64); err == nil {
		out.Kind, out.Scalar = Integer, strconv.FormatInt(n, 10)
		return out
	}
	if n, err := strconv.ParseUint(v.Scalar, 10, 64); err == nil {
		out.Kind, out.Scalar = Integer, strconv.FormatUint(n, 10)
		return out
	}
	f, err := strconv.ParseFloat(v.Scalar, 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) || strings.Trim(v.Scalar, "0123456789+-.eE") != "" {
		return v
	}
	out.number(f)
	return out
}

// whole checks a value against the range of an integer type.
func (r *reader) whole(p *Path, v *Value, k protoreflect.Kind) bool {
	digits := v.Scalar
	if !r.Expect(p, v, Integer) {
		return false
	}
	var err error
	var low, high string
	switch k {
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		_, err = strconv.ParseInt(digits, 10, 32)
		low, high = "-2147483648", "2147483647"
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		_, err = strconv.ParseUint(digits, 10, 32)
		low, high = "0", "4294967295"
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		_, err = strconv.ParseUint(digits, 10, 64)
		low, high = "0", "18446744073709551615"
	default:
		_, err = strconv.ParseInt(digits, 10, 64)
		low, high = "-9223372036854775808", "9223372036854775807"
	}
	if err != nil {
		r.Fail(v.Line, p, "must be a whole number from %s to %s, not %s", low, high, Describe(v))
		return false
	}
	return true
}

func (r *reader) bytes(p *Path, v *Value) {
	if !r.Expect(p, v, String) {
		return
	}
	// API servers accept only this alphabet, and require the padding.
	if _, err := base64.StdEncoding.DecodeString(v.Scalar); err != nil {
		r.Fail(v.Line, p, "must be base64 of the standard alphabet with padding: %v", err)
		return
	}
	r.json = appendString(r.json, v.Scalar)
}

// yaml11Bool parses the booleans other than true and false that YAML 1.1 has, and so the tools of Kubernetes.
func yaml11Bool(v *Value) (word, ok bool) {
	if v.Kind != String || !v.plain {
		return false, false
	}
	switch v.Scalar {
	case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON":
		return true, true
	case "n", "N", "no", "No", "NO", "off", "Off", "OFF":
		return false, true
	}
	return false, false
}

func wellKnown(d protoreflect.MessageDescriptor) bool {
	return d.ParentFile().Package() == "google.protobuf"
}

// wellKnown reads messages with their own JSON form, such as durations.
func (r *reader) wellKnown(p *Path, v *Value, d protoreflect.MessageDescriptor) {
	switch d.Name() {
	case "Duration":
		r.duration(p, v)
	case "Timestamp":
		if !r.Expect(p, v, String) {
			return
		}
		if _, err := time.Parse(time.RFC3339Nano, v.Scalar); err != nil {
			r.Fail(v.Line, p, "must be a time like 2006-01-02T15:04:05Z, not %s", Quote(v.Scalar))
			return
		}
		r.json = appendString(r.json, v.Scalar)
	case "BoolValue", "StringValue", "BytesValue", "DoubleValue", "FloatValue",
		"Int32Value", "Int64Value", "UInt32Value", "UInt64Value":
		r.scalar(p, v, d.Fields().ByName("value").Kind())
	case "Struct":
		if r.free(p, v) && r.Expect(p, v, Mapping) {
			r.json = v.appendJSON(r.json)
		}
	case "ListValue":
		if r.free(p, v) && r.Expect(p, v, List) {
			r.json = v.appendJSON(r.json)
		}
	default: // Value, Any: the final conversion judges the rest
		if r.free(p, v) {
			r.json = v.appendJSON(r.json)
		}
	}
}

// free checks a value without a schema. Only its keys can be wrong.
func (r *reader) free(p *Path, v *Value) bool {
	before := len(r.findings)
	for i, item := range v.Items {
		r.free(p.At(i), item)
	}
	for _, m := range r.Distinct(v.Members, p.Field) {
		r.free(p.Field(m.Key), m.Value)
	}
	return len(r.findings) == before
}

// duration parses the notation of Go (1h30m, 100ms) and writes the notation of protobuf (5400s, 0.1s).
func (r *reader) duration(p *Path, v *Value) {
	d, err := time.ParseDuration(v.Scalar)
	if v.Kind != String || err != nil {
		r.Fail(v.Line, p, "must be a duration like 1h, 1m30s, 5s or 100ms, not %s", Describe(v))
		return
	}
	sign := ""
	if d < 0 {
		sign = "-"
	}
	s, ns := d/time.Second, d%time.Second
	r.json = fmt.Appendf(r.json, `"%s%d.%09ds"`, sign, abs(s), abs(ns))
}

func abs(d time.Duration) uint64 {
	if d < 0 {
		return uint64(-d)
	}
	return uint64(d)
}
