package api

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api/document"
)

// EmbeddedMesh is a mesh configuration in a document of another kind.
type EmbeddedMesh struct {
	// Mesh is merged over the defaults. It is nil if one of the Problems is an Error.
	Mesh     *meshconfig.MeshConfig
	Position Position
	Problems []Problem
}

// Same reports whether two valid mesh configurations are equal.
func (e *EmbeddedMesh) Same(o *EmbeddedMesh) bool { return proto.Equal(e.Mesh, o.Mesh) }

// Embedded returns the mesh configuration in a document that was not checked yet: an IstioOperator, an Istio resource of the operator of
// that name, the ConfigMap of a control plane, or the values of a Helm chart. It returns nil if there is none.
func (d Document) Embedded() (found *EmbeddedMesh) {
	if d.Form != NoObject && d.Other == nil {
		return nil
	}
	defer contain(func(reason string) {
		found = &EmbeddedMesh{Position: d.Position, Problems: aboutMesh(d.Position.File, reason)}
	})
	root, err := d.text.Parse()
	if err != nil || root == nil {
		return nil
	}
	if d.prefix != "" {
		i := 0
		if _, err := fmt.Sscanf(d.prefix, "items[%d]", &i); err != nil {
			return nil
		}
		root = root.Get("items").Items[i]
	}
	v := meshIn(root, d.Form)
	switch {
	case v == nil:
		return nil
	case v.Kind == document.Mapping:
		return embedded(d.Position.File, v)
	case v.Kind == document.String:
		// A block of text begins on the line after its key.
		text := strings.Repeat("\n", v.Line) + v.Scalar
		var r document.Report
		if user := onlyDocument(&r, []byte(text)); !r.Failed() {
			return embedded(d.Position.File, user)
		}
		return &EmbeddedMesh{Position: d.Position, Problems: problems(Key{Kind: kindMesh}, d.Position.File, r.Findings())}
	}
	return nil
}

func embedded(file string, user *document.Value) *EmbeddedMesh {
	var r document.Report
	m := mergeMesh(&r, user, &document.Value{Kind: document.Mapping})
	e := &EmbeddedMesh{Position: Position{File: file, Line: user.Line}, Problems: problems(Key{Kind: kindMesh}, file, r.Findings())}
	if !r.Failed() {
		var more document.Report
		e.Mesh, e.Problems = m, append(e.Problems, unsupportedMesh(&more, file, user, true)...)
	}
	return e
}

// meshIn returns the mesh configuration in a document; nil if there is none. In a ConfigMap it is a text.
func meshIn(root *document.Value, form Form) *document.Value {
	spec := root.Get("spec")
	groupName, _, _ := strings.Cut(root.Get("apiVersion").Text(), "/")
	switch groupName + " " + root.Get("kind").Text() {
	case "install.istio.io IstioOperator":
		if v := spec.Get("meshConfig"); v != nil {
			return v
		}
		return spec.Get("values").Get("meshConfig")
	case "sailoperator.io Istio":
		return spec.Get("values").Get("meshConfig")
	case "v1 ConfigMap":
		if name := root.Get("metadata").Get("name").Text(); name == "istio" || strings.HasPrefix(name, "istio-") {
			return root.Get("data").Get("mesh")
		}
		return nil
	}
	if v := root.Get("meshConfig"); form == NoObject && v != nil && v.Kind == document.Mapping {
		return v
	}
	return nil
}
