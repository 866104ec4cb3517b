// Package access holds the evaluation of requests against real Envoy: what pilotctl can-i answers must be what Envoy does.
package access

import (
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/pilotmesh/pilot/internal/explain/access"
	"github.com/pilotmesh/pilot/internal/meshtest"
	"github.com/pilotmesh/pilot/internal/xds/authz"
	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// inbound is the listener of a connected proxy that connections to a port of its workload reach.
func inbound(t *testing.T, w *meshtest.World, id string, port uint32) *listenerv3.Listener {
	t.Helper()
	class, ok := w.Queries.Class.Get(w.Graph.Glance(), id)
	if !ok {
		t.Fatalf("there is no proxy %s", id)
	}
	var captured *listenerv3.Listener
	for _, r := range w.Queries.InboundListeners(w.Graph.Glance(), class) {
		m, err := r.Proto()
		if err != nil {
			t.Fatal(err)
		}
		l := m.(*listenerv3.Listener)
		switch {
		case l.Name == envoy.VirtualInbound:
			captured = l
		case l.GetAddress().GetSocketAddress().GetPortValue() == port:
			return l
		}
	}
	return captured
}

func evaluate(t *testing.T, w *meshtest.World, id string, r access.Request) access.Decision {
	t.Helper()
	return access.Evaluate(inbound(t, w, id, r.Port), r, access.Options{Keyless: authz.Keyless})
}
