package proxy

import (
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
)

// TestClassHash: classes that differ in any facet have different hashes, also where one facet ends as the next begins.
func TestClassHash(t *testing.T) {
	seen := map[omap.Hash]Class{}
	for _, c := range []Class{
		{}, {Namespace: "a"}, {Sidecar: api.Key{Kind: "a"}}, {Sidecar: api.Key{Namespace: "a"}}, {Sidecar: api.Key{Name: "a"}},
		{Mode: None}, {ShortNames: true}, {HTTP10: true}, {Idle: 1}, {Idle: 256}, {Gateway: true},
		{Labels: "a"}, {Labels: "ab"}, {Labels: "a", Inbound: "b"}, {Inbound: "a"}, {Inbound: "ab"}, {Bind: "a"}, {Rules: "a"},
		{Site: mesh.Site{Labels: "a"}}, {Site: mesh.Site{Locality: mesh.Locality{Region: "a"}}},
		{Site: mesh.Site{Locality: mesh.Locality{Zone: "a"}}}, {Site: mesh.Site{Locality: mesh.Locality{SubZone: "a"}}},
	} {
		if other, ok := seen[c.Hash()]; ok {
			t.Errorf("%+v and %+v have one hash", c, other)
		}
		seen[c.Hash()] = c
	}
}
