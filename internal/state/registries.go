package state

import (
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state/claim"
	"github.com/pilotmesh/pilot/internal/state/settings"
)

// Registries are about services of registries outside Kubernetes. Their claims, descriptions and endpoints are rows of Claims, Services,
// Endpoints and Identities, with the key of the service.
type Registries struct {
	// Services are the names of the services in their registries. No query that proxies depend on reads them.
	Services store.Table[api.Key, string]
	// Migrations are how registries share the traffic of a host, by host.
	Migrations store.Table[string, *registry.Migration]
	// All lists, under the empty key, the services of registries.
	All store.Index[struct{}, api.Key]
	// Entries lists, under the empty key, the names (entryName) of the ServiceEntries as which other control planes read these services. ByEntry lists the
	// services of an entry: several registries may have a host.
	Entries store.Index[struct{}, omap.Name]
	ByEntry store.Index[omap.Name, api.Key]
}

// entryName returns the name, NAMESPACE/NAME, of the ServiceEntry as which other control planes read a service of a registry.
func entryName(k api.Key) omap.Name {
	return omap.Name(k.Namespace + "/" + strings.ReplaceAll(k.Name, ".", "-"))
}

func (t *Tables) defineRegistries(db *store.DB) {
	t.Registries.Services = store.NewTable[api.Key](db, "registryServices", same[string])
	t.Registries.Migrations = store.NewTable[string](db, "migrations", func(a, b *registry.Migration) bool { return a.Same(b) })
	t.Registries.All = store.NewIndex(t.Registries.Services, "allRegistered", func(k api.Key, _ string, add func(struct{}, api.Key)) {
		add(struct{}{}, k)
	})
	t.Registries.Entries = store.NewIndex(t.Registries.Services, "registeredEntries", func(k api.Key, _ string, add func(struct{}, omap.Name)) {
		add(struct{}{}, entryName(k))
	})
	t.Registries.ByEntry = store.NewIndex(t.Registries.Services, "registeredByEntry", func(k api.Key, _ string, add func(omap.Name, api.Key)) {
		add(entryName(k), k)
	})
}

// applyRegistry writes the change of a service of a registry, or of a migration. It reports whether the event is about one.
func (t *Tables) applyRegistry(tx *store.Txn, e source.Event) bool {
	switch e.Key.Kind {
	case registry.KindService:
		s, ok := e.Value.(*registry.Service)
		t.splitRegistered(tx, e.Key, s, ok)
	case registry.KindMigration:
		host := strings.ToLower(e.Key.Name)
		if m, ok := e.Value.(*registry.Migration); ok {
			t.Registries.Migrations.Set(tx, host, m)
		} else {
			t.Registries.Migrations.Delete(tx, host)
		}
	default:
		return false
	}
	return true
}

func (t *Tables) splitRegistered(tx *store.Txn, k api.Key, s *registry.Service, present bool) {
	if !present {
		t.Registries.Services.Delete(tx, k)
		for _, table := range []rows{t.Claims, t.Services, t.Endpoints, t.Identities} {
			table.Delete(tx, k)
		}
		return
	}
	t.Registries.Services.Set(tx, k, s.Named)
	layers := t.layers(s.ExportTo, k.Namespace, settings.ServiceExportTo)
	t.Claims.Set(tx, k, &claim.Claims{Kind: claim.Service, Created: registered + int64(s.Order), Hosts: []string{k.Name}, Layers: layers})
	t.Services.Set(tx, k, s.Spec)
	e := &Endpoints{Inline: s.Endpoints, Scale: s.Scale}
	t.Endpoints.Set(tx, k, e)
	if who := identities(e); who.MeshTLS {
		t.Identities.Set(tx, k, who)
	} else {
		t.Identities.Delete(tx, k)
	}
}

// registered is the creation time of services of the first registry: later than any object. So an object goes before a service of a registry
// where hosts compete, and of two registries the first one of the file.
const registered = int64(1) << 60
