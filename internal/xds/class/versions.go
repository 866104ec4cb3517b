package class

import (
	"slices"
	"strconv"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
)

// Version names a version of an object of a cluster.
type Version struct {
	Key        api.Key
	Generation int64
}

// Versions are the versions of objects, by object.
type Versions = omap.Map[omap.Name, Version]

// OutputName implements query.Output.
func (v Version) OutputName() string { return v.Key.String() }

// ContentHash implements omap.Value.
func (v Version) ContentHash() omap.Hash {
	return omap.Sum(v.Key.AppendTo(nil), strconv.AppendInt(nil, v.Generation, 10))
}

// Size implements omap.Value: versions are not sent to proxies.
func (Version) Size() int { return 0 }

// defineVersions defines the versions of the objects that clusters have. The push loop observes them, to report about objects.
func (q *Queries) defineVersions(g *query.Graph) {
	of := query.Each(g, "versions", func(r *query.Reader, kind string) omap.Map[api.Key, omap.Unit] {
		return q.tables.Kinds.Group(r, kind)
	}, query.Define(g, "version", slices.Equal[[]Version], func(r *query.Reader, k api.Key) ([]Version, bool) {
		at, _ := q.tables.Positions.Get(r, k)
		if at.Generation == 0 {
			return nil, false
		}
		return []Version{{k, at.Generation}}, true
	}), func(_ string, k api.Key) api.Key { return k })
	q.Versions = query.DefineLayers(g, "allVersions", func(r *query.Reader, _ All) (list []Versions) {
		for _, kind := range api.Kinds() {
			list = append(list, of.Get(r, kind.Name))
		}
		return list
	})
}
