// Package service answers what a service is to those who call it, where its endpoints are, and what a workload serves.
//
// It owns the merge of declarations: which object declares a host as a view sees it, what several declarations in one
// namespace add up to, which workloads a selector picks, which ports and addresses a host takes up. Everything here is
// a query or a pure function of rows; results are immutable. It decides nothing about rules (package traffic) or about
// which hosts a proxy sees (package scope), starts no goroutines and must not import xds or Envoy's protos.
package service

import (
	"iter"
	"slices"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
)

// maxParts bounds how many objects are merged into one service.
const maxParts = 50

// View is a host as a layer sees it: the layer "" is what all see, others are namespaces for which something about the
// host differs. Keys are normalised by scope.Queries.Layer, so that callers who see the same share a cell.
type View struct {
	Host, Layer string
	// Home is the namespace whose declaration counts if that is not the usual one (see Home); Nobody: none does.
	Home string
	// Barred are the VirtualServices for the host that a Sidecar does not let in, in order.
	Barred intern.List[api.Key]
}

// Nobody is a home that is no namespace.
const Nobody = "~"

// HomeOf is the namespace whose declaration counts for the view, from the host's claims; empty if there is none.
func (v View) HomeOf(claims omap.Map[state.Claim, omap.Unit]) string {
	if v.Home != "" {
		return v.Home
	}
	return Home(claims, v.Layer)
}

// Service is a service as a view sees it.
type Service struct {
	Host string
	// Service is what its parts add up to. Name and Namespace are those of the oldest.
	*mesh.Service
	// Created is the age of the oldest part.
	Created int64
	// Parts are the objects that declare it, oldest first, all of one namespace.
	Parts []Part
	// Others are further namespaces that declare the host for this view, and lose.
	Others []string
}

// Part is one declaration of a service.
type Part struct {
	Object api.Key
	Spec   *mesh.Service
}

func (s *Service) equal(o *Service) bool {
	return s.Host == o.Host && s.Created == o.Created && s.Service.Equal(o.Service) && slices.Equal(s.Others, o.Others) &&
		slices.EqualFunc(s.Parts, o.Parts, func(a, b Part) bool { return a.Object == b.Object && a.Spec.Equal(b.Spec) })
}

// Queries answer questions about services.
type Queries struct {
	tables *state.Tables
	// Service is the service of a view; absent if the view sees none.
	Service *query.Query[View, *Service]
	// Selected are the endpoints a selector picks.
	Selected *query.Collection[Selection, Selected]
	// identities groups them by service account, and by whether they take the mesh's TLS.
	identities *query.Groups[Selection, omap.Name, omap.Name]
	// selectedLabels groups them by label, and inlineLabels are the sets of labels of an object's own endpoints.
	selectedLabels *query.Groups[Selection, mesh.Label, omap.Name]
	inlineLabels   *query.Query[api.Key, [][]mesh.Label]
	// Serves is what a workload serves.
	Serves *query.Query[Workload, Served]
	// Footprints are what the hosts that all see take up.
	Footprints *query.Collection[All, Footprint]
	// Taken groups them.
	Taken *Taken[All]
}

// All is the key of collections over what all see.
type All struct{}

// Define adds the queries.
func Define(g *query.Graph, t *state.Tables) *Queries {
	q := &Queries{tables: t}
	q.Service = query.Define(g, "service", (*Service).equal, q.service)
	q.defineSelected(g)
	q.defineIdentities(g)
	q.defineLabels(g)
	q.Serves = query.Define(g, "serves", Served.Equal, q.serves)
	elem := query.Define(g, "footprint", equalFootprints, func(r *query.Reader, host string) ([]Footprint, bool) {
		return list(q.Footprint(r, View{Host: host}))
	})
	public := func(r *query.Reader, _ All) omap.Map[omap.Name, omap.Unit] { return q.PublicHosts(r) }
	q.Footprints = query.Each(g, "footprints", public, elem, func(_ All, host omap.Name) string { return string(host) })
	q.Taken = DefineTaken(g, "", t.Domain(), q.Footprints)
	return q
}

// PublicHosts are the hosts that all see.
func (q *Queries) PublicHosts(r *query.Reader) omap.Map[omap.Name, omap.Unit] {
	return q.tables.Hosts.SeenBy.Group(r, "")
}

// service merges the declarations of a host. The claims say who declares it in what order of age, so only the winners'
// rows are read.
func (q *Queries) service(r *query.Reader, v View) (*Service, bool) {
	var parts []state.Claim
	var others []string
	for c, standing := range Declarations(q.tables.ByHost.Group(r, v.Host), v) {
		switch {
		case standing == Lost && !slices.Contains(others, c.Namespace):
			others = append(others, c.Namespace)
		case standing == Counts && len(parts) < maxParts && !slices.ContainsFunc(parts, func(p state.Claim) bool { return p.Name == c.Name }):
			parts = append(parts, c)
		}
	}
	if len(parts) == 0 {
		return nil, false
	}
	s := &Service{Host: v.Host, Created: parts[0].Created, Others: others}
	for _, c := range parts {
		if spec, ok := q.tables.Services.Get(r, c.Object()); ok {
			s.Parts = append(s.Parts, Part{c.Object(), spec.For(v.Host)})
		}
	}
	if len(s.Parts) == 0 {
		return nil, false
	}
	s.Service = merge(s.Parts)
	return s, true
}

// Standing is what becomes of a declaration of a host in a layer.
type Standing uint8

// The standings.
const (
	// Counts: it is the service, or a part of it.
	Counts Standing = iota
	// Lost: the declaration of another namespace counts.
	Lost
	// Unseen: it is not exported to the layer.
	Unseen
)

// Declarations yields the declarations of a view's host, oldest first, from the host's claims.
func Declarations(claims omap.Map[state.Claim, omap.Unit], v View) iter.Seq2[state.Claim, Standing] {
	winner := v.HomeOf(claims)
	return func(yield func(state.Claim, Standing) bool) {
		for c := range claims.All() {
			if c.Kind != state.ServiceClaim {
				return // listed by kind
			}
			standing := Counts
			switch {
			case !c.VisibleTo(v.Layer):
				standing = Unseen
			case c.Namespace != winner:
				standing = Lost
			}
			if !yield(c, standing) {
				return
			}
		}
	}
}

// Home is the namespace whose declaration of a host a layer sees, from the host's claims: its own, else that of the
// oldest visible one; empty if there is none.
func Home(claims omap.Map[state.Claim, omap.Unit], layer string) string {
	oldest := ""
	for c := range claims.All() {
		if c.Kind != state.ServiceClaim {
			break // listed by kind
		}
		if !c.VisibleTo(layer) {
			continue
		}
		if layer != "" && c.Namespace == layer {
			return layer
		}
		if oldest == "" {
			oldest = c.Namespace
		}
	}
	return oldest
}

// merge adds up the declarations of one namespace: the oldest decides, the others add ports, addresses and names.
func merge(parts []Part) *mesh.Service {
	if len(parts) == 1 {
		return parts[0].Spec
	}
	m := *parts[0].Spec
	m.Ports, m.Addresses, m.SubjectAltNames = slices.Clone(m.Ports), slices.Clone(m.Addresses), slices.Clone(m.SubjectAltNames)
	for _, p := range parts[1:] {
		for _, port := range p.Spec.Ports {
			if _, taken := m.Port(port.Number); !taken {
				m.Ports = append(m.Ports, port)
			}
		}
		m.Addresses = union(m.Addresses, p.Spec.Addresses)
		m.SubjectAltNames = union(m.SubjectAltNames, p.Spec.SubjectAltNames)
	}
	return &m
}

func union[V comparable](a, b []V) []V {
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}

// Visible reports whether a view has a service.
func (q *Queries) Visible(r *query.Reader, v View) bool {
	_, ok := q.Service.Get(r, v)
	return ok
}

func list[V any](v V, ok bool) ([]V, bool) {
	if !ok {
		return nil, false
	}
	return []V{v}, true
}
