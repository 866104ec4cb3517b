package fields

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

// MeshConfig is the section of the fields of a mesh configuration.
const MeshConfig = "MeshConfig"

// Check adds a warning for every field of an object's spec that is set and has no effect. It names the topmost such field, and not the fields
// beneath it. at is the path of the spec. A kind without a section in the table is a mistake of the caller.
func Check(r *document.Report, at *document.Path, kind string, spec proto.Message) {
	w := walk{Report: r}
	w.message(at, spec.ProtoReflect(), supported()[kind])
}

// CheckMesh adds such warnings for a mesh configuration. A field with its value in defaults needs no warning, and is cleared.
func CheckMesh(r *document.Report, m, defaults *meshconfig.MeshConfig) {
	w, known := walk{Report: r}, supported()[MeshConfig]
	set, base := m.ProtoReflect(), defaults.ProtoReflect()
	w.zeros(nil, set, base, known)
	sameAsDefault(set, base)
	w.message(nil, set, known)
}

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
func (w *walk) zeros(p *document.Path, m, base protoreflect.Message, known *field) {
	fields := base.Descriptor().Fields()
	for i := range fields.Len() {
		d := fields.Get(i)
		if reason := known.children[d.JSONName()].idle(w.scope); base.Has(d) && !m.Has(d) && reason != "" {
			w.warn(p.Field(d.JSONName()), "%s", reason)
		}
	}
}

// Idle is a field that is set and has no effect, with the reason.
type Idle struct{ Field, Reason string }

// InPolicy returns the fields of a DestinationRule's traffic policy that have no effect on any of its ports. It omits fields
// that the product never acts on, because Check warns of these.
func InPolicy(policy *networking.TrafficPolicy, at string, s Scope) []Idle {
	if policy == nil {
		return nil
	}
	w := walk{Report: new(document.Report), scope: s, portsOnly: true}
	w.message((*document.Path)(nil).Field(at), policy.ProtoReflect(), supported()["DestinationRule"].children["trafficPolicy"])
	var list []Idle
	for _, f := range w.Findings() {
		list = append(list, Idle{f.Field, f.Reason})
	}
	return list
}

// walk finds fields of a message that are set and have no effect.
type walk struct {
	*document.Report
	scope Scope
	// portsOnly is true to find only fields that have no effect on the ports of the scope.
	portsOnly bool
}

func (w *walk) warn(p *document.Path, format string, args ...any) { w.Warn(0, p, format, args...) }

func (w *walk) message(p *document.Path, m protoreflect.Message, known *field) {
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
func (w *walk) enter(m protoreflect.Message) {
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
func (w *walk) field(p *document.Path, v protoreflect.Value, d protoreflect.FieldDescriptor, f *field) {
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

func (w *walk) values(p *document.Path, v protoreflect.Value, d protoreflect.FieldDescriptor, values string) {
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

func (w *walk) value(p *document.Path, v protoreflect.Value, d protoreflect.FieldDescriptor, values string) {
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
