// Package problem finds configuration that has no effect or another effect than its text: references to objects that do not
// exist, and conflicts between objects. The problem of a conflict names the object that takes precedence.
//
// The package owns the checks that need more than one object. Package api checks single objects when it decodes them. There is
// one cell per object, and one per Service that another cluster has, too, whether or not a proxy sees the object, and one root over all of them. Problems carry no position, so
// moving an object within its file runs nothing here. The package starts no goroutines.
package problem

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/code"
	"github.com/pilotmesh/pilot/internal/api/ingress"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/claim"
	"github.com/pilotmesh/pilot/internal/view/gateway"
	"github.com/pilotmesh/pilot/internal/view/scope"
	"github.com/pilotmesh/pilot/internal/view/service"
	"github.com/pilotmesh/pilot/internal/view/traffic"
	"github.com/pilotmesh/pilot/internal/view/transport"
)

// maxChecked bounds how many hosts or destinations of one object are checked.
const maxChecked = 30

// Queries are the queries for problems.
type Queries struct {
	tables    *state.Tables
	services  *service.Queries
	traffic   *traffic.Queries
	scope     *scope.Queries
	transport *transport.Queries
	gateways  *gateway.Queries
	checks    map[string]func(*findings) // by kind
	checked   query.Collection[string, api.Problem]
	// labels are the labels of workloads of a namespace, to propose them in problems.
	labels query.Query[string, []mesh.Label]
	// members are the problems of Services of a name that a Service of another cluster has, too.
	members query.Collection[service.All, api.Problem]
	// registered are the problems of services of registries.
	registered query.Collection[service.All, api.Problem]
	// sessions are the problems of services whose labels ask for sessions.
	sessions query.Collection[service.All, api.Problem]
	// networks are the problems of gateways into networks.
	networks query.Query[service.All, state.Problems]
	// All returns the problems of all objects and sources, as a list of sets.
	All query.Query[service.All, []state.Problems]
}

// Define adds the queries.
func Define(g *query.Graph, t *state.Tables, s *service.Queries, tr *traffic.Queries, sc *scope.Queries, tp *transport.Queries, gw *gateway.Queries) *Queries {
	q := &Queries{tables: t, services: s, traffic: tr, scope: sc, transport: tp, gateways: gw, checks: checks()}
	q.labels = query.Define(g, "labelsIn", func(a, b []mesh.Label) bool { return slices.Equal(a, b) }, q.labelsIn)
	same := func(a, b []api.Problem) bool { return slices.Equal(a, b) }
	check := query.Define(g, "check", same, q.check)
	q.checked = query.Each(g, "checks", func(r *query.Reader, kind string) omap.Map[api.Key, omap.Unit] {
		return t.Kinds.Group(r, kind)
	}, check, func(_ string, k api.Key) api.Key { return k })
	q.members = query.Each(g, "memberChecks", func(r *query.Reader, _ service.All) omap.Map[api.Key, omap.Unit] {
		return t.Kube.Members.Group(r, struct{}{})
	}, query.Define(g, "memberCheck", same, q.checkMember), func(_ service.All, k api.Key) api.Key { return k })
	q.registered = query.Each(g, "registeredChecks", func(r *query.Reader, _ service.All) omap.Map[api.Key, omap.Unit] {
		return t.Registries.All.Group(r, struct{}{})
	}, query.Define(g, "registeredCheck", same, q.checkRegistered), func(_ service.All, k api.Key) api.Key { return k })
	q.sessions = query.Each(g, "sessionChecks", func(r *query.Reader, _ service.All) (none omap.Map[api.Key, omap.Unit]) {
		if t.Sessions() {
			return none
		}
		return t.InSession.Group(r, struct{}{})
	}, query.Define(g, "sessionCheck", same, q.checkSession), func(_ service.All, k api.Key) api.Key { return k })
	q.networks = query.Define(g, "networkChecks", state.Problems.Equal, q.checkNetworks)
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
	networks, _ := q.networks.Get(r, service.All{})
	return append(sets, q.members.Get(r, service.All{}), q.registered.Get(r, service.All{}), q.sessions.Get(r, service.All{}), networks), true
}

// findings are the problems of one object.
type findings struct {
	q    *Queries
	r    *query.Reader
	key  api.Key
	list []api.Problem
	// addressesLeft is how many more addresses may be checked. It starts at maxChecked.
	addressesLeft int
}

// fail reports a failure that is certain as long as the objects do not change.
func (f *findings) fail(c code.Code, field, format string, args ...any) {
	f.add(api.Problem{Code: c, Severity: api.Error, Field: field, Reason: fmt.Sprintf(format, args...)})
}

// warn reports a setting that has no effect, or that fails at present only, or sometimes.
func (f *findings) warn(c code.Code, field, format string, args ...any) {
	f.add(api.Problem{Code: c, Severity: api.Warning, Field: field, Reason: fmt.Sprintf(format, args...)})
}

// conflict warns that another object goes before this one.
func (f *findings) conflict(c code.Code, field, format string, args ...any) {
	f.add(api.Problem{Code: c, Severity: api.Warning, Field: field, Reason: fmt.Sprintf(format, args...), Conflict: true})
}

// note remarks on something that is no mistake by itself.
func (f *findings) note(c code.Code, field, format string, args ...any) {
	f.add(api.Problem{Code: c, Severity: api.Info, Field: field, Reason: fmt.Sprintf(format, args...)})
}

func (f *findings) add(p api.Problem) {
	p.Object = f.key
	if !slices.Contains(f.list, p) {
		f.list = append(f.list, p)
	}
}

// maxPlaces bounds how many other fields a message names.
const maxPlaces = 3

// distinct returns the problems, with one in place of several that differ only in their field: the first, which names the other fields.
func (f *findings) distinct() (list []api.Problem) {
	same := func(p api.Problem) func(api.Problem) bool {
		return func(o api.Problem) bool { return o.Code == p.Code && o.Severity == p.Severity && o.Reason == p.Reason }
	}
	for i, p := range f.list {
		if slices.ContainsFunc(f.list[:i], same(p)) {
			continue
		}
		var places []string
		for _, o := range f.list[i+1:] {
			if same(p)(o) {
				places = append(places, o.Field)
			}
		}
		if n := len(places); n > maxPlaces {
			p.Reason += fmt.Sprintf("; the same at %s and %d more fields", strings.Join(places[:maxPlaces], ", "), n-maxPlaces)
		} else if n > 0 {
			p.Reason += "; the same at " + strings.Join(places, ", ")
		}
		list = append(list, p)
	}
	return list
}

func (q *Queries) check(r *query.Reader, k api.Key) ([]api.Problem, bool) {
	f := &findings{q: q, r: r, key: k, addressesLeft: maxChecked}
	if holders, ok := q.tables.Duplicates.Get(r, k); ok {
		f.conflict("object-duplicate", "", "sources %q hold this object; the one of %q is used: remove the others", holders, holders[0])
	}
	q.checks[k.Kind](f)
	list := f.distinct()
	return list, len(list) > 0
}

// checks returns, by kind, the function that finds the problems of an object.
func checks() map[string]func(*findings) {
	all := map[string]func(*findings){
		api.KindServiceEntry:    (*findings).serviceEntry,
		api.KindWorkloadEntry:   (*findings).workloadEntry,
		api.KindWorkloadGroup:   (*findings).workloadGroup,
		api.KindVirtualService:  (*findings).virtualService,
		api.KindDestinationRule: (*findings).destinationRule,
		api.KindSidecar:         (*findings).sidecar,
		api.KindGateway:         (*findings).gateway,

		api.KindAuthorizationPolicy:   (*findings).authorizationPolicy,
		api.KindRequestAuthentication: (*findings).requestAuthentication,
		api.KindPeerAuthentication:    (*findings).peerAuthentication,
		api.KindEnvoyFilter:           (*findings).envoyFilter,
		api.KindTelemetry:             (*findings).telemetry,
		api.KindWasmPlugin:            (*findings).extension,
		api.KindTrafficExtension:      (*findings).extension,
		api.KindProxyConfig:           (*findings).proxyConfig,

		ingress.Kind:      (*findings).ingress,
		ingress.ClassKind: (*findings).ingressClass,
	}
	for _, k := range api.Kinds() {
		if all[k.Name] == nil {
			panic("problem: no check for the kind " + k.Name + ": add one to checks")
		}
	}
	return all
}

// claims yields the hosts of the object, each with its field and with the claims of all objects on the host.
func (f *findings) claims(field string) func(yield func(at string, c hostClaims) bool) {
	return func(yield func(string, hostClaims) bool) {
		own, ok := f.q.tables.Claims.Get(f.r, f.key)
		if !ok {
			return
		}
		for i, host := range own.Hosts {
			if i == maxChecked {
				return
			}
			at := fmt.Sprintf("%s[%d]", field, i)
			if !yield(at, hostClaims{own, host, f.q.tables.ByHost.Group(f.r, host)}) {
				return
			}
		}
	}
}

// hostClaims is a host of an object, with the claims on it.
type hostClaims struct {
	own  *claim.Claims // the row of the object's claims, on all its hosts
	host string
	all  omap.Map[claim.Claim, omap.Unit] // of all objects, in order of precedence
}

// meets reports whether some callers outside of a namespace see both an object of some layers and another one of a layer.
func meets(layers []string, layer, namespace string) bool {
	return slices.ContainsFunc(layers, func(own string) bool {
		both := own == "" || layer == "" || own == layer
		return both && (own != namespace || own == "") && (layer != namespace || layer == "")
	})
}

// older yields the claims that take precedence over the object's own: of the same kind, seen in one of the same layers, and
// earlier in the order of claims. A Service that other namespaces than the object's own see as well takes precedence there.
func (c hostClaims) older(k api.Key) func(yield func(claim.Claim) bool) {
	return func(yield func(claim.Claim) bool) {
		for o := range c.all.All() {
			switch {
			case o.Kind != c.own.Kind:
			case o.Object() == k:
				return // claims are in order of precedence
			case !slices.Contains(c.own.Layers, o.Layer) && !(o.IsService() && meets(c.own.Layers, o.Layer, k.Namespace)):
			default:
				if !yield(o) {
					return
				}
			}
		}
	}
}
