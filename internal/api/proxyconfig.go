package api

import (
	"cmp"
	"errors"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/settings"
)

// OverlayProxy lays the text of an annotation proxy.istio.io/config over a ProxyConfig: each field that the text contains replaces that
// field of base, each entry of a map, such as proxyMetadata, the entry with its name, and each header of proxyHeaders the settings of that header.
// If one of the Problems is an Error, the result is nil. Unknown fields are Warnings: a pod may have been written for another version.
func OverlayProxy(base *meshconfig.ProxyConfig, text string) (merged *meshconfig.ProxyConfig, found []Problem) {
	var r document.Report
	defer contain(func(reason string) { merged, found = nil, aboutMesh("", reason) })
	merged = overlayProxy(&r, base, text)
	found = problems(Key{}, "", r.Findings())
	if r.Failed() {
		return nil, found
	}
	return merged, found
}

func overlayProxy(r *document.Report, base *meshconfig.ProxyConfig, text string) *meshconfig.ProxyConfig {
	merged := proto.CloneOf(base)
	docs := document.Split([]byte(text))
	switch {
	case len(docs) == 0:
		return merged
	case len(docs) > 1:
		r.Fail(docs[1].Before+1, nil, "it has several documents; write one")
		return nil
	}
	v, err := docs[0].Parse()
	if err != nil {
		line := 1
		if e, ok := errors.AsType[*document.SyntaxError](err); ok {
			line, err = e.Line, errors.New(e.Reason)
		}
		r.Fail(line, nil, "it is no YAML: %v", err)
		return nil
	}
	if v == nil || v.Kind == document.Null {
		return merged
	}
	var layer meshconfig.ProxyConfig
	if !r.Expect(nil, v, document.Mapping) {
		return nil
	}
	r.Add(document.Read(&layer, v, nil, document.Options{Lenient: true, JSON: true}))
	if r.Failed() {
		return nil
	}
	layProxy(merged, &layer, v)
	checkProxy(r, merged, v)
	return merged
}

// layProxy copies the fields that v contains from layer, which was read from it.
func layProxy(into, layer *meshconfig.ProxyConfig, v *document.Value) {
	to, from := into.ProtoReflect(), layer.ProtoReflect()
	fields := to.Descriptor().Fields()
	headers := fields.ByName("proxy_headers")
	for _, m := range v.Members {
		d := cmp.Or(fields.ByJSONName(m.Key), fields.ByTextName(m.Key))
		switch {
		case d == nil: // unknown: there is a warning already
		case d == headers && to.Has(d): // each header is a setting of its own
			from.Get(d).Message().Range(func(header protoreflect.FieldDescriptor, value protoreflect.Value) bool {
				to.Mutable(d).Message().Set(header, value)
				return true
			})
		case !from.Has(d):
			to.Clear(d)
		case d.IsMap():
			from.Get(d).Map().Range(func(k protoreflect.MapKey, value protoreflect.Value) bool {
				to.Mutable(d).Map().Set(k, value)
				return true
			})
		default:
			to.Set(d, from.Get(d))
		}
	}
}

// checkProxy checks a ProxyConfig by the rules of the mesh configuration.
func checkProxy(r *document.Report, p *meshconfig.ProxyConfig, v *document.Value) {
	const prefix = "defaultConfig."
	for _, f := range settings.Mesh(&meshconfig.MeshConfig{DefaultConfig: p}) {
		field, ok := strings.CutPrefix(f.Field, prefix)
		if !ok {
			continue
		}
		f.Field, f.Line = field, v.LineOf(field)
		r.Add([]document.Finding{f})
	}
}
