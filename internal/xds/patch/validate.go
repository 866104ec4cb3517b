package patch

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// maxDepth is how deep configuration of extensions may be in configuration of extensions.
const maxDepth = 16

// validate checks the rules that the fields of a message declare, and the fields of each configuration of an extension in it.
func validate(m proto.Message) error { return validateTo(m, 0) }

func validateTo(m proto.Message, depth int) error {
	if v, ok := m.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return err
		}
	}
	if depth == maxDepth {
		return fmt.Errorf("extensions are configured in extensions more than %d deep", maxDepth)
	}
	return validateIn(m.ProtoReflect(), depth)
}

// validateIn checks the configuration of extensions in a message.
func validateIn(m protoreflect.Message, depth int) (err error) {
	if a, ok := m.Interface().(*anypb.Any); ok {
		inner, err := a.UnmarshalNew()
		if err != nil {
			return nil // Envoy may know a type that is not linked
		}
		return validateTo(inner, depth+1)
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				err = validateIn(v.Message(), depth)
				return err == nil
			})
		case f.IsList() && f.Message() != nil:
			for i := 0; i < v.List().Len() && err == nil; i++ {
				err = validateIn(v.List().Get(i).Message(), depth)
			}
		case !f.IsMap() && f.Message() != nil:
			err = validateIn(v.Message(), depth)
		}
		return err == nil
	})
	return err
}
