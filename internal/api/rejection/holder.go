package rejection

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"

	"github.com/pilotmesh/pilot/internal/api"
)

// minPart is the length from which on a part of a text is enough to find it again.
const minPart = 6

// holder returns the object, and the path of the field, with a text; zero if no object has it, or several have it. Equal texts go
// before texts that are only a part. Earlier needles go before later ones.
func holder(needles []string, objects []*api.Object) (at api.Key, field string) {
	for _, fits := range []func(text, needle string) bool{
		func(text, needle string) bool { return text == needle },
		func(text, needle string) bool {
			return len(needle) >= minPart && strings.Contains(text, needle) || len(text) >= minPart && strings.Contains(needle, text)
		},
	} {
		for _, needle := range needles {
			holders := 0
			for _, o := range objects {
				if f, ok := fieldOf(o.Spec, func(text string) bool { return fits(text, needle) }); ok {
					at, field = o.Key, f
					holders++
				}
			}
			if holders == 1 {
				return at, field
			}
		}
	}
	return api.Key{}, ""
}

// fieldOf returns the path of the first text of a spec that fits.
func fieldOf(spec proto.Message, fits func(string) bool) (field string, ok bool) {
	if spec == nil {
		return "", false
	}
	_ = protorange.Options{Stable: true}.Range(spec.ProtoReflect(), func(p protopath.Values) error {
		if s, isText := p.Index(-1).Value.Interface().(string); isText && s != "" && fits(s) {
			field, ok = documentPath(p.Path), true
			return protorange.Terminate
		}
		return nil
	}, nil)
	return field, ok
}

// documentPath returns a path as problems show it: spec.http[0].headers.request.add[x-big].
func documentPath(p protopath.Path) string {
	var b strings.Builder
	b.WriteString("spec")
	for _, s := range p {
		switch s.Kind() {
		case protopath.FieldAccessStep:
			b.WriteString("." + s.FieldDescriptor().JSONName())
		case protopath.ListIndexStep:
			fmt.Fprintf(&b, "[%d]", s.ListIndex())
		case protopath.MapIndexStep:
			fmt.Fprintf(&b, "[%s]", s.MapIndex().String())
		}
	}
	return b.String()
}
