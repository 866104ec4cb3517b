package api

import (
	"slices"

	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/fields"
)

// Unsupported returns a Warning for every field of the object that is valid, but has no effect. It names the topmost such field,
// and not the fields beneath it.
func Unsupported(o *Object) []Problem {
	var r document.Report
	at := (*document.Path)(nil).Field("spec")
	if k, ok := kindOfSpec(o.Spec); ok {
		fields.Check(&r, at, k.Name, o.Spec)
	} else {
		r.Warn(0, at, "objects of type %T are not known here: ignored", o.Spec)
	}
	idleLabelsOf(&r, o)
	found := problems(o.Key, o.Position.File, r.Findings())
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
	var found document.Report
	defaults := DefaultMesh()
	if cluster {
		m.DiscoverySelectors = nil
	}
	m.ExtensionProviders = slices.DeleteFunc(m.ExtensionProviders, func(p *meshconfig.MeshConfig_ExtensionProvider) bool {
		return slices.ContainsFunc(defaults.ExtensionProviders, func(d *meshconfig.MeshConfig_ExtensionProvider) bool { return proto.Equal(d, p) })
	})
	fields.CheckMesh(&found, m, defaults)
	findings := found.Findings()
	for i := range findings {
		findings[i].Line, findings[i].Code = user.LineOf(findings[i].Field), "field-unsupported"
	}
	return problems(Key{Kind: kindMesh}, file, findings)
}

// kindMesh is the kind in the Problems of a mesh configuration.
const kindMesh = fields.MeshConfig
