package connected

import (
	"bytes"
	"cmp"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/api/rejection"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
)

// Rejectable names content that a proxy can reject alone: a resource, or one virtual host of a route configuration.
type Rejectable struct {
	Type  uint8  // the resource.Type
	Name  string // the name of the resource
	Piece string // the name of the virtual host; empty for a whole resource
}

// Compare orders by type, then names.
func (p Rejectable) Compare(o Rejectable) int {
	return cmp.Or(cmp.Compare(p.Type, o.Type), strings.Compare(p.Name, o.Name), strings.Compare(p.Piece, o.Piece))
}

// AppendTo appends an unambiguous form.
func (p Rejectable) AppendTo(b []byte) []byte {
	b = append(b, p.Type)
	for _, s := range []string{p.Name, p.Piece} {
		b = append(appendLength(b, s), s...)
	}
	return b
}

// RejectedContent is content that a proxy rejected.
type RejectedContent struct {
	Rejectable
	Content omap.Hash
}

// Compare orders by rejectable, then content.
func (r RejectedContent) Compare(o RejectedContent) int {
	return cmp.Or(r.Rejectable.Compare(o.Rejectable), bytes.Compare(r.Content[:], o.Content[:]))
}

// AppendTo appends an unambiguous form.
func (r RejectedContent) AppendTo(b []byte) []byte {
	return append(r.Rejectable.AppendTo(b), r.Content[:]...)
}

// RejectionKey names a rejection of content by a connected proxy.
type RejectionKey struct {
	Connection string
	RejectedContent
}

// Rejection records which proxy rejected content, and why.
type Rejection struct {
	Proxy  string    // the node id
	Reason string    // the error message of the proxy
	At     time.Time // the time of the rejection; no query reads it
}

func (r Rejection) equal(o Rejection) bool { return r.Proxy == o.Proxy && r.Reason == o.Reason }

func (t *Rows) defineRejections(db *store.DB) {
	t.Rejections = store.NewTable[RejectionKey](db, "rejections", Rejection.equal)
	t.RejectionsOf = store.NewIndex(t.Rejections, "rejectionsOf", func(k RejectionKey, _ Rejection, add func(string, RejectedContent)) {
		add(k.Connection, k.RejectedContent)
	})
	t.Rejecting = store.NewIndex(t.Rejections, "rejecting", func(k RejectionKey, _ Rejection, add func(struct{}, omap.Name)) {
		add(struct{}{}, omap.Name(k.Connection))
	})
	t.Origins = store.NewTable[RejectedContent](db, "origins", rejection.Finding.Equal)
}
