package admin

import (
	"net/http"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/explain/live"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/state"
)

// Live describes which proxies use the present version of an object.
type Live struct {
	Object Object `json:"object"`
	live.Status
	// Refused are the errors for which the latest version of the object is not used.
	Refused []Problem `json:"refused,omitempty"`
	// Conflicts name the objects that take precedence over this one, and the parts for which they do.
	Conflicts []Problem `json:"conflicts,omitempty"`
	// Unknown is true if the control plane has no version of the object in force.
	Unknown bool `json:"unknown,omitempty"`
}

func (p *Pages) live(r *http.Request) (any, error) {
	q := r.URL.Query()
	kind, ok := kindNamed(q.Get("kind"))
	switch {
	case q.Get("name") == "":
		return nil, refuse(http.StatusBadRequest, "say which object: ?kind=VirtualService&namespace=shop&name=reviews")
	case !ok:
		return nil, refuse(http.StatusBadRequest, "%q is not a kind of objects that the control plane reads; write VirtualService, for example", q.Get("kind"))
	}
	k := api.Key{Kind: kind, Namespace: q.Get("namespace"), Name: q.Get("name"), Cluster: q.Get("cluster")}
	streams := p.Streams.Streams()
	return inspect(r, p, func(v *loop.View) Live {
		if kind == kube.KindService && k.Cluster == "" {
			k.Cluster = v.Tables.ClusterID()
		}
		out := Live{Object: Object(k)}
		var known bool
		out.Status, known = live.Of(v, streams, k)
		out.Unknown = !known
		for _, problem := range state.ProblemsOf(v.Problems, k) {
			switch {
			case problem.Refuses():
				out.Refused = append(out.Refused, NewProblem(problem))
			case problem.Conflict:
				out.Conflicts = append(out.Conflicts, NewProblem(problem))
			}
		}
		return out
	})
}

// kindNamed returns the kind with a name of api.Kind.HasName. The page answers about Services, too.
func kindNamed(name string) (string, bool) {
	switch strings.ToLower(name) {
	case "service", "services", "svc":
		return kube.KindService, true
	}
	for _, k := range api.Kinds() {
		if k.HasName(name) {
			return k.Name, true
		}
	}
	return "", false
}
