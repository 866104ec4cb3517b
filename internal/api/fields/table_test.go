package fields

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	extensions "istio.io/api/extensions/v1alpha1"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	networkingv1beta1 "istio.io/api/networking/v1beta1"
	security "istio.io/api/security/v1beta1"
	telemetry "istio.io/api/telemetry/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api/ingress"
)

// described are the descriptors of the messages in the table of supported fields.
func described() map[string]protoreflect.MessageDescriptor {
	kinds := map[string]protoreflect.MessageDescriptor{}
	for _, m := range []proto.Message{
		new(networking.ServiceEntry), new(networking.WorkloadEntry), new(networking.WorkloadGroup), new(networking.VirtualService), new(networking.DestinationRule),
		new(networking.Gateway), new(networking.Sidecar), new(networking.EnvoyFilter), new(networkingv1beta1.ProxyConfig), new(security.AuthorizationPolicy),
		new(security.PeerAuthentication), new(security.RequestAuthentication), new(telemetry.Telemetry), new(extensions.WasmPlugin), new(meshconfig.MeshConfig),
		new(extensions.TrafficExtension),
	} {
		d := m.ProtoReflect().Descriptor()
		kinds[string(d.Name())] = d
	}
	kinds[ingress.Kind] = ingress.NewSpec().ProtoReflect().Descriptor()
	kinds[ingress.ClassKind] = ingress.NewClass().ProtoReflect().Descriptor()
	return kinds
}

// TestEveryFieldIsDecided: the table decides for every field of the API whether the product acts on it, and has no other lines.
func TestEveryFieldIsDecided(t *testing.T) {
	kinds := described()
	for name := range supported() {
		if kinds[name] == nil {
			t.Errorf("%s is no kind of object", name)
		}
	}
	for name, d := range kinds {
		if supported()[name] == nil {
			t.Errorf("%s has no section in supportedFields", name)
			continue
		}
		for _, reason := range undecided(name, d, supported()[name]) {
			t.Error(reason)
		}
	}
}

// TestUndecidedFieldsAreFound: a field without a line, a line without a field, and a line above others are found.
func TestUndecidedFieldsAreFound(t *testing.T) {
	d := new(networking.WorkloadEntry).ProtoReflect().Descriptor()
	of := func(table string) string {
		return strings.Join(undecided("W", d, parseFields(table)["W"]), "\n")
	}
	const most = "W\n\taddress\n\tports\n\tlabels\n\tnetwork  no: reason\n\tlocality\n\tserviceAccount\n"
	for table, want := range map[string]string{
		most + "\tweight\n":                    "",
		most:                                   "W.weight has no line in supportedFields: decide whether the product acts on it",
		most + "\tweight\n\tcolour\n":          "W.colour does not exist",
		most + "\tweight.sub\n":                "W.weight has no fields beneath it",
		most + "\tweight  shape\nshape\n\ta\n": "W.weight has no fields beneath it",
	} {
		if got := of(table); got != want {
			t.Errorf("%s: got %q, want %q", table, got, want)
		}
	}
	rule := new(networking.DestinationRule).ProtoReflect().Descriptor()
	got := undecided("D", rule, parseFields("D\n\thost\n\ttrafficPolicy\n\tsubsets no\n\texportTo\n\tworkloadSelector.matchLabels\n")["D"])
	if want := "D.trafficPolicy is listed as a whole: list the fields beneath it"; len(got) != 1 || got[0] != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// undecided compares the fields of a message with their lines.
func undecided(at string, d protoreflect.MessageDescriptor, f *field) (reasons []string) {
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		path, child := at+"."+fd.JSONName(), f.children[fd.JSONName()]
		m := fd.Message()
		if fd.IsMap() {
			m = fd.MapValue().Message()
		}
		beneath := m != nil && m.ParentFile().Package() != "google.protobuf" && m.Fields().Len() > 0
		switch {
		case child == nil:
			reasons = append(reasons, path+" has no line in supportedFields: decide whether the product acts on it")
		case child.refused || child.gateway && child.listed:
		case !beneath && len(child.children) > 0:
			reasons = append(reasons, path+" has no fields beneath it")
		case child.listed && len(child.children) > 0:
			reasons = append(reasons, path+" is listed together with fields beneath it")
		case beneath && child.listed:
			reasons = append(reasons, path+" is listed as a whole: list the fields beneath it")
		case beneath:
			reasons = append(reasons, undecided(path, m, child)...)
		case fd.Kind() == protoreflect.EnumKind && child.values != "":
			for v := range strings.SplitSeq(child.values, "|") {
				if fd.Enum().Values().ByName(protoreflect.Name(v)) == nil {
					reasons = append(reasons, path+" cannot be "+v)
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.children)) {
		if d.Fields().ByJSONName(name) == nil {
			reasons = append(reasons, at+"."+name+" does not exist")
		}
	}
	return reasons
}
