package state

import (
	"strconv"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

// Accounts are the service accounts of the endpoints of a Service of Kubernetes, sorted.
type Accounts struct {
	Service api.Key
	List    intern.List[string]
	// Known is false if no endpoint has an account or accepts mesh TLS, as if there is none.
	Known bool
}

// OutputName is the key of the Service as text.
func (a Accounts) OutputName() string { return a.Service.String() }

// ContentHash covers the accounts.
func (a Accounts) ContentHash() omap.Hash {
	b := strconv.AppendBool(nil, a.Known)
	for account := range a.List.All() {
		b = append(append(b, account...), 0)
	}
	return omap.Sum(b)
}

// Size is 0 because no proxy receives it by itself.
func (Accounts) Size() int { return 0 }

// RememberAccounts returns a function that writes the rows of Kube.LastAccounts after the accounts of all Services have changed from one value to another;
// nil if there are none to write. A Service without endpoints keeps its row, and a Service that is gone has none.
func (t *Tables) RememberAccounts(old, now omap.Map[omap.Name, Accounts]) (write func(tx *store.Txn)) {
	var known []Accounts
	var gone []api.Key
	for c := range omap.Diff(old, now) {
		switch {
		case !c.HasNew:
			gone = append(gone, c.Old.Service)
		case c.New.Known:
			known = append(known, c.New)
		}
	}
	if len(known)+len(gone) == 0 {
		return nil
	}
	return func(tx *store.Txn) {
		for _, k := range gone {
			t.Kube.LastAccounts.Delete(tx, k)
		}
		for _, a := range known {
			t.Kube.LastAccounts.Set(tx, a.Service, a.List)
		}
	}
}
