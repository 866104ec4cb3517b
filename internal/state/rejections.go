package state

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/store"
)

// Part names what can be rejected alone: a resource, or one virtual host of a route configuration.
type Part struct {
	Type  uint8  // of the resource, as package resource numbers them
	Name  string // of the resource
	Piece string // of the virtual host, if it is one and not the whole resource
}

// Compare orders by type, then names.
func (p Part) Compare(o Part) int {
	return cmp.Or(cmp.Compare(p.Type, o.Type), strings.Compare(p.Name, o.Name), strings.Compare(p.Piece, o.Piece))
}

// AppendTo appends an unambiguous form.
func (p Part) AppendTo(b []byte) []byte {
	b = append(b, p.Type)
	for _, s := range []string{p.Name, p.Piece} {
		b = append(appendInt(b, int64(len(s))), s...)
	}
	return b
}

// Rejected is content that some proxy rejected.
type Rejected struct {
	Part
	Content omap.Hash
}

// Compare orders by part, then content.
func (r Rejected) Compare(o Rejected) int {
	return cmp.Or(r.Part.Compare(o.Part), bytes.Compare(r.Content[:], o.Content[:]))
}

// AppendTo appends an unambiguous form.
func (r Rejected) AppendTo(b []byte) []byte { return append(r.Part.AppendTo(b), r.Content[:]...) }

// RejectionKey names the rejection of content by a connected proxy.
type RejectionKey struct {
	Connection string
	Rejected
}

// Rejection is who rejected something, and why.
type Rejection struct {
	Proxy  string    // the node's id
	Reason string    // what the proxy said
	At     time.Time // when; no query reads it
}

func (r Rejection) equal(o Rejection) bool { return r.Proxy == o.Proxy && r.Reason == o.Reason }

func (t *Tables) defineRejections(db *store.DB) {
	t.Rejections = store.NewTable[RejectionKey](db, "rejections", Rejection.equal)
	t.RejectionsOf = store.NewIndex(t.Rejections, "rejectionsOf", func(k RejectionKey, _ Rejection, add func(string, Rejected)) {
		add(k.Connection, k.Rejected)
	})
	t.Rejecting = store.NewIndex(t.Rejections, "rejecting", func(k RejectionKey, _ Rejection, add func(struct{}, omap.Name)) {
		add(struct{}{}, omap.Name(k.Connection))
	})
	t.Origins = store.NewTable[Rejected](db, "origins", slices.Equal[[]api.Key])
}
