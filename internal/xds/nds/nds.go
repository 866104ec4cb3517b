// Package nds encodes and decodes name tables as they are on the wire: messages of the type istio.networking.nds.v1.NameTable, by
// which agents learn the names that they answer. The API module does not have this type.
//
// Invariants: the encoding is deterministic. A name table that is written behind another one makes, as bytes, one table with the
// names of both, so tables of one name each can be joined without being decoded. Decode never panics, and takes no more memory than a
// small multiple of its input.
//
// The package starts no goroutines.
package nds

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// URL is the type URL of a name table.
const URL = "type.googleapis.com/istio.networking.nds.v1.NameTable"

// Kubernetes is the registry of names of Services. Clients may shorten such names.
const Kubernetes = "Kubernetes"

// Field numbers of NameTable, of an entry of its map, and of NameInfo.
const (
	fieldTable = 1

	fieldKey   = 1
	fieldValue = 2

	fieldIPs       = 1
	fieldRegistry  = 2
	fieldShortName = 3
	fieldNamespace = 4
	fieldAltHosts  = 5
)

// Entry is what a name table says of one name.
type Entry struct {
	// Host is the name, without a dot at its end. A name that begins with "*." covers all names below the rest of it.
	Host string
	// Addresses are IP addresses.
	Addresses []string
	// Registry says where the name is from: Kubernetes, or something else.
	Registry string
	// ShortName and Namespace are the name and the namespace of a Service, if the registry is Kubernetes.
	ShortName, Namespace string
}

// Append appends a table of one name. It panics on text that is not UTF-8, as encoding the message would.
func (e Entry) Append(b []byte) []byte {
	for _, text := range append([]string{e.Host, e.Registry, e.ShortName, e.Namespace}, e.Addresses...) {
		if !utf8.ValidString(text) {
			panic(fmt.Errorf("encode the name %q: a text is not UTF-8", e.Host))
		}
	}
	var info []byte
	for _, ip := range e.Addresses {
		info = protowire.AppendString(protowire.AppendTag(info, fieldIPs, protowire.BytesType), ip)
	}
	for _, f := range []struct {
		number protowire.Number
		text   string
	}{{fieldRegistry, e.Registry}, {fieldShortName, e.ShortName}, {fieldNamespace, e.Namespace}} {
		if f.text != "" {
			info = protowire.AppendString(protowire.AppendTag(info, f.number, protowire.BytesType), f.text)
		}
	}
	var entry []byte
	entry = protowire.AppendString(protowire.AppendTag(entry, fieldKey, protowire.BytesType), e.Host)
	entry = protowire.AppendBytes(protowire.AppendTag(entry, fieldValue, protowire.BytesType), info)
	return protowire.AppendBytes(protowire.AppendTag(b, fieldTable, protowire.BytesType), entry)
}

// errNotTable says that bytes are no name table.
var errNotTable = errors.New("it is not a name table")

// Decode yields the entries of a table, in their order. Fields that it does not know are skipped. The texts of an entry are copies.
func Decode(table []byte, yield func(Entry)) error {
	return fields(table, func(number protowire.Number, entry []byte) error {
		if number != fieldTable {
			return nil
		}
		var e Entry
		err := fields(entry, func(number protowire.Number, v []byte) error {
			switch number {
			case fieldKey:
				e.Host = string(v)
			case fieldValue:
				return e.decodeInfo(v)
			}
			return nil
		})
		if err != nil {
			return err
		}
		yield(e)
		return nil
	})
}

func (e *Entry) decodeInfo(info []byte) error {
	return fields(info, func(number protowire.Number, v []byte) error {
		switch number {
		case fieldIPs:
			e.Addresses = append(e.Addresses, string(v))
		case fieldRegistry:
			e.Registry = string(v)
		case fieldShortName:
			e.ShortName = string(v)
		case fieldNamespace:
			e.Namespace = string(v)
		}
		return nil
	})
}

// fields calls do with each length-delimited field of a message, and skips the others.
func fields(b []byte, do func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errNotTable
		}
		b = b[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
				return errNotTable
			}
			b = b[n:]
			continue
		}
		v, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return errNotTable
		}
		if err := do(number, v); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// Message decodes a table into a message that can be printed. It is meant for debug pages and tests: each call builds the
// descriptor again.
func Message(table []byte) (proto.Message, error) {
	file, err := protodesc.NewFile(descriptor(), nil)
	if err != nil {
		return nil, fmt.Errorf("the descriptor of name tables: %w", err)
	}
	m := dynamicpb.NewMessage(file.Messages().ByName("NameTable"))
	if err := proto.Unmarshal(table, m); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotTable, err)
	}
	return m, nil
}

// descriptor describes the messages.
func descriptor() *descriptorpb.FileDescriptorProto {
	field := func(name string, number int32, repeated bool, message string) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{
			Name: proto.String(name), Number: proto.Int32(number),
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(),
		}
		if repeated {
			f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
		}
		if message != "" {
			f.Type, f.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), proto.String(".istio.networking.nds.v1.NameTable."+message)
		}
		return f
	}
	return &descriptorpb.FileDescriptorProto{
		Name: proto.String("nds.proto"), Package: proto.String("istio.networking.nds.v1"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{
			Name:  proto.String("NameTable"),
			Field: []*descriptorpb.FieldDescriptorProto{field("table", fieldTable, true, "TableEntry")},
			NestedType: []*descriptorpb.DescriptorProto{
				{
					Name: proto.String("NameInfo"),
					Field: []*descriptorpb.FieldDescriptorProto{
						field("ips", fieldIPs, true, ""), field("registry", fieldRegistry, false, ""), field("shortname", fieldShortName, false, ""),
						field("namespace", fieldNamespace, false, ""), field("alt_hosts", fieldAltHosts, true, ""),
					},
				},
				{
					Name:    proto.String("TableEntry"),
					Field:   []*descriptorpb.FieldDescriptorProto{field("key", fieldKey, false, ""), field("value", fieldValue, false, "NameInfo")},
					Options: &descriptorpb.MessageOptions{MapEntry: proto.Bool(true)},
				},
			},
		}},
	}
}
