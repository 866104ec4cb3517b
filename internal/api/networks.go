package api

import (
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/settings"
)

// DecodeNetworks reads a MeshNetworks file. If one of the Problems is an Error, the result is nil. As in a MeshConfig file,
// unknown fields are Warnings.
func DecodeNetworks(file string, data []byte) (*meshconfig.MeshNetworks, []Problem) {
	var r document.Report
	n := decodeNetworks(&r, data)
	found := problems(Key{Kind: "MeshNetworks"}, file, r.Findings())
	if r.Failed() {
		return nil, found
	}
	return n, found
}

func decodeNetworks(r *document.Report, data []byte) *meshconfig.MeshNetworks {
	root := onlyDocument(r, data)
	if r.Failed() || !r.Expect(nil, root, document.Mapping) {
		return nil
	}
	n := new(meshconfig.MeshNetworks)
	r.Add(document.Read(n, root, nil, document.Options{Lenient: true, JSON: true}))
	if r.Failed() {
		return nil
	}
	findings := settings.Networks(n)
	for i := range findings {
		findings[i].Line = root.LineOf(findings[i].Field)
	}
	r.Add(findings)
	return n
}

// SettingsKind returns "MeshConfig" or "MeshNetworks" for a file that holds such settings, which have no kind of their own, and
// "" for any other file.
func SettingsKind(data []byte) string {
	docs := document.Split(data)
	if len(docs) != 1 {
		return ""
	}
	root, err := docs[0].Parse()
	if err != nil || root == nil || root.Kind != document.Mapping || root.Get("kind") != nil || root.Get("apiVersion") != nil {
		return ""
	}
	fields := (*meshconfig.MeshConfig)(nil).ProtoReflect().Descriptor().Fields()
	for _, m := range root.Members {
		switch {
		case m.Key == "networks":
			return "MeshNetworks"
		case fields.ByJSONName(document.LowerCamel(m.Key)) != nil:
			return "MeshConfig"
		}
	}
	return ""
}
