package state

import (
	"slices"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/omap"
)

// RejectionKey names a piece of configuration that a connected proxy rejected.
type RejectionKey struct {
	Connection string
	Type       uint8  // of the resource, as package resource numbers them
	Name       string // of the resource
	Piece      string // of the virtual host, if only that one of the resource was rejected
}

// Compare orders by connection, then type and names.
func (k RejectionKey) Compare(o RejectionKey) int {
	return slices.Compare(k.AppendTo(nil), o.AppendTo(nil))
}

// AppendTo appends an unambiguous form.
func (k RejectionKey) AppendTo(b []byte) []byte {
	for _, s := range []string{k.Connection, string([]byte{k.Type}), k.Name, k.Piece} {
		b = append(appendInt(b, int64(len(s))), s...)
	}
	return b
}

// Rejection is what was rejected and what it was made of.
type Rejection struct {
	Content omap.Hash // of the rejected resource or piece
	Proxy   string    // the node's id
	Reason  string    // what the proxy said
	Objects []api.Key // the objects it was made of, at the time
	At      time.Time // when; no query reads it
}

func (r Rejection) equal(o Rejection) bool {
	return r.Content == o.Content && r.Proxy == o.Proxy && r.Reason == o.Reason && slices.Equal(r.Objects, o.Objects)
}
