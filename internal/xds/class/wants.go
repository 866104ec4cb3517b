package class

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// Provider answers what proxies ask for by name of one type. Its queries are defined before those of this package.
type Provider struct {
	Type resource.Type
	// Find is the answer for one proxy. It decides by who the proxy is: what it returns nobody else is shown.
	Find func(r *query.Reader, p *proxy.Proxy, name string) Answer
}

// Answer is what a proxy gets for something it asked for by name. The zero Answer says that there is no such thing.
type Answer struct {
	Resource *resource.Resource
	// Denied: there may be such a thing, and it is not for this proxy. Resource is nil.
	Denied bool
}

func (a Answer) equal(o Answer) bool {
	if a.Resource == nil || o.Resource == nil {
		return a == o
	}
	return a.Denied == o.Denied && a.Resource.ContentHash() == o.Resource.ContentHash()
}

// maxWanting bounds how many proxies that ask for one thing are asked whether they have it, to tell about it.
const maxWanting = 60

// defineWants adds the answers to what proxies ask for by name, and the problems of what nobody has for them.
func (q *Queries) defineWants(g *query.Graph, providers []Provider) {
	q.Answers = query.Guard(g, "answer", Answer.equal, Answer{Denied: true}, func(r *query.Reader, k state.WantKey) (Answer, bool) {
		_, asked := q.tables.Wants.Get(r, k)
		p, connected := q.tables.Proxies.Get(r, k.Connection)
		if !asked || !connected {
			return Answer{}, false
		}
		for _, provider := range providers {
			if provider.Type == resource.Type(k.Type) {
				return provider.Find(r, p, k.Name), true
			}
		}
		return Answer{}, true
	})
	q.missing = query.Each(g, "missingAll",
		func(r *query.Reader, _ All) omap.Map[state.ResourceKey, omap.Unit] {
			return q.tables.Wanted.Group(r, struct{}{})
		},
		query.Define(g, "missing", slices.Equal[[]api.Problem], q.missed),
		func(_ All, k state.ResourceKey) state.ResourceKey { return k })
}

// wanting are proxies that ask for one thing and are badly served alike.
type wanting struct {
	first  state.Want
	answer Answer
	count  int
}

func (w *wanting) add(row state.Want, a Answer) {
	if w.count++; w.count == 1 {
		w.first, w.answer = row, a
	}
}

// missed tells that proxies ask for something which nobody has for them, and that they reject it.
func (q *Queries) missed(r *query.Reader, k state.ResourceKey) (list []api.Problem, _ bool) {
	var missing, rejected wanting
	asked := 0
	for connection := range q.tables.WantedBy.Group(r, k).All() {
		if asked++; asked > maxWanting {
			break
		}
		key := state.WantKey{Connection: string(connection), ResourceKey: k}
		row, _ := q.tables.Wants.Get(r, key)
		switch a, known := q.Answers.Get(r, key); {
		case known && a.Resource == nil:
			missing.add(row, a)
		case known && row.Refused != "":
			rejected.add(row, a)
		}
	}
	for _, w := range []wanting{missing, rejected} {
		if w.count > 0 {
			list = append(list, api.Problem{
				Severity: api.Warning, Field: fmt.Sprintf("%v %q", resource.Type(k.Type), k.Name), Reason: w.reason(resource.Type(k.Type), asked > maxWanting),
			})
		}
	}
	return list, len(list) > 0
}

// reason tells who is served how badly. more: there are proxies that were not asked.
func (w wanting) reason(t resource.Type, more bool) string {
	said, fails := strings.TrimSpace(w.first.Refused), "; what needs it fails, everything else goes on"
	who, agent := "proxy "+w.first.Proxy, proxy.IsAgent(w.first.Proxy)
	if agent {
		who = "the agent of " + proxy.NameOf(w.first.Proxy)
	}
	switch {
	case more:
		who += " (others, too)"
	case w.count > 1:
		who += fmt.Sprintf(" (%d others, too)", w.count-1)
	}
	switch {
	case agent && said != "":
		return fmt.Sprintf("%s has trouble with this %s: %s", who, t.Kind(), said)
	case w.answer.Resource != nil:
		return fmt.Sprintf("%s rejected this %s and keeps what it had: %s", who, t.Kind(), said)
	case w.answer.Denied:
		return fmt.Sprintf("%s asks for this %s, and it is not for it%s", who, t.Kind(), fails)
	case said != "":
		return fmt.Sprintf("%s asks for this %s, and there is none: %s%s", who, t.Kind(), said, fails)
	}
	return fmt.Sprintf("%s asks for this %s, and there is none%s", who, t.Kind(), fails)
}
