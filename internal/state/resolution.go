package state

import (
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/source"
)

// Resolution is what the DNS says about the host name of a gateway into a network. It has no time to live: an answer that repeats the
// addresses is no change.
type Resolution struct {
	// Addresses are the IP addresses of the last good answer, sorted; empty if there was none yet.
	Addresses intern.List[string]
	// Failure is why the last attempt failed; empty if it did not.
	Failure string
}

// kindResolution is the kind of events about resolutions. No object has it.
const kindResolution = "(resolution)"

// resolved is the value of an event about a resolution.
type resolved struct{ Resolution }

// Kind implements kube.Value.
func (*resolved) Kind() string { return kindResolution }

// Same implements kube.Value.
func (f *resolved) Same(v kube.Value) bool {
	o, ok := v.(*resolved)
	return ok && *o == *f
}

// ResolutionEvent is the event that a host name was looked up. Nil removes its row.
func ResolutionEvent(host string, is *Resolution) source.Event {
	e := source.Event{Key: api.Key{Kind: kindResolution, Name: host}}
	if is != nil {
		e.Value = &resolved{*is}
	}
	return e
}

// applyResolution writes the row of a host name. It reports whether the event is about one.
func (t *Tables) applyResolution(tx *store.Txn, e source.Event) bool {
	if e.Key.Kind != kindResolution {
		return false
	}
	if is, ok := e.Value.(*resolved); ok {
		t.Networks.Resolved.Set(tx, e.Key.Name, is.Resolution)
	} else {
		t.Networks.Resolved.Delete(tx, e.Key.Name)
	}
	return true
}
