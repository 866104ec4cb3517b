package api

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// Unsupported returns a Warning for every field of the object that is valid, but has no effect. It names the topmost such field,
// and not the fields beneath it.
func Unsupported(o *Object) []Problem {
	var w fieldWalk
	at := (*document.Path)(nil).Field("spec")
	if k, ok := kindOfSpec(o.Spec); ok {
		fields := supported()[k.Name] // a test keeps the table complete
		w.message(at, o.Spec.ProtoReflect(), fields)
	} else {
		w.warn(at, "objects of type %T are not known here: ignored", o.Spec)
	}
	w.labels(o)
	found := problems(o.Key, o.Position.File, w.Findings())
	for i := range found {
		found[i].Code = "field-unsupported"
		found[i].Position = o.Position
	}
	return found
}

// UnsupportedMesh returns such Warnings for a MeshConfig file. Fields that have their default value need no warning. It returns nothing
// for a file that DecodeMesh refuses. cluster is true if namespaces of a cluster are read, or may be: discoverySelectors select these.
func UnsupportedMesh(file string, data []byte, cluster bool) (found []Problem) {
	defer contain(func(reason string) { found = aboutMesh(file, reason) })
	var r document.Report
	return unsupportedMesh(&r, file, onlyDocument(&r, data), cluster)
}

// unsupportedMesh returns the warnings of UnsupportedMesh for settings in a file.
func unsupportedMesh(r *document.Report, file string, user *document.Value, cluster bool) []Problem {
	m := mergeMesh(r, user, &document.Value{Kind: document.Mapping})
	if m == nil {
		return nil
	}
	var w fieldWalk
	known := supported()[kindMesh]
	defaults := DefaultMesh()
	if cluster {
		m.DiscoverySelectors = nil
	}
	m.ExtensionProviders = slices.DeleteFunc(m.ExtensionProviders, func(p *meshconfig.MeshConfig_ExtensionProvider) bool {
		return slices.ContainsFunc(defaults.ExtensionProviders, func(d *meshconfig.MeshConfig_ExtensionProvider) bool { return proto.Equal(d, p) })
	})
	set, base := m.ProtoReflect(), defaults.ProtoReflect()
	w.zeros(nil, set, base, known)
	sameAsDefault(set, base)
	w.message(nil, set, known)
	findings := w.Findings()
	for i := range findings {
		findings[i].Line, findings[i].Code = user.LineOf(findings[i].Field), "field-unsupported"
	}
	return problems(Key{Kind: kindMesh}, file, findings)
}

// kindMesh is the kind in the Problems of a mesh configuration.
const kindMesh = "MeshConfig"

// sameAsDefault clears the fields that have their default value.
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

// zeros warns of unsupported fields that are set to zero and have another default: in a message they look like unset fields.
func (w *fieldWalk) zeros(p *document.Path, m, base protoreflect.Message, known *field) {
	fields := base.Descriptor().Fields()
	for i := range fields.Len() {
		d := fields.Get(i)
		if reason := known.children[d.JSONName()].idle(w.scope); base.Has(d) && !m.Has(d) && reason != "" {
			w.warn(p.Field(d.JSONName()), "%s", reason)
		}
	}
}

// IdleField is a field that is set and has no effect, with the reason.
type IdleField struct{ Field, Reason string }

// IdleInPolicy returns the fields of a DestinationRule's traffic policy that have no effect on any of its ports. It omits fields
// that the product never acts on, because Unsupported warns of these.
func IdleInPolicy(policy *networking.TrafficPolicy, at string, s Scope) []IdleField {
	if policy == nil {
		return nil
	}
	w := fieldWalk{scope: s, portsOnly: true}
	w.message((*document.Path)(nil).Field(at), policy.ProtoReflect(), supported()["DestinationRule"].children["trafficPolicy"])
	var list []IdleField
	for _, f := range w.Findings() {
		list = append(list, IdleField{f.Field, f.Reason})
	}
	return list
}

// fieldWalk finds fields of a message that are set and have no effect.
type fieldWalk struct {
	document.Report
	scope Scope
	// portsOnly is true to find only fields that have no effect on the ports of the scope.
	portsOnly bool
}

func (w *fieldWalk) warn(p *document.Path, format string, args ...any) { w.Warn(0, p, format, args...) }

func (w *fieldWalk) message(p *document.Path, m protoreflect.Message, known *field) {
	defer func(s Scope) { w.scope = s }(w.scope)
	w.enter(m)
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		d := fields.Get(i)
		f := known.children[d.JSONName()]
		at := p.Field(d.JSONName())
		switch {
		case f == nil: // a test keeps the table complete
			if m.Has(d) {
				w.warn(at, "is not supported yet: ignored")
			}
		case f.values != "" && (m.Has(d) || d.Kind() == protoreflect.EnumKind):
			// The zero of an enum is a value like others, although it does not count as set.
			w.values(at, m.Get(d), d, f.values)
		case m.Has(d):
			w.field(at, m.Get(d), d, f)
		}
	}
}

// enter changes the scope if the message declares where it takes effect.
func (w *fieldWalk) enter(m protoreflect.Message) {
	switch m := m.Interface().(type) {
	case *networking.DestinationRule:
		w.scope.Selected = len(m.GetWorkloadSelector().GetMatchLabels()) > 0
	case *networking.Sidecar:
		for _, in := range m.Ingress {
			w.scope.Ports = append(w.scope.Ports, sidecarPort(in.GetPort()))
		}
	case *networking.IstioIngressListener:
		w.scope.Ports = []mesh.Port{sidecarPort(m.GetPort())}
	case *networking.TrafficPolicy_PortTrafficPolicy:
		w.scope = w.scope.only(m.GetPort().GetNumber())
	case *networking.ConnectionPoolSettings:
		h := m.GetHttp()
		w.scope.HTTP2 = w.scope.HTTP2 && h.GetH2UpgradePolicy() != networking.ConnectionPoolSettings_HTTPSettings_DO_NOT_UPGRADE ||
			h.GetUseClientProtocol() || !w.scope.Server && h.GetH2UpgradePolicy() == networking.ConnectionPoolSettings_HTTPSettings_UPGRADE
	}
}

func sidecarPort(p *networking.SidecarPort) mesh.Port {
	protocol, _ := mesh.ParseProtocol(p.GetProtocol())
	return mesh.Port{Number: p.GetNumber(), Name: p.GetName(), Protocol: protocol}
}

// field checks a field that is set.
func (w *fieldWalk) field(p *document.Path, v protoreflect.Value, d protoreflect.FieldDescriptor, f *field) {
	defer func(s Scope) { w.scope = s }(w.scope)
	w.scope.Server = w.scope.Server || f.server
	reason := f.idleOn(w.scope)
	if !w.portsOnly {
		reason = f.idle(w.scope)
	}
	switch {
	case reason != "":
		w.warn(p, "%s", reason)
	case len(f.children) == 0:
	case d.IsMap():
		for _, k := range sortedKeys(v.Map()) {
			w.message(p.Key(k.String()), v.Map().Get(k).Message(), f)
		}
	case d.IsList():
		for i := range v.List().Len() {
			w.message(p.At(i), v.List().Get(i).Message(), f)
		}
	default:
		w.message(p, v.Message(), f)
	}
}

// sortedKeys returns the keys of a map, in the order of their texts.
func sortedKeys(m protoreflect.Map) []protoreflect.MapKey {
	keys := make([]protoreflect.MapKey, 0, m.Len())
	for k := range m.Range {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return strings.Compare(a.String(), b.String()) })
	return keys
}

func (w *fieldWalk) values(p *document.Path, v protoreflect.Value, d protoreflect.FieldDescriptor, values string) {
	if w.portsOnly {
		return
	}
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
	case "targetKind":
		if text != "Gateway" {
			w.warn(p, "%s: only a Gateway is supported as target yet: ignored", text)
		}
	default:
		if !slices.Contains(strings.Split(values, "|"), text) {
			w.warn(p, "%s is not supported yet, only %s: ignored", text, strings.ReplaceAll(values, "|", ", "))
		}
	}
}
