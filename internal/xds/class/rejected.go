package class

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/rejection"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/view/registration"
	"github.com/pilotmesh/pilot/internal/xds/class/patching"
	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/internal/xds/route"
)

// maxClasses bounds how many classes are asked whether they still show what their proxies rejected.
const maxClasses = 60

// rejected are the queries about what proxies rejected. There is one cell per rejectable, however many proxies rejected it. It
// runs only if the set of these proxies or its content changes.
type rejected struct {
	resources query.Layers[classType, omap.Name, *resource.Resource]
	pieces    query.Layers[classRoute, omap.Name, *resource.Piece]
	shown     query.Query[classPart, omap.Hash]
	by        query.Groups[All, connected.Rejectable, rejecter]
	problems  query.Collection[All, api.Problem]
}

// classType names the resources of one type of a class.
type classType struct {
	class proxy.Class
	typ   resource.Type
}

// classRoute names the pieces of one route configuration of a class.
type classRoute struct {
	class proxy.Class
	route string
}

// classPart names a part of what a class is to have: a resource, or a piece of one.
type classPart struct {
	class proxy.Class
	connected.Rejectable
}

// rejectingConnection is a connection with everything that it rejected.
type rejectingConnection struct {
	connection string
	class      omap.Hash
	all        omap.Map[connected.RejectedContent, omap.Unit]
}

// OutputName implements query.Output.
func (j rejectingConnection) OutputName() string { return j.connection }

// ContentHash implements omap.Value.
func (j rejectingConnection) ContentHash() omap.Hash {
	all := j.all.Hash()
	return omap.Sum(j.class[:], all[:], []byte(j.connection))
}

// Size implements omap.Value.
func (rejectingConnection) Size() int { return 0 }

// rejecter is a connection that rejected content of a rejectable.
type rejecter struct {
	class, content omap.Hash
	connection     string
}

// Compare orders by class, then by content, then by connection.
func (j rejecter) Compare(o rejecter) int {
	return cmp.Or(bytes.Compare(j.class[:], o.class[:]), bytes.Compare(j.content[:], o.content[:]), strings.Compare(j.connection, o.connection))
}

// AppendTo appends an unambiguous encoding.
func (j rejecter) AppendTo(b []byte) []byte {
	return append(append(append(b, j.class[:]...), j.content[:]...), j.connection...)
}

func (q *Queries) defineRejected(g *query.Graph) {
	x := &q.rejected
	x.resources = query.DefineLayers(g, "resources", func(r *query.Reader, k classType) []Map { return q.stacks[k.typ].layersOf(r, k.class) })
	x.pieces = query.DefineLayers(g, "pieces", func(r *query.Reader, k classRoute) []omap.Map[omap.Name, *resource.Piece] {
		all, ok := x.resources.Get(r, classType{k.class, resource.Route}, omap.Name(k.route))
		if !ok {
			return nil
		}
		return []omap.Map[omap.Name, *resource.Piece]{all.Pieces()}
	})
	x.shown = query.Define(g, "shown", func(a, b omap.Hash) bool { return a == b }, q.shownPart)
	connections := query.Each(g, "rejecters",
		func(r *query.Reader, _ All) omap.Map[omap.Name, omap.Unit] {
			return q.tables.Rejecting.Group(r, struct{}{})
		},
		query.Define(g, "rejecter", func(a, b []rejectingConnection) bool {
			return slices.EqualFunc(a, b, func(a, b rejectingConnection) bool { return a.ContentHash() == b.ContentHash() })
		}, func(r *query.Reader, connection string) ([]rejectingConnection, bool) {
			c, ok := q.Class.Get(r, connection)
			return []rejectingConnection{{connection, c.Hash(), q.tables.RejectionsOf.Group(r, connection)}}, ok
		}), func(_ All, connection omap.Name) string { return string(connection) })
	x.by = query.GroupBy(g, "rejectedBy", connections, func(j rejectingConnection, add func(connected.Rejectable, rejecter)) {
		for k := range j.all.All() {
			add(k.Rejectable, rejecter{j.class, k.Content, j.connection})
		}
	})
	x.problems = query.Each(g, "rejections",
		func(r *query.Reader, all All) omap.Map[connected.Rejectable, omap.Unit] { return x.by.Keys(r, all) },
		query.Define(g, "rejected", slices.Equal[[]api.Problem], q.rejection),
		func(_ All, k connected.Rejectable) connected.Rejectable { return k })
}

// shownPart is the content of a part of what a class is to have. It is zero if there is no such part.
func (q *Queries) shownPart(r *query.Reader, k classPart) (omap.Hash, bool) {
	if k.Piece != "" {
		p, ok := q.rejected.pieces.Get(r, classRoute{k.class, k.Name}, omap.Name(k.Piece))
		if !ok {
			return omap.Hash{}, false
		}
		return p.ContentHash(), true
	}
	all, ok := q.rejected.resources.Get(r, classType{k.class, resource.Type(k.Type)}, omap.Name(k.Name))
	if !ok || all.Hidden() {
		return omap.Hash{}, false
	}
	return all.ContentHash(), true
}

// rejection returns the problems about one rejectable, as long as a proxy that rejected content of it would be sent that
// content again.
func (q *Queries) rejection(r *query.Reader, k connected.Rejectable) ([]api.Problem, bool) {
	first, others, ok := q.activeRejecters(r, k)
	if !ok {
		return nil, false
	}
	what := connected.RejectedContent{Rejectable: k, Content: first.content}
	found, known := q.tables.Origins.Get(r, what)
	row, ok := q.tables.Rejections.Get(r, connected.RejectionKey{Connection: first.connection, RejectedContent: what})
	if !known || !ok {
		return nil, false
	}
	who, kept := "proxy "+row.Proxy, "keeps what it had"
	if others {
		who, kept = who+" and others", "keep what they had"
	}
	field := fmt.Sprintf("%v %q", resource.Type(k.Type), k.Name)
	if k.Piece != "" {
		field = fmt.Sprintf("virtual host %q of %s", route.VirtualHostOf(k.Piece), field)
	}
	cause := rejection.Cause(row.Reason, found.Violation)
	if found.Object != (api.Key{}) {
		return []api.Problem{{
			Object: found.Object, Severity: api.Error, Code: "proxy-rejected", Field: found.Field,
			Reason: fmt.Sprintf("Envoy rejects it: %s (%s rejected %s and %s)", cause, who, field, kept),
		}}, true
	}
	objects := found.Objects
	if len(objects) == 0 { // a listener that all HTTP services of a port share is made of none of them
		return []api.Problem{{
			Severity: api.Error, Code: "proxy-rejected", Field: field, Reason: fmt.Sprintf("Envoy rejects it: %s (%s rejected it and %s)", cause, who, kept),
		}}, true
	}
	list := make([]api.Problem, 0, len(objects))
	for _, o := range objects {
		list = append(list, api.Problem{
			Object: o, Severity: api.Error, Code: "proxy-rejected", Field: field,
			Reason: fmt.Sprintf("Envoy rejects it: %s (%s rejected it, which is made of this object%s, and %s)", cause, who, besides(len(objects)-1), kept),
		})
	}
	return list, true
}

// besides names the number of other objects.
func besides(others int) string {
	switch others {
	case 0:
		return ""
	case 1:
		return " and 1 other"
	}
	return fmt.Sprintf(" and %d others", others)
}

// activeRejecters returns the first proxy that rejected what its class is to have of a rejectable, and whether there are
// others.
func (q *Queries) activeRejecters(r *query.Reader, k connected.Rejectable) (first rejecter, others, ok bool) {
	var of, shown omap.Hash // the class of the last rejecter, and the content it shows
	classes := 0
	for j := range q.rejected.by.Group(r, All{}, k).All() {
		if j.class != of || classes == 0 {
			if classes++; classes > maxClasses {
				break
			}
			c, _ := q.Class.Get(r, j.connection)
			of = j.class
			shown, _ = q.rejected.shown.Get(r, classPart{c, k})
		}
		switch {
		case j.content != shown:
		case ok:
			return first, true, true
		default:
			first, ok = j, true
		}
	}
	return first, false, ok
}

// defineProblems puts together everything that is wrong with objects: what the queries find, what proxies reject, do not
// acknowledge or request without success, and faults.
func (q *Queries) defineProblems(g *query.Graph, found query.Query[All, []state.Problems]) {
	faults := query.Each(g, faultsName,
		func(r *query.Reader, _ All) omap.Map[connected.FaultKey, omap.Unit] {
			return q.tables.FaultKeys.Group(r, struct{}{})
		},
		query.Define(g, faultsName, slices.Equal[[]api.Problem], q.fault),
		func(_ All, k connected.FaultKey) connected.FaultKey { return k })
	unacknowledged, shared := q.defineUnacknowledged(g), q.defineShared(g)
	q.filterProblems = patching.DefineProblems(g, q.patches, q.Class, q.effectsOn)
	full := q.defineFull(g)
	q.Problems = query.DefineLayers(g, "allProblems", func(r *query.Reader, all All) []state.Problems {
		sets, _ := found.Get(r, all)
		return append(slices.Clip(sets), q.rejected.problems.Get(r, all), unacknowledged.Get(r, all), shared.Get(r, all), q.missing.Get(r, all), q.unregistered.Get(r, registration.All{}), faults.Get(r, all), q.filterProblems.All.Get(r, all), full.Get(r, all))
	})
}

// faultsName is the name of the queries that make problems of faults. A fault of theirs is not reported by them.
const faultsName = "faults"

// TellsFaults reports whether a query makes problems of faults. Faults of such a query are only logged.
func TellsFaults(query string) bool { return query == faultsName }

// fault returns the problems about a cell that failed, one per object that it had read.
func (q *Queries) fault(r *query.Reader, k connected.FaultKey) ([]api.Problem, bool) {
	row, ok := q.tables.Faults.Get(r, k)
	if !ok {
		return nil, false
	}
	kept := "there is nothing to serve in its place"
	if row.Kept {
		kept = "the last good result stays in force"
	}
	if len(row.Objects) == 0 {
		return []api.Problem{{Severity: api.Error, Code: "internal-error", Field: k.Query + " " + k.Key,
			Reason: fmt.Sprintf("internal error, %s; please report it: %s", kept, row.Reason)}}, true
	}
	list := make([]api.Problem, 0, len(row.Objects))
	for _, o := range row.Objects {
		list = append(list, api.Problem{Object: o, Severity: api.Error, Code: "internal-error", Field: k.Query + " " + k.Key,
			Reason: fmt.Sprintf("internal error in the translation of this object, %s; please report it: %s", kept, row.Reason)})
	}
	return list, true
}

func contentOf(s *resource.State, k connected.Rejectable) omap.Hash {
	now, ok := s.Get(resource.Type(k.Type), k.Name)
	if !ok {
		return omap.Hash{}
	}
	if k.Piece == "" {
		return now.ContentHash()
	}
	if p, ok := now.Pieces().Get(omap.Name(k.Piece)); ok {
		return p.ContentHash()
	}
	return omap.Hash{}
}

// ActiveRejection is a rejection that still matters: the proxy would be sent the same content again.
type ActiveRejection struct {
	connected.RejectedContent
	connected.Rejection
	// Finding has the objects that the content is made of, and the one among them that has what Envoy rejects.
	rejection.Finding
}

// Cause is why Envoy rejected it, as one line.
func (h ActiveRejection) Cause() string { return rejection.Cause(h.Reason, h.Violation) }

// VirtualHost is the name of the rejected virtual host, if not the whole resource was rejected.
func (h ActiveRejection) VirtualHost() string { return route.VirtualHostOf(h.Piece) }

// ActiveRejections lists what a connected proxy rejected and therefore does not get, by type and name.
func (q *Queries) ActiveRejections(r *query.Reader, connection string) []ActiveRejection {
	c, _ := q.Class.Get(r, connection)
	s, ok := q.State.Get(r, c)
	if !ok {
		return nil
	}
	var list []ActiveRejection
	for k := range q.tables.RejectionsOf.Group(r, connection).All() {
		row, ok := q.tables.Rejections.Get(r, connected.RejectionKey{Connection: connection, RejectedContent: k})
		if ok && contentOf(s, k.Rejectable) == k.Content {
			found, _ := q.tables.Origins.Get(r, k)
			list = append(list, ActiveRejection{k, row, found})
		}
	}
	return list
}
