package state

import (
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/state/connected"
)

// Registrations are the templates for WorkloadEntries of proxies, and the WorkloadEntries that control planes have made for proxies.
type Registrations struct {
	// Groups are the WorkloadGroups.
	Groups store.Table[api.Key, *WorkloadGroup]
	// Entries are the WorkloadEntries that control planes have made.
	Entries store.Table[api.Key, Registered]
	// EntryKeys lists the keys of Entries under the empty key.
	EntryKeys store.Index[struct{}, api.Key]
}

// WorkloadGroup is a template for WorkloadEntries.
type WorkloadGroup struct {
	Spec *networking.WorkloadGroup
	Hash omap.Hash
}

// Registered is the registration of a WorkloadEntry that a control plane has made.
type Registered struct {
	// Group is the name of the WorkloadGroup.
	Group string
	// Controller names the replica that the proxy is, or was, connected to.
	Controller string
	// Connected is when the proxy connected, and Disconnected when it disconnected; zero while it is connected.
	Connected, Disconnected time.Time
	Health                  connected.HealthState
}

// RegisteredBy reads the registration from the annotations of a WorkloadEntry. Group is empty if no control plane has made it.
func RegisteredBy(annotations map[string]string, health connected.HealthState) Registered {
	at := func(key string) time.Time {
		t, _ := time.Parse(time.RFC3339Nano, annotations[key])
		return t.UTC()
	}
	return Registered{annotations[api.RegisteredBy], annotations[api.Controller], at(api.ConnectedAt), at(api.DisconnectedAt), health}
}

func flag(set bool) []byte {
	if set {
		return []byte{1}
	}
	return []byte{0}
}

func (t *Tables) defineRegistrations(db *store.DB) {
	x := &t.Registrations
	x.Groups = store.NewTable[api.Key, *WorkloadGroup](db, "workloadGroups", func(a, b *WorkloadGroup) bool { return a.Hash == b.Hash })
	x.Entries = store.NewTable[api.Key, Registered](db, "registered", same[Registered])
	x.EntryKeys = store.NewIndex(x.Entries, "registeredKeys", func(k api.Key, _ Registered, add func(struct{}, api.Key)) { add(struct{}{}, k) })
}

// ControlNamespace returns the namespace of the control plane in the cluster whose configuration it reads; empty if it reads none. It
// does not change.
func (t *Tables) ControlNamespace() string { return t.options.ControlNamespace }

// RegistersUnverified reports whether unauthenticated proxies may ask to be registered. It does not change.
func (t *Tables) RegistersUnverified() bool { return t.options.RegisterUnverified }

func (t *Tables) splitWorkloadGroup(tx *store.Txn, o *api.Object, spec *networking.WorkloadGroup) {
	t.Registrations.Groups.Set(tx, o.Key, &WorkloadGroup{spec, o.Hash})
}

// register writes the registration of a WorkloadEntry, if it has one.
func (t *Tables) register(tx *store.Txn, o *api.Object) {
	health := connected.HealthUnknown
	if o.Healthy {
		health = connected.Healthy
	} else if o.Unhealthy {
		health = connected.Unhealthy
	}
	r := RegisteredBy(o.Annotations, health)
	write(tx, t.Registrations.Entries, o.Key, r, r.Group != "")
}
