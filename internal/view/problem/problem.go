// Package problem tells users what of their configuration does not do what it says: references to nothing, and
// conflicts with the loser and the winner named.
//
// It owns the checks that need more than one object; what one object says by itself is judged when it is decoded. There
// is one cell per object, whether or not a proxy sees it, and one root over all of them. Problems carry no position:
// an object that moves in its file changes nothing here. The package starts no goroutines and must not import xds.
package problem

import (
	"fmt"
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/view/transport"
)

// maxChecked bounds how many hosts or destinations of one object are checked.
const maxChecked = 30

// Queries are the problems.
type Queries struct {
	tables    *state.Tables
	services  *service.Queries
	traffic   *traffic.Queries
	scope     *scope.Queries
	transport *transport.Queries
	checks    map[string]func(*findings) // by kind
	checked   *query.Collection[string, api.Problem]
	// All are the problems of all objects and sources, as a list of sets.
	All *query.Query[service.All, []state.Problems]
}

// Define adds the queries.
func Define(g *query.Graph, t *state.Tables, s *service.Queries, tr *traffic.Queries, sc *scope.Queries, tp *transport.Queries) *Queries {
	q := &Queries{tables: t, services: s, traffic: tr, scope: sc, transport: tp, checks: checks()}
	same := func(a, b []api.Problem) bool { return slices.Equal(a, b) }
	check := query.Define(g, "check", same, q.check)
	q.checked = query.Each(g, "checks", func(r *query.Reader, kind string) omap.Map[api.Key, omap.Unit] {
		return t.Kinds.Group(r, kind)
	}, check, func(_ string, k api.Key) api.Key { return k })
	sameSets := func(a, b []state.Problems) bool {
		return slices.EqualFunc(a, b, state.Problems.Equal)
	}
	q.All = query.Define(g, "problems", sameSets, q.all)
	return q
}

func (q *Queries) all(r *query.Reader, _ service.All) ([]state.Problems, bool) {
	var sets []state.Problems
	for source := range q.tables.SourceNames.Group(r, struct{}{}).All() {
		if len(sets) == maxChecked {
			break
		}
		set, _ := q.tables.SourceProblems.Get(r, string(source))
		sets = append(sets, set)
	}
	for _, kind := range api.Kinds() {
		sets = append(sets, q.checked.Get(r, kind.Name))
	}
	return sets, true
}

// findings are the problems of one object.
type findings struct {
	q    *Queries
	r    *query.Reader
	key  api.Key
	list []api.Problem
	// addressesLeft is how many more addresses are looked at.
	addressesLeft int
}

func (f *findings) warn(field, format string, args ...any) {
	p := api.Problem{Object: f.key, Severity: api.Warning, Field: field, Reason: fmt.Sprintf(format, args...)}
	if !slices.Contains(f.list, p) {
		f.list = append(f.list, p)
	}
}

func (q *Queries) check(r *query.Reader, k api.Key) ([]api.Problem, bool) {
	f := &findings{q: q, r: r, key: k, addressesLeft: maxChecked}
	if holders, ok := q.tables.Shadowed.Get(r, k); ok {
		f.warn("", "sources %q hold this object; the one of %q is used: remove the others", holders, holders[0])
	}
	q.checks[k.Kind](f)
	return f.list, len(f.list) > 0
}

// checks finds the problems of an object of each kind.
func checks() map[string]func(*findings) {
	all := map[string]func(*findings){
		api.KindServiceEntry:    (*findings).serviceEntry,
		api.KindWorkloadEntry:   (*findings).workloadEntry,
		api.KindVirtualService:  (*findings).virtualService,
		api.KindDestinationRule: (*findings).destinationRule,
		api.KindSidecar:         (*findings).sidecar,
	}
	for _, k := range api.Kinds() {
		if all[k.Name] == nil {
			panic("problem: nothing finds the problems of a " + k.Name + ": add it to checks")
		}
	}
	return all
}

// claims yields an object's hosts with the field they are written in and the claims of all objects on them.
func (f *findings) claims(field string) func(yield func(at string, c claimed) bool) {
	return func(yield func(string, claimed) bool) {
		own, ok := f.q.tables.Claims.Get(f.r, f.key)
		if !ok {
			return
		}
		for i, host := range own.Hosts {
			if i == maxChecked {
				return
			}
			at := fmt.Sprintf("%s[%d]", field, i)
			if !yield(at, claimed{own, host, f.q.tables.ByHost.Group(f.r, host)}) {
				return
			}
		}
	}
}

type claimed struct {
	own  *state.Claims
	host string
	all  omap.Map[state.Claim, omap.Unit]
}

// older yields the claims of a kind that come before the object's own in one of its layers.
func (c claimed) older(k api.Key) func(yield func(state.Claim) bool) {
	return func(yield func(state.Claim) bool) {
		for o := range c.all.All() {
			switch {
			case o.Kind != c.own.Kind || !slices.Contains(c.own.Layers, o.Layer):
			case o.Namespace == k.Namespace && o.Name == k.Name:
				return // they are listed by age
			default:
				if !yield(o) {
					return
				}
			}
		}
	}
}
