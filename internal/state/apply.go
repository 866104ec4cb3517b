package state

import (
	"slices"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/source"
)

// Apply writes the changes of a batch of a source.
func (t *Tables) Apply(tx *store.Txn, b source.Batch) {
	was, _ := t.Sources.Peek(b.Source)
	t.Sources.Set(tx, b.Source, Source{Synced: was.Synced || b.Synced})
	t.changeProblems(tx, b.Source, b.Problems)
	if b.Mesh != nil {
		t.MeshConfig.Set(tx, struct{}{}, b.Mesh)
	}
	if b.Mesh != nil && t.writeSettings(tx, b.Mesh) {
		for _, o := range t.Objects.All() {
			if expose := t.kinds[o.Kind].expose; expose != nil {
				expose(tx, o)
			}
		}
		for k := range t.Kube.Services.All() {
			t.splitService(tx, k)
			t.exposeServices(tx, k)
		}
	}
	if b.Networks != nil {
		t.writeNetworks(tx, b.Networks)
	}
	for _, e := range b.Events {
		if t.applyKube(tx, e) || t.Security.Apply(tx, e) || t.applyResolution(tx, e) || t.applyRegistry(tx, e) {
			continue
		}
		at := sourcedKey{b.Source, e.Key}
		if e.Object == nil {
			t.sourced.Delete(tx, at)
		} else {
			t.sourced.Set(tx, at, e.Object)
		}
		t.settle(tx, e.Key)
	}
}

// writeSettings replaces the settings. It reports whether the rows of objects must be rewritten.
func (t *Tables) writeSettings(tx *store.Txn, m *meshconfig.MeshConfig) (resplit bool) {
	t.Security.WriteProviders(tx, m)
	t.writeTelemetryProviders(tx, m)
	return t.Settings.Write(tx, m)
}

// Synced reports whether all of the sources have delivered their first complete list. Only the owner of the store may call it.
func (t *Tables) Synced(sources ...string) bool {
	for _, name := range sources {
		if s, _ := t.Sources.Peek(name); !s.Synced {
			return false
		}
	}
	return true
}

// changeProblems adds and removes problems of a source.
func (t *Tables) changeProblems(tx *store.Txn, name string, events []source.ProblemEvent) {
	if len(events) == 0 {
		return
	}
	old, _ := t.SourceProblems.Peek(name)
	changes := make([]omap.Change[omap.Name, api.Problem], 0, len(events))
	for _, e := range events {
		key := omap.Name(e.Problem.OutputName())
		if e.Gone {
			changes = append(changes, omap.Del[omap.Name, api.Problem](key))
		} else {
			changes = append(changes, omap.Put(key, e.Problem))
		}
	}
	t.SourceProblems.Set(tx, name, omap.With(old, changes...))
}

// settle puts the version of an object from the source with the highest precedence in force.
func (t *Tables) settle(tx *store.Txn, k api.Key) {
	var holders []string
	for name := range t.Sources.All() {
		if _, ok := t.sourced.Peek(sourcedKey{name, k}); ok {
			holders = append(holders, name)
		}
	}
	if len(holders) == 0 {
		t.remove(tx, k)
		return
	}
	t.sourceOrder(holders)
	if len(holders) == 1 {
		t.Duplicates.Delete(tx, k)
	} else {
		t.Duplicates.Set(tx, k, slices.Clone(holders))
	}
	o, _ := t.sourced.Peek(sourcedKey{holders[0], k})
	t.Positions.Set(tx, k, o.Position)
	if old, ok := t.Objects.Peek(k); ok && old.Hash == o.Hash {
		return
	}
	bare := *o
	bare.Position = api.Position{}
	t.Objects.Set(tx, k, &bare)
	t.kinds[k.Kind].split(tx, &bare)
}

func (t *Tables) remove(tx *store.Txn, k api.Key) {
	t.Objects.Delete(tx, k)
	t.Duplicates.Delete(tx, k)
	t.Positions.Delete(tx, k)
	for _, rows := range t.kinds[k.Kind].tables {
		rows.Delete(tx, k)
	}
}
