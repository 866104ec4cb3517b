package shape

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	_ "istio.io/api/extensions/v1alpha1"
	_ "istio.io/api/mesh/v1alpha1"
	_ "istio.io/api/networking/v1alpha3"
	_ "istio.io/api/networking/v1beta1"
	_ "istio.io/api/security/v1beta1"
	_ "istio.io/api/telemetry/v1alpha1"
)

// TestShapes: every field with a rule of its own exists, so that no rule is lost by a slip of the pen.
func TestShapes(t *testing.T) {
	text, err := os.ReadFile("shape.go")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(text), "func shapeOf(")
	body, _, _ = strings.Cut(body, "\n}\n")
	n := 0
	for _, m := range regexp.MustCompile(`"([A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)+)"`).FindAllStringSubmatch(body, -1) {
		name := m[1]
		if !strings.HasPrefix(name, "istio.") {
			name = networkingPackage + name
		}
		if name == "google.protobuf.Duration" || name == networkingPackage+"google.protobuf.Duration" {
			continue
		}
		n++
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
		if f, ok := d.(protoreflect.FieldDescriptor); err != nil || !ok {
			t.Errorf("%s is no field: %v", name, err)
		} else if shapeOf(f) == anyShape {
			t.Errorf("%s has no rule", name)
		}
	}
	if n < 30 {
		t.Errorf("found %d rules only", n)
	}
}
