package state

import (
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/state/connected"
)

// Permission says whether a service account may read the Secrets of its namespace.
type Permission struct {
	Allowed bool
	// Trouble is why the permission is not known; empty if it is.
	Trouble string
}

// kindPermission is the kind of the events about permissions. They have no object.
const kindPermission = "SecretPermission"

// permitted is a permission as the value of an event.
type permitted struct{ Permission }

// Kind implements kube.Value.
func (*permitted) Kind() string { return kindPermission }

// Same implements kube.Value.
func (p *permitted) Same(v kube.Value) bool {
	o, ok := v.(*permitted)
	return ok && *o == *p
}

// PermissionEvent is the event of a new permission of a service account. nil means that its permission is not known any more.
func PermissionEvent(of connected.Account, p *Permission) source.Event {
	e := source.Event{Key: api.Key{Kind: kindPermission, Namespace: of.Namespace, Name: of.Name}}
	if p != nil {
		e.Value = &permitted{*p}
	}
	return e
}

func (t *Tables) applyPermission(tx *store.Txn, e source.Event) {
	of := connected.Account{Namespace: e.Key.Namespace, Name: e.Key.Name}
	if p, ok := e.Value.(*permitted); ok {
		t.Kube.SecretReaders.Set(tx, of, p.Permission)
	} else {
		t.Kube.SecretReaders.Delete(tx, of)
	}
}
