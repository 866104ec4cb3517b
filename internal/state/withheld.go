package state

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/store"
)

// Sent names a resource that proxies are sent.
type Sent struct {
	Type uint8 // as package resource numbers them
	Name string
}

// Compare orders by type, then name.
func (k Sent) Compare(o Sent) int {
	return cmp.Or(cmp.Compare(k.Type, o.Type), strings.Compare(k.Name, o.Name))
}

// AppendTo appends an unambiguous form.
func (k Sent) AppendTo(b []byte) []byte { return append(append(b, k.Type), k.Name...) }

// WithheldKey names a resource whose acknowledgement a connected proxy withholds.
type WithheldKey struct {
	Connection string
	Sent
}

// Withheld is who withholds the acknowledgement of a resource.
type Withheld struct {
	Proxy   string    // the node's id
	Objects []api.Key // the objects the resource was made of, at the time
	Since   time.Time // when the resource was sent; no query reads it
}

func (w Withheld) equal(o Withheld) bool {
	return w.Proxy == o.Proxy && slices.Equal(w.Objects, o.Objects)
}

func (t *Tables) defineWithheld(db *store.DB) {
	t.Withheld = store.NewTable[WithheldKey](db, "withheld", Withheld.equal)
	t.WithheldBy = store.NewIndex(t.Withheld, "withheldBy", func(k WithheldKey, _ Withheld, add func(Sent, omap.Name)) {
		add(k.Sent, omap.Name(k.Connection))
	})
	t.WithheldNames = store.NewIndex(t.Withheld, "withheldNames", func(k WithheldKey, _ Withheld, add func(struct{}, Sent)) {
		add(struct{}{}, k.Sent)
	})
}
