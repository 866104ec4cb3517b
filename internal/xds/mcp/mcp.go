// Package mcp translates objects of configuration into the resources that other control planes read (MCP over xDS).
//
// It owns which objects a reader sees, and how one is encoded. A reader sees all objects, of all sources, and the services of registries outside
// Kubernetes as ServiceEntries with their endpoints; but no object that came through the reader itself. An object that came through another control
// plane is not for a reader that does not name itself, because it may be one of these.
//
// There is one resource for each object, which is encoded once for all readers. The package starts no goroutines.
package mcp

import (
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	mcpv1 "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// View names the objects of a kind that a reader sees. Reader is the ID of the cluster of the reader; empty if it does not say.
type View struct{ Kind, Reader string }

// Kinds returns the kinds of objects that are served.
func Kinds() (kinds []api.Kind) {
	for _, k := range api.Kinds() {
		if strings.HasSuffix(k.Group(), ".istio.io") {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// KindOf returns the kind that a type URL GROUP/VERSION/KIND names; empty if none is served under it.
func KindOf(url string) string {
	for _, k := range Kinds() {
		for _, version := range k.Versions() {
			if url == k.Group()+"/"+version+"/"+k.Name {
				return k.Name
			}
		}
	}
	return ""
}

// seen names an object for a reader.
type seen struct {
	object api.Key
	reader string
}

// all is the key of the collection of the services of registries.
type all struct{}

// Queries are the resources of readers.
type Queries struct {
	// Resources are the resources of a view, by NAMESPACE/NAME.
	Resources query.Layers[View, omap.Name, *resource.Resource]

	tables  *state.Tables
	encoded query.Query[api.Key, *resource.Resource]
}

// Define adds the queries to a graph.
func Define(g *query.Graph, t *state.Tables) *Queries {
	q := &Queries{tables: t}
	q.encoded = query.Define(g, "served", func(a, b *resource.Resource) bool { return a.ContentHash() == b.ContentHash() }, q.encode)
	visible := query.Define(g, "served.visible", equal, q.visible)
	objects := query.Each(g, "served.all", func(r *query.Reader, v View) omap.Map[api.Key, omap.Unit] { return t.Kinds.Group(r, v.Kind) },
		visible, func(v View, k api.Key) seen { return seen{k, v.Reader} })
	entries := query.Define(g, "served.entry", equal, q.entries)
	services := query.Each(g, "served.entries", func(r *query.Reader, _ all) omap.Map[omap.Name, omap.Unit] {
		return t.Registries.Entries.Group(r, struct{}{})
	},
		entries, func(_ all, name omap.Name) omap.Name { return name })
	q.Resources = query.DefineLayers(g, "served.view", func(r *query.Reader, v View) []omap.Map[omap.Name, *resource.Resource] {
		list := []omap.Map[omap.Name, *resource.Resource]{objects.Get(r, v)}
		if v.Kind == api.KindServiceEntry {
			list = append(list, services.Get(r, all{}))
		}
		return list
	})
	return q
}

func equal(a, b []*resource.Resource) bool {
	return slices.EqualFunc(a, b, func(a, b *resource.Resource) bool { return a.Name() == b.Name() && a.ContentHash() == b.ContentHash() })
}

// visible returns the resource of an object, if a reader sees it.
func (q *Queries) visible(r *query.Reader, k seen) ([]*resource.Resource, bool) {
	o, ok := q.tables.Objects.Get(r, k.object)
	if !ok {
		return nil, false
	}
	through := o.Annotations[api.ServedThrough]
	if through != "" && (k.reader == "" || slices.Contains(strings.Split(through, ","), k.reader)) {
		return nil, false
	}
	one, ok := q.encoded.Get(r, k.object)
	return []*resource.Resource{one}, ok
}

// encode returns the resource of an object.
func (q *Queries) encode(r *query.Reader, k api.Key) (*resource.Resource, bool) {
	o, ok := q.tables.Objects.Get(r, k)
	if !ok {
		return nil, false
	}
	meta := &mcpv1.Metadata{Name: k.Namespace + "/" + k.Name, Version: hex.EncodeToString(o.Hash[:]), Labels: o.Labels, Annotations: q.annotations(o)}
	if !o.Created.IsZero() {
		meta.CreateTime = timestamppb.New(o.Created)
	}
	return made(meta, o.Spec), true
}

// annotations are the annotations of an object, with this control plane as the last one through which it came. The status of an object is not served, so that
// a workload whose health is checked says in another way that it is healthy: by not being checked.
func (q *Queries) annotations(o *api.Object) map[string]string {
	out := maps.Clone(o.Annotations)
	if out == nil {
		out = map[string]string{}
	}
	if o.Healthy {
		delete(out, api.HealthChecked)
	}
	out[api.ServedThrough] = strings.TrimPrefix(out[api.ServedThrough]+","+q.tables.ClusterID(), ",")
	return out
}

// made encodes a resource.
func made(meta *mcpv1.Metadata, spec proto.Message) *resource.Resource {
	body := new(anypb.Any)
	if err := anypb.MarshalFrom(body, spec, proto.MarshalOptions{Deterministic: true}); err != nil {
		panic(err) // the cell keeps its last value and reports it
	}
	return resource.New(resource.Configuration, meta.Name, &mcpv1.Resource{Metadata: meta, Body: body})
}

// entry returns a ServiceEntry of a service of a registry.
func (q *Queries) entry(name string, spec *networking.ServiceEntry) *resource.Resource {
	return made(&mcpv1.Metadata{
		Name: name, CreateTime: timestamppb.New(lastDay()), Annotations: map[string]string{api.ServedThrough: q.tables.ClusterID()},
	}, spec)
}
