package admin

import (
	"cmp"
	"iter"
	"net/http"
	"time"

	"github.com/pilotmesh/pilot/internal/explain/entrance"
	"github.com/pilotmesh/pilot/internal/explain/ingresses"
	"github.com/pilotmesh/pilot/internal/explain/patched"
	"github.com/pilotmesh/pilot/internal/explain/why"
	"github.com/pilotmesh/pilot/internal/explain/why/described"
	"github.com/pilotmesh/pilot/internal/explain/why/reply"
	"github.com/pilotmesh/pilot/internal/loop"
)

// Names are the names that explain accepts.
type Names struct {
	Kind  string   `json:"kind"`
	Names []string `json:"names"`
}

// explain returns a why.Answer about one proxy. The form of answers has a version. Without a name in the request, it lists
// the names.
func (p *Pages) explain(r *http.Request) (any, error) {
	s, err := p.one(r)
	if err != nil {
		return nil, err
	}
	type found struct {
		answer *reply.Answer
		names  iter.Seq[string]
		err    error
	}
	q := r.URL.Query()
	ask := why.Question{Connection: s.Attachment, Kind: cmp.Or(q.Get("kind"), why.HostKind), Name: q.Get("name")}
	got, err := inspect(r, p, func(v *loop.View) found {
		class, _ := v.Class(s.Attachment)
		m := why.Mesh{Tables: v.Tables, Graph: v.Graph, Queries: v.Queries, Problems: v.Problems}
		about := ask
		about.State = v.State(class)
		if about.Name == "" {
			return found{names: m.Names(about)}
		}
		a, err := m.Ask(about)
		return found{answer: a, err: err}
	})
	switch {
	case err != nil:
		return nil, err
	case got.err != nil:
		return nil, refuse(http.StatusBadRequest, "%v", got.err)
	case got.names != nil:
		return Names{Kind: ask.Kind, Names: why.SortedNames(got.names, q.Get("prefix"))}, nil
	}
	got.answer.Complete()
	got.answer.Place(p.Board.fields)
	return got.answer, nil
}

// canI returns a why.Access: whether a described request to a service is allowed. The form of answers has a version.
func (p *Pages) canI(r *http.Request) (any, error) {
	type found struct {
		answer *why.Access
		err    error
	}
	d, err := described.RequestBy(r.URL.Query())
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%v", err)
	}
	got, err := inspect(r, p, func(v *loop.View) found {
		m := why.Mesh{Tables: v.Tables, Graph: v.Graph, Queries: v.Queries, Problems: v.Problems}
		a, err := m.AskAccess(d)
		return found{a, err}
	})
	switch {
	case err != nil:
		return nil, err
	case got.err != nil:
		return nil, refuse(http.StatusBadRequest, "%v", got.err)
	}
	got.answer.Complete()
	return got.answer, nil
}

// ingressz returns a ingresses.Answer: the content that gateways serve for the hosts of Ingresses. The form of answers has a version.
func (p *Pages) ingressz(r *http.Request) (any, error) {
	a, err := inspect(r, p, func(v *loop.View) *ingresses.Answer {
		return ingresses.Ask(why.Mesh{Tables: v.Tables, Graph: v.Graph, Queries: v.Queries, Problems: v.Problems}, r.URL.Query().Get("host"))
	})
	if err != nil {
		return nil, err
	}
	a.Complete()
	return a, nil
}

// gatewayz returns an entrance.Answer about a host, or an entrance.List without one. The form of answers has a version.
func (p *Pages) gatewayz(r *http.Request) (any, error) {
	at := func(v *loop.View) entrance.Mesh {
		return entrance.Mesh{Mesh: why.Mesh{Tables: v.Tables, Graph: v.Graph, Queries: v.Queries, Problems: v.Problems}, Now: time.Now()}
	}
	host := r.URL.Query().Get("host")
	if host == "" {
		return inspect(r, p, func(v *loop.View) *entrance.List { return at(v).List() })
	}
	q, err := entrance.Parse(host)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%v", err)
	}
	return inspect(r, p, func(v *loop.View) *entrance.Answer { return at(v).Ask(q) })
}

// patchz returns a patched.Answer about an EnvoyFilter. The form of answers has a version.
func (p *Pages) patchz(r *http.Request) (any, error) {
	type found struct {
		answer *patched.Answer
		err    error
	}
	q := r.URL.Query()
	got, err := inspect(r, p, func(v *loop.View) found {
		m := patched.Mesh{Mesh: why.Mesh{Tables: v.Tables, Graph: v.Graph, Queries: v.Queries, Problems: v.Problems}}
		a, err := m.Ask(q.Get("namespace"), q.Get("name"))
		return found{a, err}
	})
	switch {
	case err != nil:
		return nil, err
	case got.err != nil:
		return nil, refuse(http.StatusNotFound, "%v", got.err)
	}
	return got.answer, nil
}
