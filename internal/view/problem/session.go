package problem

import (
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// checkSession warns of a service with a label for sessions, which the control plane does not keep.
func (q *Queries) checkSession(r *query.Reader, k api.Key) ([]api.Problem, bool) {
	s, ok := q.tables.Services.Get(r, k)
	if !ok {
		return nil, false
	}
	label := mesh.SessionHeaderLabel
	if s.Session.Header == "" {
		label = mesh.SessionLabel
	}
	f := &findings{q: q, r: r, key: k}
	f.warn("sessions-off", "metadata.labels["+label+"]",
		"the label has no effect: any endpoint may get any request of a session; start the control plane with PILOT_ENABLE_PERSISTENT_SESSION_FILTER=true, or remove the label")
	return f.list, true
}
