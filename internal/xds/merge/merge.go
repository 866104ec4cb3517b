// Package merge merges messages as patches of users do: scalars and alternatives that the patch sets replace the former ones, messages are
// merged field by field, and maps key by key. Lists are appended, or replaced.
//
// It differs from proto.Merge in messages that are one value each, such as durations: the value of the patch replaces the former one, and is
// not merged into it. The package is pure, and starts no goroutines.
package merge

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Message merges src into dst, which must be of the same type. Nothing of src is shared with dst afterwards. If replaceLists is true, lists of
// src replace lists of dst.
func Message(dst, src proto.Message, replaceLists bool) {
	merger{replaceLists}.message(dst.ProtoReflect(), proto.Clone(src).ProtoReflect())
}

type merger struct {
	replaceLists bool
}

func (m merger) message(dst, src protoreflect.Message) {
	src.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			to := dst.Mutable(f).Map()
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				to.Set(k, v)
				return true
			})
		case f.IsList():
			if m.replaceLists {
				dst.Clear(f)
			}
			to := dst.Mutable(f).List()
			for i := range v.List().Len() {
				to.Append(v.List().Get(i))
			}
		case f.Message() != nil && dst.Has(f) && !isAtom(f.Message()):
			m.message(dst.Mutable(f).Message(), v.Message())
		default:
			dst.Set(f, v)
		}
		return true
	})
}

// isAtom reports whether messages of a type are one value each: what a patch sets replaces it, zero included.
func isAtom(d protoreflect.MessageDescriptor) bool {
	switch d.FullName() {
	case "google.protobuf.Duration", "google.protobuf.Timestamp", "google.protobuf.Any", "google.protobuf.Value":
		return true
	}
	return strings.HasPrefix(string(d.FullName()), "google.protobuf.") && strings.HasSuffix(string(d.Name()), "Value")
}
