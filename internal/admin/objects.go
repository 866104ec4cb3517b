package admin

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/state/claim"
)

// config is an object in force.
type config struct {
	Kind     string          `json:"kind"`
	Metadata Metadata        `json:"metadata"`
	Spec     json.RawMessage `json:"spec"`
	Position string          `json:"position,omitempty"`
}

// Metadata is the metadata of an object.
type Metadata struct {
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	Labels    map[string]string `json:"labels,omitempty"`
	Created   time.Time         `json:"creationTimestamp,omitzero"`
}

// wanted reports whether a request asks for an object.
func wanted(r *http.Request, k api.Key) bool {
	q := r.URL.Query()
	return (q.Get("kind") == "" || strings.EqualFold(q.Get("kind"), k.Kind)) &&
		(q.Get("namespace") == "" || q.Get("namespace") == k.Namespace) &&
		(q.Get("name") == "" || q.Get("name") == k.Name)
}

// configz returns the objects in force; with the parameter names, only their kinds, namespaces and names, as Objects.
func (p *Pages) configz(r *http.Request) (any, error) {
	type found struct {
		object   *api.Object
		position api.Position
	}
	all, err := inspect(r, p, func(v *loop.View) (all []found) {
		for k, o := range v.Tables.Objects.All() {
			if wanted(r, k) {
				position, _ := v.Tables.Positions.Peek(k)
				all = append(all, found{o, position})
			}
		}
		return all
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b found) int { return a.object.Key.Compare(b.object.Key) })
	if r.URL.Query().Has("names") {
		names := make([]Object, 0, len(all))
		for _, f := range all {
			names = append(names, Object(f.object.Key))
		}
		return names, nil
	}
	list := make([]config, 0, len(all))
	for _, f := range all {
		o := f.object
		spec, err := protojson.Marshal(o.Spec)
		if err != nil {
			return nil, refuse(http.StatusInternalServerError, "showing %s: %v", o.Key, err)
		}
		list = append(list, config{
			Kind: o.Kind, Spec: spec, Position: f.position.String(),
			Metadata: Metadata{Namespace: o.Namespace, Name: o.Name, Labels: o.Labels, Created: o.Created},
		})
	}
	return list, nil
}

// Service is a service as a ServiceEntry declares it.
type Service struct {
	Namespace  string     `json:"namespace"`
	Name       string     `json:"name"`
	Hosts      []string   `json:"hosts"`
	Ports      []Port     `json:"ports"`
	Resolution string     `json:"resolution"`
	Addresses  []string   `json:"addresses,omitempty"`
	External   bool       `json:"external,omitempty"`
	VisibleTo  []string   `json:"visible_to"` // namespaces, or "*"
	Endpoints  []Endpoint `json:"endpoints,omitempty"`
}

// Port is a port of a service.
type Port struct {
	Number     uint32 `json:"number"`
	TargetPort uint32 `json:"target_port,omitempty"`
	Name       string `json:"name"`
	Protocol   string `json:"protocol"`
}

// Endpoint is an endpoint of a service.
type Endpoint struct {
	Address  string            `json:"address"`
	Ports    map[string]uint32 `json:"ports,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Locality string            `json:"locality,omitempty"`
	Weight   uint32            `json:"weight,omitempty"`
	Network  string            `json:"network,omitempty"`
	// Workload is the WorkloadEntry or pod that it comes from; of endpoints in a slice, the slice and the address.
	Workload string `json:"workload,omitempty"`
}

// declared are the rows of one object, collected on the loop.
type declared struct {
	key       api.Key
	service   *mesh.Service
	claims    *claim.Claims
	endpoints []Endpoint
}

// declarations collects the rows of the services that a request asks for, with their endpoints if that is wanted.
func (p *Pages) declarations(r *http.Request, endpoints bool) ([]declared, error) {
	q := r.URL.Query()
	namespace, host := q.Get("namespace"), q.Get("host")
	list, err := inspect(r, p, func(v *loop.View) (list []declared) {
		for k, s := range v.Tables.Services.All() {
			if namespace != "" && namespace != k.Namespace {
				continue
			}
			d := declared{key: k, service: s}
			d.claims, _ = v.Tables.Claims.Peek(k)
			if host != "" && (d.claims == nil || !slices.Contains(d.claims.Hosts, host)) {
				continue
			}
			if endpoints {
				d.endpoints = []Endpoint{}
				for workload, e := range v.Queries.Services.Declared(v.Graph.Glance(), k, s) {
					d.endpoints = append(d.endpoints, showEndpoint(e, workload))
				}
			}
			list = append(list, d)
		}
		return list
	})
	slices.SortFunc(list, func(a, b declared) int { return a.key.Compare(b.key) })
	return list, err
}

func (p *Pages) registryz(r *http.Request) (any, error) { return p.services(r, false) }

func (p *Pages) endpointz(r *http.Request) (any, error) { return p.services(r, true) }

func (p *Pages) services(r *http.Request, endpoints bool) (any, error) {
	list, err := p.declarations(r, endpoints)
	out := make([]Service, 0, len(list))
	for _, d := range list {
		out = append(out, d.show())
	}
	return out, err
}

func (d declared) show() Service {
	s := Service{
		Namespace: d.key.Namespace, Name: d.key.Name, Hosts: []string{}, Ports: []Port{}, VisibleTo: []string{},
		Resolution: d.service.Resolution.String(), Addresses: d.service.Addresses, External: d.service.External,
		Endpoints: d.endpoints,
	}
	if d.claims != nil {
		s.Hosts = d.claims.Hosts
		for _, layer := range d.claims.Layers {
			s.VisibleTo = append(s.VisibleTo, cmp.Or(layer, "*"))
		}
	}
	for _, port := range d.service.Ports {
		s.Ports = append(s.Ports, Port{Number: port.Number, TargetPort: port.TargetPort, Name: port.Name, Protocol: port.Protocol.String()})
	}
	return s
}

func showEndpoint(e *mesh.Endpoint, workload string) Endpoint {
	return Endpoint{
		Address: e.Address, Ports: e.Ports, Labels: mesh.LabelMap(e.Labels), Locality: e.Locality.String(), Weight: e.Weight,
		Network: e.Network, Workload: workload,
	}
}

func (p *Pages) problemz(r *http.Request) (any, error) {
	level := r.URL.Query().Get("level")
	list, err := inspect(r, p, func(v *loop.View) []Problem {
		p.Board.look(v)
		list := slices.DeleteFunc(p.Board.Problems(), func(one Problem) bool {
			return !wanted(r, one.Object.Key()) || level != "" && level != one.Level
		})
		for i := range list {
			list[i].place(v)
		}
		return list
	})
	toFields(list, p.Board.fields)
	return list, err
}

// Cells describes the cells of the query graph.
type Cells struct {
	Revision store.Revision `json:"revision"`
	Live     int            `json:"live"`
	ByQuery  map[string]int `json:"by_query"`
	Faults   []Fault        `json:"faults"`
	Commits  []Commit       `json:"commits"`
}

// Fault is the failure of a cell. It is a bug in the control plane.
type Fault struct {
	Query    string         `json:"query"`
	Key      string         `json:"key"`
	Reason   string         `json:"reason"`
	Revision store.Revision `json:"revision"`
	Kept     bool           `json:"kept"` // its last good value is still served
}

func (p *Pages) cellz(r *http.Request) (any, error) {
	type found struct {
		revision store.Revision
		cells    map[string]int
		faults   []query.Fault
	}
	now, err := inspect(r, p, func(v *loop.View) found {
		return found{v.Graph.Revision(), v.Graph.Cells(), v.Graph.Faults()}
	})
	out := Cells{Revision: now.revision, ByQuery: now.cells, Faults: []Fault{}, Commits: p.Commits.Last()}
	for _, n := range out.ByQuery {
		out.Live += n
	}
	for _, f := range now.faults {
		out.Faults = append(out.Faults, Fault{f.Query, f.Key, f.Reason, f.Revision, f.Kept})
	}
	slices.SortFunc(out.Faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Query, b.Query), cmp.Compare(a.Key, b.Key))
	})
	return out, err
}
