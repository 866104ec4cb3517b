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

// ResourceKey names a resource.
type ResourceKey struct {
	Type uint8 // the resource.Type
	Name string
}

// Compare orders by type, then name.
func (k ResourceKey) Compare(o ResourceKey) int {
	return cmp.Or(cmp.Compare(k.Type, o.Type), strings.Compare(k.Name, o.Name))
}

// AppendTo appends an unambiguous form.
func (k ResourceKey) AppendTo(b []byte) []byte { return append(append(b, k.Type), k.Name...) }

// WithheldKey names a resource that a connected proxy does not acknowledge.
type WithheldKey struct {
	Connection string
	ResourceKey
}

// Withheld tells which proxy does not acknowledge a resource.
type Withheld struct {
	Proxy   string    // the node id
	Objects []api.Key // the objects that the resource was made of when it was sent
	Since   time.Time // the time when the resource was sent; no query reads it
}

func (w Withheld) equal(o Withheld) bool {
	return w.Proxy == o.Proxy && slices.Equal(w.Objects, o.Objects)
}

func (t *Tables) defineWithheld(db *store.DB) {
	t.Withheld = store.NewTable[WithheldKey](db, "withheld", Withheld.equal)
	t.WithheldBy = store.NewIndex(t.Withheld, "withheldBy", func(k WithheldKey, _ Withheld, add func(ResourceKey, omap.Name)) {
		add(k.ResourceKey, omap.Name(k.Connection))
	})
	t.WithheldNames = store.NewIndex(t.Withheld, "withheldNames", func(k WithheldKey, _ Withheld, add func(struct{}, ResourceKey)) {
		add(struct{}{}, k.ResourceKey)
	})
}
