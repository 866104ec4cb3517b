package connected

import (
	"cmp"
	"strings"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

// WantKey names a resource that a connected proxy asks for by name. Its type is one that is answered separately for each proxy.
type WantKey struct {
	Connection string
	ResourceKey
}

// Compare orders by connection, then type and name.
func (k WantKey) Compare(o WantKey) int {
	return cmp.Or(strings.Compare(k.Connection, o.Connection), k.ResourceKey.Compare(o.ResourceKey))
}

// Want records which proxy asks for a resource.
type Want struct {
	Proxy   string // the node id
	Refused string // the error message with which the proxy rejected the resource; empty if it did not
	// Asker is the service account that the proxy has shown to have; zero if it has not.
	Asker Account
}

// Account is a service account of a namespace.
type Account struct{ Namespace, Name string }

// Compare orders by namespace, then name.
func (a Account) Compare(o Account) int {
	return cmp.Or(cmp.Compare(a.Namespace, o.Namespace), cmp.Compare(a.Name, o.Name))
}

// Asked is a resource that some proxy of a service account asks for by name.
type Asked struct {
	ResourceKey
	By Account
}

// Compare orders by resource, then account.
func (a Asked) Compare(o Asked) int {
	return cmp.Or(a.ResourceKey.Compare(o.ResourceKey), a.By.Compare(o.By))
}

// AppendTo appends an unambiguous form.
func (a Asked) AppendTo(b []byte) []byte {
	return a.ResourceKey.AppendTo(append(append(append(append(b, a.By.Namespace...), 0), a.By.Name...), 0))
}

func (t *Rows) defineWants(db *store.DB) {
	t.Wants = store.NewTable[WantKey](db, "wants", func(a, b Want) bool { return a == b })
	t.WantsOf = store.NewIndex(t.Wants, "wantsOf", func(k WantKey, _ Want, add func(string, ResourceKey)) {
		add(k.Connection, k.ResourceKey)
	})
	t.WantedBy = store.NewIndex(t.Wants, "wantedBy", func(k WantKey, _ Want, add func(ResourceKey, omap.Name)) {
		add(k.ResourceKey, omap.Name(k.Connection))
	})
	t.Wanted = store.NewIndex(t.Wants, "wanted", func(k WantKey, _ Want, add func(struct{}, ResourceKey)) {
		add(struct{}{}, k.ResourceKey)
	})
	t.Asking = store.NewIndex(t.Wants, "asking", func(k WantKey, w Want, add func(struct{}, Asked)) {
		if w.Asker != (Account{}) {
			add(struct{}{}, Asked{k.ResourceKey, w.Asker})
		}
	})
}
