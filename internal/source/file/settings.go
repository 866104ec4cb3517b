package file

import (
	"errors"
	"time"

	"google.golang.org/protobuf/proto"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
)

// settings is the state of a file with settings of the whole mesh, which are no objects. M is a pointer to their message.
type settings[M interface {
	comparable
	proto.Message
}] struct {
	path   string // empty: there is no such file
	what   string // for problems
	decode func(path string, data []byte) (M, []api.Problem)

	sum      omap.Hash // hash of the file's content
	good     M         // the last good version; nil if there was none
	changed  M         // the same, if it was not passed to the sink yet
	problems []api.Problem
}

func meshFile(path string, cluster bool) settings[*meshconfig.MeshConfig] {
	return settings[*meshconfig.MeshConfig]{path: path, what: "mesh configuration", decode: func(path string, data []byte) (*meshconfig.MeshConfig, []api.Problem) {
		m, problems := api.DecodeMesh(path, data)
		return m, append(problems, api.UnsupportedMesh(path, data, cluster)...)
	}}
}

func networksFile(path string) settings[*meshconfig.MeshNetworks] {
	return settings[*meshconfig.MeshNetworks]{path: path, what: "configuration of networks", decode: api.DecodeNetworks}
}

// known reports whether there is no such file, or a version of it has been valid.
func (s *settings[M]) known() bool {
	var none M
	return s.path == "" || s.good != none
}

// read reads the file. It must exist, because policies of the whole mesh may be defined in it.
func (s *settings[M]) read(r *run, now time.Time) {
	if s.path == "" {
		return
	}
	var none M
	data, _, err := readFile(s.path, r.Quiet)
	switch {
	case errors.Is(err, errBusy):
		r.pending.add(structural, now)
		return
	case err != nil:
		s.sum = omap.Hash{}
		s.problems = []api.Problem{problem(s.path, api.Error, "the %s cannot be read: %v; %s", s.what, err, r.consequence(s.good != none))}
		r.pending.postpone(structural, now.Add(r.Poll))
		return
	case len(data) == 0 && s.good != none && !r.stillEmpty(s.path, now):
		r.pending.postpone(structural, r.emptySince[s.path].Add(r.MaxWait))
		return
	case len(data) > 0:
		delete(r.emptySince, s.path)
	}
	sum := omap.Sum(data)
	if sum == s.sum {
		return
	}
	s.sum = sum
	m, problems := s.decode(s.path, data)
	s.problems = problems
	if m != none && (s.good == none || !proto.Equal(m, s.good)) {
		s.good, s.changed = m, m
	}
}
