package rejection

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// fieldError is an error of a generated validation.
type fieldError interface {
	Field() string
	Reason() string
	Cause() error
}

// violationOf returns the first rule that a message, or a message packed in it, breaks, and the value that breaks it if that is text.
func violationOf(m proto.Message) (violation, value string) {
	if m == nil {
		return "", ""
	}
	check := func(m protoreflect.Message) bool {
		v, ok := m.Interface().(interface{ ValidateAll() error })
		if !ok {
			return false
		}
		if err := v.ValidateAll(); err != nil {
			violation, value = firstOf(err, m)
		}
		return violation != ""
	}
	if check(m.ProtoReflect()) {
		return violation, value
	}
	_ = protorange.Range(m.ProtoReflect(), func(p protopath.Values) error { // the generated validation does not open an Any
		if last := p.Index(-1); last.Step.Kind() == protopath.AnyExpandStep && check(last.Value.Message()) {
			return protorange.Terminate
		}
		return nil
	})
	return violation, value
}

// firstOf returns the first error as a path with a reason, and the text at the path.
func firstOf(err error, in protoreflect.Message) (violation, value string) {
	var fields []string
	at := protoreflect.ValueOfMessage(in)
	for {
		if all, ok := err.(interface{ AllErrors() []error }); ok && len(all.AllErrors()) > 0 {
			err = all.AllErrors()[0]
		}
		one, ok := err.(fieldError)
		if !ok {
			return strings.Join(append(fields, err.Error()), ": "), text(at)
		}
		fields, at = append(fields, one.Field()), step(at, one.Field())
		if one.Cause() == nil {
			return strings.Join(fields, ".") + ": " + one.Reason(), text(at)
		}
		err = one.Cause()
	}
}

func text(v protoreflect.Value) string {
	s, _ := v.Interface().(string)
	return s
}

// step returns the value of the field of a message that a generated validation names, such as "VirtualHosts[0]". It is the zero value
// if that is not known.
func step(v protoreflect.Value, name string) protoreflect.Value {
	m, ok := v.Interface().(protoreflect.Message)
	if !ok {
		return protoreflect.Value{}
	}
	name, index, indexed := strings.Cut(strings.TrimSuffix(name, "]"), "[")
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !strings.EqualFold(strings.ReplaceAll(string(f.Name()), "_", ""), name) {
			continue
		}
		in := m.Get(f)
		switch {
		case f.IsMap() && indexed:
			return in.Map().Get(protoreflect.ValueOfString(index).MapKey())
		case f.IsList() && indexed:
			if n, err := strconv.Atoi(index); err == nil && n < in.List().Len() {
				return in.List().Get(n)
			}
			return protoreflect.Value{}
		}
		return in
	}
	return protoreflect.Value{}
}
