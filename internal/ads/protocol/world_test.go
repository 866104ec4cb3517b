package protocol

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/pilotmesh/pilot/internal/ads/protocol/transition"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/xds/nds"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// world is a mesh for tests. A resource has a name and a mark, which is its content; "mark*200k" is padded to about that
// size. Route configurations have pieces: "x=1>a,b" is the piece x with content 1 that routes to a and b. "x=1@d" has the domain
// d; otherwise the domain of a piece is its name. Clusters fetch their endpoints by EDS under their own name.
type world struct {
	marks  [resource.Types]map[string]string
	pieces map[string]map[string]string // route configuration → piece → mark>refs
}

func newWorld() *world {
	w := &world{pieces: map[string]map[string]string{}}
	for t := range w.marks {
		w.marks[t] = map[string]string{}
	}
	return w
}

// edit applies "CDS a=1 -b; RDS 80[x=1>a -y]".
func (w *world) edit(text string) error {
	for _, part := range strings.Split(text, ";") {
		fields := strings.Fields(strings.NewReplacer("[", " [ ", "]", " ] ").Replace(part))
		if len(fields) == 0 {
			continue
		}
		t, err := parseShort(fields[0])
		if err != nil {
			return err
		}
		inside := ""
		last := ""
		for _, f := range fields[1:] {
			switch {
			case f == "[":
				inside = last
				if w.pieces[inside] == nil {
					w.pieces[inside] = map[string]string{}
				}
				if _, ok := w.marks[t][inside]; !ok {
					w.marks[t][inside] = "h"
				}
			case f == "]":
				inside = ""
			case inside != "":
				set(w.pieces[inside], f)
			default:
				last, _, _ = strings.Cut(f, "=")
				if strings.Contains(f, "=") || strings.HasPrefix(f, "-") {
					set(w.marks[t], f)
				}
			}
		}
	}
	return nil
}

func set(m map[string]string, f string) {
	if name, ok := strings.CutPrefix(f, "-"); ok {
		delete(m, name)
		return
	}
	name, mark, _ := strings.Cut(f, "=")
	m[name] = mark
}

func parseShort(s string) (resource.Type, error) {
	for t := resource.Type(0); t <= resource.VirtualHost; t++ {
		if t.String() == s {
			return t, nil
		}
	}
	return 0, fmt.Errorf("no type is called %q", s)
}

// state builds the class state of the world.
func (w *world) state(rev store.Revision) *resource.State {
	s := &resource.State{Revision: rev}
	for t := range w.marks {
		var puts []omap.Change[omap.Name, *resource.Resource]
		for _, name := range slices.Sorted(maps.Keys(w.marks[t])) {
			puts = append(puts, omap.Put(omap.Name(name), w.resource(resource.Type(t), name)))
		}
		s.Types[t] = resource.Layers{omap.With(transition.Resources{}, puts...)}
	}
	return s
}

func (w *world) resource(t resource.Type, name string) *resource.Resource {
	mark := w.marks[t][name]
	if t == resource.Route && len(w.pieces[name]) > 0 {
		var puts []omap.Change[omap.Name, *resource.Piece]
		for _, p := range slices.Sorted(maps.Keys(w.pieces[name])) {
			puts = append(puts, omap.Put(omap.Name(p), newTestPiece(p, w.pieces[name][p])))
		}
		return resource.NewRoute(name, header(name, mark), omap.With(omap.Map[omap.Name, *resource.Piece]{}, puts...))
	}
	return newResource(t, name, mark)
}

// header is a route configuration without virtual hosts that contains a mark.
func header(name, mark string) *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{Name: name, InternalOnlyHeaders: []string{mark}}
}

// hostVersion is the version of a virtual host as a resource of its own, with a mark or as it is now.
func (w *world) hostVersion(name, mark string) string {
	route, piece := resource.SplitHostName(name)
	if mark == "now" {
		mark = w.pieces[route][piece]
	}
	return newTestPiece(piece, mark).Host(route).Version()
}

// newResource makes a resource that contains a mark.
func newResource(t resource.Type, name, mark string) *resource.Resource {
	if t == resource.NameTable {
		return resource.Encoded(t, name, nds.Entry{Host: name, Addresses: []string{mark}}.Append(nil))
	}
	return resource.New(t, name, message(t, name, mark))
}

func newTestPiece(name, spec string) *resource.Piece {
	mark, to, _ := strings.Cut(spec, ">")
	mark, domain, ok := strings.Cut(mark, "@")
	if !ok {
		domain = name
	}
	var refs []string
	if to != "" {
		refs = strings.Split(to, ",")
	}
	return resource.NewPiece(name, &routev3.VirtualHost{
		Name: name, Domains: []string{domain}, RequestHeadersToRemove: []string{pad(mark)}, ResponseHeadersToRemove: refs,
	}, refs)
}

// message makes a resource that contains a mark.
func message(t resource.Type, name, mark string) proto.Message {
	mark, to, _ := strings.Cut(mark, ">")
	mark = pad(mark)
	switch t {
	case resource.Cluster:
		return &clusterv3.Cluster{
			Name: name, AltStatName: mark,
			ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
			EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &corev3.ConfigSource{
				ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
			}},
		}
	case resource.Endpoint:
		return &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{
			{Locality: &corev3.Locality{Region: mark}},
		}}
	case resource.Secret:
		return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_GenericSecret{GenericSecret: &tlsv3.GenericSecret{
			Secret: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: mark}},
		}}}
	case resource.Extension:
		value, err := anypb.New(wrapperspb.String(mark))
		if err != nil {
			panic(err)
		}
		return &corev3.TypedExtensionConfig{Name: name, TypedConfig: value}
	case resource.Listener:
		return &listenerv3.Listener{Name: name, StatPrefix: mark, TrafficDirection: corev3.TrafficDirection(len(to) % 3)}
	default:
		return header(name, mark)
	}
}

func pad(mark string) string {
	m, size, ok := strings.Cut(mark, "*")
	if !ok {
		return mark
	}
	n, err := strconv.Atoi(strings.TrimSuffix(size, "k"))
	if err != nil {
		panic(err)
	}
	return m + strings.Repeat("*", n<<10)
}

// show is the inverse of message: it shows a decoded resource as name=mark.
func show(m proto.Message) string {
	trim := func(s string) string { return strings.TrimRight(s, "*") }
	switch m := m.(type) {
	case *clusterv3.Cluster:
		return m.Name + "=" + trim(m.AltStatName)
	case *endpointv3.ClusterLoadAssignment:
		if len(m.Endpoints) == 0 {
			return m.ClusterName + "=" // none
		}
		return m.ClusterName + "=" + trim(m.Endpoints[0].Locality.Region)
	case *tlsv3.Secret:
		return m.Name + "=" + trim(m.GetGenericSecret().GetSecret().GetInlineString())
	case *corev3.TypedExtensionConfig:
		var value wrapperspb.StringValue
		if err := m.TypedConfig.UnmarshalTo(&value); err != nil {
			return err.Error()
		}
		return m.Name + "=" + trim(value.Value)
	case *listenerv3.Listener:
		return m.Name + "=" + trim(m.StatPrefix)
	case *routev3.VirtualHost:
		return m.Name + "=" + trim(m.RequestHeadersToRemove[0])
	case *routev3.RouteConfiguration:
		if m.Vhds != nil {
			return m.Name + "=" + trim(strings.Join(m.InternalOnlyHeaders, "")) + " apart"
		}
		if len(m.VirtualHosts) == 0 {
			return m.Name + "=" + trim(strings.Join(m.InternalOnlyHeaders, ""))
		}
		var list []string
		for _, v := range m.VirtualHosts {
			list = append(list, v.Name+"="+trim(v.RequestHeadersToRemove[0]))
		}
		return m.Name + "[" + strings.Join(list, " ") + "]"
	}
	return fmt.Sprintf("%T", m)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
