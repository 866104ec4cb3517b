package schema

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// step leads from a value to one in it: a property by its name, or any item or entry.
type step string

const (
	item  step = "[]"
	entry step = "{}"
)

// place is a field of a schema, and how to get there.
type place struct {
	path   []step
	schema *apiextensionsv1.JSONSchemaProps
}

// String is the path: spec.http[].match[].headers{}.
func (p place) String() string {
	var b strings.Builder
	for _, s := range p.path {
		if s != item && s != entry && b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(string(s))
	}
	return b.String()
}

func (p place) child(s step, schema *apiextensionsv1.JSONSchemaProps) place {
	return place{append(slices.Clip(p.path), s), schema}
}

// places lists the place and all beneath it.
func (p place) places() []place {
	all := []place{p}
	for _, name := range slices.Sorted(maps.Keys(p.schema.Properties)) {
		schema := p.schema.Properties[name]
		all = append(all, p.child(step(name), &schema).places()...)
	}
	if p.schema.Items != nil && p.schema.Items.Schema != nil {
		all = append(all, p.child(item, p.schema.Items.Schema).places()...)
	}
	if p.schema.AdditionalProperties != nil && p.schema.AdditionalProperties.Schema != nil {
		all = append(all, p.child(entry, p.schema.AdditionalProperties.Schema).places()...)
	}
	return all
}

// absent is what an edit returns to remove a value.
type absent struct{}

// edit returns a copy of v in which one value at the path is what change makes of it, and where it is; ok is false if
// there is no value at the path.
func edit(v any, path []step, change func(any) any) (out any, where string, ok bool) {
	if len(path) == 0 {
		return change(v), "", true
	}
	switch s := path[0]; s {
	case item:
		list, _ := v.([]any)
		for i := range list {
			if changed, rest, ok := edit(list[i], path[1:], change); ok {
				list = slices.Clone(list)
				list[i] = changed
				if changed == (absent{}) {
					list = slices.Delete(list, i, i+1)
				}
				return list, "[" + strconv.Itoa(i) + "]" + rest, true
			}
		}
	default:
		object, _ := v.(map[string]any)
		names := []string{string(s)}
		if s == entry {
			names = slices.Sorted(maps.Keys(object))
		}
		for _, name := range names {
			if _, has := object[name]; !has {
				continue
			}
			if changed, rest, ok := edit(object[name], path[1:], change); ok {
				object = maps.Clone(object)
				object[name] = changed
				if changed == (absent{}) {
					delete(object, name)
				}
				return object, "." + name + rest, true
			}
		}
	}
	return v, "", false
}

// valueAt is the value that edit would change.
func valueAt(v any, path []step) (found any, ok bool) {
	_, _, ok = edit(v, path, func(v any) any {
		found = v
		return v
	})
	return found, ok
}
