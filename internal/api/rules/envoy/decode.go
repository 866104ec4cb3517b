package envoy

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/structpb"

	// The messages that wrap others are found by name.
	_ "github.com/cncf/xds/go/udpa/type/v1"
	_ "github.com/cncf/xds/go/xds/type/v3"
)

// The two messages in which Envoy takes the configuration of any extension as a tree of JSON.
const (
	typedStruct    = "xds.type.v3.TypedStruct"
	oldTypedStruct = "udpa.type.v1.TypedStruct"
	urlPrefix      = "type.googleapis.com/"
)

// Decode reads the value of a patch as a message of Envoy's API. object is the value of the field applyTo. Unknown fields are dropped. The
// configuration of an extension whose message is not linked stays a tree, which Envoy converts itself; a tree of a linked message becomes
// that message.
func Decode(object string, value *structpb.Struct) (proto.Message, error) {
	m := messageOf(object)
	if m == nil {
		return nil, fmt.Errorf("no object of Envoy is called %s", object)
	}
	text, err := inlined(value).MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("cannot be written as JSON: %w", err)
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("is no %s of Envoy's API: %s", m.ProtoReflect().Descriptor().Name(), reasonOf(err))
	}
	return m, nil
}

// inlined returns a value in which each message that is named by @type is either linked or a tree.
func inlined(s *structpb.Struct) *structpb.Struct {
	url := s.GetFields()["@type"].GetStringValue()
	switch name := nameOf(url); {
	case url == "":
	case name == typedStruct || name == oldTypedStruct:
		if plain := messageIn(s); plain != nil {
			return plain
		}
		return s
	case !isLinked(name):
		return treeOf(name, s)
	}
	out := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(s.GetFields()))}
	for key, v := range s.GetFields() {
		out.Fields[key] = inlinedValue(v)
	}
	return out
}

func inlinedValue(v *structpb.Value) *structpb.Value {
	switch kind := v.GetKind().(type) {
	case *structpb.Value_StructValue:
		return structpb.NewStructValue(inlined(kind.StructValue))
	case *structpb.Value_ListValue:
		list := &structpb.ListValue{}
		for _, item := range kind.ListValue.GetValues() {
			list.Values = append(list.Values, inlinedValue(item))
		}
		return structpb.NewListValue(list)
	}
	return v
}

// messageIn returns the message in a tree with its type; nil if it is not linked or cannot be read, so that Envoy must judge it.
func messageIn(tree *structpb.Struct) *structpb.Struct {
	url := first(tree, "type_url", "typeUrl").GetStringValue()
	name := nameOf(url)
	if !isLinked(name) {
		return nil
	}
	plain := inlined(withType(first(tree, "value").GetStructValue(), name))
	if _, err := plain.MarshalJSON(); err != nil {
		return nil
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	if err != nil {
		return nil
	}
	without := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(plain.GetFields()))}
	for key, v := range plain.GetFields() {
		if key != "@type" {
			without.Fields[key] = v
		}
	}
	text, err := without.MarshalJSON()
	if err != nil {
		return nil
	}
	if (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, t.New().Interface()) != nil {
		return nil
	}
	return plain
}

// treeOf returns a message that is not linked as a tree with its type.
func treeOf(name string, s *structpb.Struct) *structpb.Struct {
	value := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(s.GetFields()))}
	for key, v := range s.GetFields() {
		if key != "@type" {
			value.Fields[key] = v
		}
	}
	return &structpb.Struct{Fields: map[string]*structpb.Value{
		"@type":   structpb.NewStringValue(urlPrefix + typedStruct),
		"typeUrl": structpb.NewStringValue(urlPrefix + name),
		"value":   structpb.NewStructValue(value),
	}}
}

func withType(s *structpb.Struct, name string) *structpb.Struct {
	out := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(s.GetFields())+1)}
	for key, v := range s.GetFields() {
		out.Fields[key] = v
	}
	out.Fields["@type"] = structpb.NewStringValue(urlPrefix + name)
	return out
}

func first(s *structpb.Struct, keys ...string) *structpb.Value {
	for _, key := range keys {
		if v, ok := s.GetFields()[key]; ok {
			return v
		}
	}
	return nil
}

func isLinked(name string) bool {
	_, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	return err == nil
}

// TypesIn returns the names of the messages that a value names, in trees with a type, too.
func TypesIn(value *structpb.Struct) []string {
	var names []string
	walk(value, func(key string, v *structpb.Value) {
		switch key {
		case "@type", "type_url", "typeUrl":
			if text := v.GetStringValue(); text != "" {
				names = append(names, nameOf(text))
			}
		}
	})
	return names
}

// walk visits the fields of a value and of all values in it, in no particular order.
func walk(s *structpb.Struct, visit func(key string, v *structpb.Value)) {
	for key, v := range s.GetFields() {
		visit(key, v)
		walk(v.GetStructValue(), visit)
		for _, item := range v.GetListValue().GetValues() {
			walk(item.GetStructValue(), visit)
		}
	}
}
