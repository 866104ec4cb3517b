package api

import (
	"net/netip"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pilotmesh/pilot/internal/api/document"
)

// Unsupported names, as Warnings, every field of the object that is legal but that the product does not act on yet.
// The topmost such field is named, not what is beneath it.
func Unsupported(o *Object) []Problem {
	var w fieldWalk
	at := (*document.Path)(nil).Field("spec")
	if fields := supported()[kindOfSpec(o.Spec)]; fields != nil {
		w.message(at, o.Spec.ProtoReflect(), fields)
	} else {
		w.warn(at, "objects of type %T are not known here: ignored", o.Spec)
	}
	found := problems(o.Key, o.Position.File, w.Findings())
	for i := range found {
		found[i].Position = o.Position
	}
	return found
}

// UnsupportedMesh names likewise what a MeshConfig file sets, and otherwise than by default. A file that DecodeMesh refuses
// has nothing of the kind.
func UnsupportedMesh(file string, data []byte) (found []Problem) {
	defer contain(func(reason string) { found = aboutMesh(file, reason) })
	var r document.Report
	m := decodeMesh(&r, data)
	if m == nil {
		return nil
	}
	var w fieldWalk
	known := supported()[kindMesh]
	set, base := m.ProtoReflect(), DefaultMesh().ProtoReflect()
	w.zeros(nil, set, base, known)
	sameAsDefault(set, base)
	w.message(nil, set, known)
	user := onlyDocument(&r, data)
	findings := w.Findings()
	for i := range findings {
		findings[i].Line = user.LineOf(findings[i].Field)
	}
	return problems(Key{Kind: kindMesh}, file, findings)
}

// kindMesh is the kind that Problems of the mesh configuration are of.
const kindMesh = "MeshConfig"

// sameAsDefault clears what is as by default.
func sameAsDefault(m, base protoreflect.Message) {
	base.Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case m.Get(d).Equal(v):
			m.Clear(d)
		case m.Has(d) && d.Message() != nil && !d.IsList() && !d.IsMap():
			sameAsDefault(m.Get(d).Message(), v.Message())
		}
		return true
	})
}

// zeros names what has been set to zero: it does not count as set otherwise.
func (w *fieldWalk) zeros(p *document.Path, m, base protoreflect.Message, known *field) {
	fields := base.Descriptor().Fields()
	for i := range fields.Len() {
		d := fields.Get(i)
		if base.Has(d) && !m.Has(d) && known.children[d.JSONName()] == nil {
			w.warn(p.Field(d.JSONName()), "is not supported yet: ignored")
		}
	}
}

// field is a node of the tree of supported fields.
type field struct {
	all      bool // with everything beneath
	values   string
	children map[string]*field
}

// supported is supportedFields as a tree per kind. Places with one shape share a tree.
var supported = sync.OnceValue(func() map[string]*field {
	kinds := map[string]*field{}
	var kind *field
	for line := range strings.Lines(supportedFields) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case line[0] != '\t':
			kind = &field{}
			kinds[words[0]] = kind
		default:
			f := kind
			for name := range strings.SplitSeq(words[0], ".") {
				if f.children == nil {
					f.children = map[string]*field{}
				}
				if f.children[name] == nil {
					f.children[name] = &field{}
				}
				f = f.children[name]
			}
			f.all = true
			if len(words) > 1 {
				f.values = words[1]
			}
		}
	}
	for _, f := range kinds {
		f.complete(kinds)
	}
	for name := range kinds {
		if isShape(name) {
			delete(kinds, name)
		}
	}
	return kinds
})

// isShape reports whether a section of the table is of fields that several kinds have, in several places.
func isShape(name string) bool { return 'a' <= name[0] && name[0] <= 'z' }

// complete puts the fields of shapes where their names stand.
func (f *field) complete(sections map[string]*field) {
	if shape := sections[f.values]; shape != nil {
		f.all, f.values, f.children = false, "", shape.children
	}
	for _, child := range f.children {
		child.complete(sections)
	}
}

// fieldWalk looks for what is set beyond the supported fields.
type fieldWalk struct{ document.Report }

func (w *fieldWalk) warn(p *document.Path, format string, args ...any) { w.Warn(0, p, format, args...) }

func (w *fieldWalk) message(p *document.Path, m protoreflect.Message, known *field) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		d := fields.Get(i)
		f := known.children[d.JSONName()]
		at := p.Field(d.JSONName())
		v := m.Get(d)
		switch {
		case f != nil && f.values != "" && (m.Has(d) || d.Kind() == protoreflect.EnumKind):
			// The zero of an enum is a value like others, although it does not count as set.
			w.values(at, v, d, f.values)
		case !m.Has(d) || f != nil && f.all:
		case f == nil:
			w.warn(at, "is not supported yet: ignored")
		case d.IsList():
			for j := range v.List().Len() {
				w.message(at.At(j), v.List().Get(j).Message(), f)
			}
		default:
			w.message(at, v.Message(), f)
		}
	}
}

func (w *fieldWalk) values(p *document.Path, v protoreflect.Value, d protoreflect.FieldDescriptor, values string) {
	if d.IsList() {
		for i := range v.List().Len() {
			w.value(p.At(i), v.List().Get(i), d, values)
		}
		return
	}
	w.value(p, v, d, values)
}

func (w *fieldWalk) value(p *document.Path, v protoreflect.Value, d protoreflect.FieldDescriptor, values string) {
	text := v.String()
	if d.Kind() == protoreflect.EnumKind {
		if e := d.Enum().Values().ByNumber(v.Enum()); e != nil {
			text = string(e.Name())
		}
	}
	switch values {
	case "exact":
		if strings.Contains(text, "*") {
			w.warn(p, "%s: wildcards are not supported yet: ignored", document.Quote(text))
		}
	case "ip":
		if a, err := netip.ParseAddr(text); err != nil || a.Zone() != "" {
			w.warn(p, "%s: only IP addresses are supported yet: ignored", document.Quote(text))
		}
	default:
		if !slices.Contains(strings.Split(values, "|"), text) {
			w.warn(p, "%s is not supported yet, only %s: ignored", text, strings.ReplaceAll(values, "|", ", "))
		}
	}
}
