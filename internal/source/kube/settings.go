package kube

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pilotmesh/pilot/internal/api"
)

// The keys of the ConfigMap.
const (
	meshKey     = "mesh"
	networksKey = "meshNetworks"
)

// settings reads the mesh configuration and the mesh networks from ConfigMaps.
type settings struct {
	r *run
	// own is the table of the ConfigMap of the control plane, and shared the table of the ConfigMap whose mesh configuration is
	// merged under it; nil if there is none.
	own, shared *table
	// mesh and networks are those in force; nil before the first list.
	mesh     *meshconfig.MeshConfig
	networks *meshconfig.MeshNetworks
	// existed is true once the ConfigMap of the control plane was there.
	existed bool
	// base is the last good text of the shared ConfigMap.
	base []byte
}

// mapped has the texts of a ConfigMap that are read; nil for keys that it does not have.
type mapped struct{ mesh, networks *string }

func (m *mapped) equal(o *mapped) bool {
	same := func(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }
	return same(m.mesh, o.mesh) && same(m.networks, o.networks)
}

// newSettings starts to watch the ConfigMaps.
func newSettings(r *run) *settings {
	s := &settings{r: r}
	s.own = s.watch(configMap(r.o.Revision))
	if r.o.SharedMeshConfig != "" && r.o.MeshConfigMap {
		s.shared = s.watch(r.o.SharedMeshConfig)
	}
	return s
}

// watch starts to watch one ConfigMap.
func (s *settings) watch(of string) *table {
	t := &table{what: "configmap " + s.r.o.Namespace + "/" + of, changed: s.read}
	t.convert = func(o runtime.Object) content {
		text := func(key string) *string {
			if v, ok := o.(*core.ConfigMap).Data[key]; ok {
				return &v
			}
			return nil
		}
		return &mapped{text(meshKey), text(networksKey)}
	}
	t.merge = func(old, is content) content {
		if old.(*mapped).equal(is.(*mapped)) {
			return old
		}
		return is
	}
	f := filter{namespace: s.r.o.Namespace, fields: "metadata.name=" + of}
	s.r.watch(t, s.r.clients.typed(s.r.clients.core, "configmaps", f, &core.ConfigMap{}, func() runtime.Object { return &core.ConfigMapList{} }))
	return t
}

// read takes in the ConfigMaps once all of them are known.
func (s *settings) read() {
	for _, t := range []*table{s.own, s.shared} {
		if t != nil && !t.listed && !t.excused {
			return
		}
	}
	own, exists := only(s.own)
	s.existed = s.existed || exists
	if s.r.o.MeshConfigMap {
		s.readMesh(own, exists)
	}
	if s.r.o.NetworksConfigMap && (exists || !s.existed) {
		s.readNetworks(own)
	}
}

// only returns the only object of a table; an empty one if there is none.
func only(t *table) (*mapped, bool) {
	if t != nil {
		for _, c := range t.rows {
			return c.(*mapped), true
		}
	}
	return &mapped{}, false
}

func (s *settings) readMesh(own *mapped, exists bool) {
	place := s.own.what
	var text []byte
	var problems []api.Problem
	switch {
	case exists && own.mesh != nil:
		text = []byte(*own.mesh)
	case exists:
		s.report("mesh", place, fmt.Sprintf("has no key %s; the last good mesh configuration stays in force, or the defaults; add the key", meshKey))
		s.useDefault()
		return
	case s.existed:
		s.report("mesh", place, "was deleted; its last good mesh configuration stays in force; create it again")
		return
	}
	problems = append(problems, s.readShared()...)
	m, found := api.DecodeMeshOver(place, text, s.base)
	problems = append(problems, found...)
	problems = append(problems, api.UnsupportedMesh(place, text, true)...)
	s.r.report("mesh", problems...)
	if m == nil {
		s.useDefault()
		return
	}
	s.use(m)
}

// readShared takes in the shared ConfigMap and returns its problems.
func (s *settings) readShared() []api.Problem {
	shared, exists := only(s.shared)
	if !exists || shared.mesh == nil {
		if s.shared == nil {
			return nil
		}
		return []api.Problem{{Position: api.Position{File: s.shared.what}, Severity: api.Warning, Code: "cluster-unreadable", Reason: fmt.Sprintf(
			"does not exist, or has no key %s, although SHARED_MESH_CONFIG names it; its last content stays in force; create it", meshKey)}}
	}
	text := []byte(*shared.mesh)
	m, problems := api.DecodeMesh(s.shared.what, text)
	if m != nil {
		s.base = text
	}
	return problems
}

// use puts a mesh configuration in force.
func (s *settings) use(m *meshconfig.MeshConfig) {
	if proto.Equal(m, s.mesh) {
		return
	}
	s.mesh, s.r.batch.Mesh = m, m
	s.r.useMesh(m)
}

// useDefault puts the defaults in force if nothing was before.
func (s *settings) useDefault() {
	if s.mesh == nil {
		s.use(api.DefaultMesh())
	}
}

func (s *settings) readNetworks(own *mapped) {
	if own.networks == nil {
		s.r.report("networks")
		if s.networks != nil {
			s.networks = nil
			s.r.batch.Networks = &meshconfig.MeshNetworks{}
		}
		return
	}
	n, problems := api.DecodeNetworks(s.own.what, []byte(*own.networks))
	s.r.report("networks", problems...)
	if n != nil && !proto.Equal(n, s.networks) {
		s.networks, s.r.batch.Networks = n, n
	}
}

func (s *settings) report(about, place, reason string) {
	s.r.report(about, api.Problem{Position: api.Position{File: place}, Severity: api.Error, Code: "cluster-unreadable", Reason: reason})
}
