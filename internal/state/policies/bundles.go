package policies

import (
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/source"
)

// kindBundle is the kind of the events about SPIFFE bundles. They have no object.
const kindBundle = "TrustBundle"

// bundled are the roots of a bundle, as the value of an event.
type bundled struct{ roots string }

// Kind implements kube.Value.
func (*bundled) Kind() string { return kindBundle }

// Same implements kube.Value.
func (b *bundled) Same(v kube.Value) bool {
	o, ok := v.(*bundled)
	return ok && *b == *o
}

// BundleEvent is the event that the SPIFFE bundle at an address has other roots, as PEM. An empty text means that they are not known any more.
func BundleEvent(from, roots string) source.Event {
	e := source.Event{Key: api.Key{Kind: kindBundle, Name: from}}
	if roots != "" {
		e.Value = &bundled{roots}
	}
	return e
}

// PresentBundle returns the roots of the SPIFFE bundle at an address, as PEM, for the goroutine that commits; empty if they are not known.
func (s *Requests) PresentBundle(from string) string {
	roots, _ := s.Bundles.Peek(from)
	return roots
}

// applyBundle writes the row of a bundle. It reports whether the event is about one.
func (s *Requests) applyBundle(tx *store.Txn, e source.Event) bool {
	if e.Key.Kind != kindBundle {
		return false
	}
	if b, ok := e.Value.(*bundled); ok {
		s.Bundles.Set(tx, e.Key.Name, b.roots)
	} else {
		s.Bundles.Delete(tx, e.Key.Name)
	}
	return true
}
