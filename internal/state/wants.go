package state

import (
	"cmp"
	"strings"

	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/store"
)

// WantKey names what a connected proxy asks for by name, of a type that is answered proxy by proxy.
type WantKey struct {
	Connection string
	Sent
}

// Compare orders by connection, then type and name.
func (k WantKey) Compare(o WantKey) int {
	return cmp.Or(strings.Compare(k.Connection, o.Connection), k.Sent.Compare(o.Sent))
}

// Want is who asks.
type Want struct {
	Proxy   string // the node's id
	Refused string // why the client rejects what it was answered; empty if it does not
}

func (t *Tables) defineWants(db *store.DB) {
	t.Wants = store.NewTable[WantKey](db, "wants", same[Want])
	t.WantsOf = store.NewIndex(t.Wants, "wantsOf", func(k WantKey, _ Want, add func(string, Sent)) {
		add(k.Connection, k.Sent)
	})
	t.WantedBy = store.NewIndex(t.Wants, "wantedBy", func(k WantKey, _ Want, add func(Sent, omap.Name)) {
		add(k.Sent, omap.Name(k.Connection))
	})
	t.Wanted = store.NewIndex(t.Wants, "wanted", func(k WantKey, _ Want, add func(struct{}, Sent)) {
		add(struct{}{}, k.Sent)
	})
	t.Wants.OmitFromJournal()
}
