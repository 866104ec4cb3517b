package state

import (
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/state/gatewayrows"
)

// RowsOf returns the rows that an object was split into, and the row that changes whenever the object does. ok is false if there
// is no such object. It is for the owner of the store.
func (t *Tables) RowsOf(k api.Key) (split []store.ID, whole store.ID, ok bool) {
	var tables []rows
	switch k.Kind {
	case kube.KindService:
		if _, ok := t.Kube.Services.Peek(k); !ok {
			return nil, 0, false
		}
		whole, _ = t.Kube.Services.Leaf(k)
		tables = []rows{t.Kube.Services, t.Claims, t.Services, t.Endpoints, t.Identities}
	case registry.KindService:
		if _, ok := t.Registries.Services.Peek(k); !ok {
			return nil, 0, false
		}
		whole, _ = t.Registries.Services.Leaf(k)
		tables = []rows{t.Claims, t.Services, t.Endpoints, t.Identities}
	default:
		if _, ok := t.Objects.Peek(k); !ok {
			return nil, 0, false
		}
		whole, _ = t.Objects.Leaf(k)
		tables = t.kinds[k.Kind].tables
	}
	for _, one := range tables {
		switch one := one.(type) {
		case row:
			if id, ok := one.Leaf(k); ok {
				split = append(split, id)
			}
		case *gatewayrows.Declared:
			split = append(split, one.Leaves(k)...)
		}
	}
	return split, whole, true
}
