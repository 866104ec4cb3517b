package inject

import (
	"maps"
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
)

// Mistake is an annotation with a value that stops the injection of a pod.
type Mistake struct {
	Annotation, Reason string
}

// Mistakes returns the annotations that stop the injection of a pod, by name. The settings of the mesh count for proxy.istio.io/config; they
// are the defaults here.
func Mistakes(annotations map[string]string) (list []Mistake) {
	checks := annotationChecks()
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		switch check := checks[name]; {
		case name == configAnnotation:
			_, found := api.OverlayProxy(api.DefaultMesh().GetDefaultConfig(), annotations[name])
			for _, p := range found {
				if p.Severity == api.Error {
					list = append(list, Mistake{name, inConfig(p)})
				}
			}
		case check != nil:
			if reason := check(annotations[name]); reason != "" {
				list = append(list, Mistake{name, quote(annotations[name]) + ": " + reason})
			}
		}
	}
	return list
}
