package connected

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
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

// UnacknowledgedKey names a resource that a connected proxy does not acknowledge.
type UnacknowledgedKey struct {
	Connection string
	ResourceKey
}

// Unacknowledged records which proxy does not acknowledge a resource.
type Unacknowledged struct {
	Proxy   string    // the node id
	Objects []api.Key // the objects that the resource was made of when it was sent
	Since   time.Time // the time when the resource was sent; no query reads it
}

func (w Unacknowledged) equal(o Unacknowledged) bool {
	return w.Proxy == o.Proxy && slices.Equal(w.Objects, o.Objects)
}

func (t *Rows) defineUnacknowledged(db *store.DB) {
	t.Unacknowledged = store.NewTable[UnacknowledgedKey](db, "unacknowledged", Unacknowledged.equal)
	t.UnacknowledgedBy = store.NewIndex(t.Unacknowledged, "unacknowledgedBy", func(k UnacknowledgedKey, _ Unacknowledged, add func(ResourceKey, omap.Name)) {
		add(k.ResourceKey, omap.Name(k.Connection))
	})
	t.UnacknowledgedNames = store.NewIndex(t.Unacknowledged, "unacknowledgedNames", func(k UnacknowledgedKey, _ Unacknowledged, add func(struct{}, ResourceKey)) {
		add(struct{}{}, k.ResourceKey)
	})
}
