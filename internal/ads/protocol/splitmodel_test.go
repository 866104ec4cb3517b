package protocol

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// hostTable is how the model of an Envoy fetches virtual hosts. It asks for them once per stream, after its first route configuration in the
// split form, and does not answer responses before that. It acknowledges virtual hosts of route configurations that it does not use,
// and drops them; but it lists them when it connects again.
type hostTable struct {
	subscribed bool
	hosts      map[string]map[string]*routev3.VirtualHost // by route configuration
	versions   map[string]string                          // of everything that it has acknowledged
	nonce      string
	// waiting are the route configurations that wait for their first virtual hosts.
	waiting map[string]bool
}

func newHostTable() *hostTable {
	return &hostTable{hosts: map[string]map[string]*routev3.VirtualHost{}, versions: map[string]string{}, waiting: map[string]bool{}}
}

// takeHead notes a route configuration in the split form.
func (p *proxy) takeHead(r *routev3.RouteConfiguration) {
	t := p.table
	if old := p.routes[r.Name]; old != nil && old.Vhds == nil {
		p.fault("the form of route %s has changed", r.Name)
	}
	if t.hosts[r.Name] == nil {
		t.hosts[r.Name], t.waiting[r.Name] = map[string]*routev3.VirtualHost{}, true
	}
	if !t.subscribed {
		t.subscribed = true
		p.requestHosts(nil, nil)
	}
}

// drop forgets the virtual hosts of a route configuration that the proxy does not use any more.
func (t *hostTable) drop(route string) {
	delete(t.hosts, route)
	delete(t.waiting, route)
}

func (p *proxy) requestHosts(initial map[string]string, err error) {
	q := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.VirtualHost.URL(), InitialResourceVersions: initial, ResponseNonce: p.table.nonce}
	if err != nil {
		q.ErrorDetail = statusOf(err)
	}
	raw, _ := proto.Marshal(q)
	p.out = append(p.out, raw)
}

// receiveHosts applies a response with virtual hosts and answers it.
func (p *proxy) receiveHosts(a Action) {
	t := p.table
	if !t.subscribed {
		return // Envoy logs a type that it did not ask for.
	}
	var m discoveryv3.DeltaDiscoveryResponse
	p.check(proto.Unmarshal(wire(a), &m))
	t.nonce = m.Nonce
	var bad []string
	for _, r := range m.Resources {
		route, _ := resource.SplitHostName(r.Name)
		if t.hosts[route] != nil && isBad(show(p.open(r.Resource.UnmarshalNew()))) {
			bad = append(bad, r.Name)
		}
	}
	if len(bad) > 0 {
		err := fmt.Errorf("rejected")
		if !p.unspecific {
			err = fmt.Errorf("bad: %s", strings.Join(bad, ", "))
		}
		clear(t.waiting) // A rejection ends the wait of all.
		for _, r := range m.Resources {
			p.refused[r.Name] = true
		}
		p.requestHosts(nil, err)
		return
	}
	for _, r := range m.Resources {
		t.versions[r.Name] = r.Version
		route, _ := resource.SplitHostName(r.Name)
		if have := t.hosts[route]; have != nil {
			have[r.Name] = p.open(r.Resource.UnmarshalNew()).(*routev3.VirtualHost)
			delete(t.waiting, route)
		}
	}
	for _, n := range m.RemovedResources {
		delete(t.versions, n)
		route, _ := resource.SplitHostName(n)
		delete(t.hosts[route], n)
		delete(t.waiting, route)
	}
	p.requestHosts(nil, nil)
	p.coherent(resource.Route)
	p.oneOwner()
}

// oneOwner checks that each domain belongs to one virtual host.
func (p *proxy) oneOwner() {
	for route, hosts := range p.table.hosts {
		owner := map[string]string{}
		for n, v := range hosts {
			if o := owner[v.Domains[0]]; o != "" {
				p.fault("route %s: %s and %s have the domain %s", route, n, o, v.Domains[0])
			}
			owner[v.Domains[0]] = n
		}
	}
}

// whole is a route configuration with its virtual hosts, whatever its form.
func (p *proxy) whole(r *routev3.RouteConfiguration) *routev3.RouteConfiguration {
	if r.Vhds == nil {
		return r
	}
	r = proto.CloneOf(r)
	r.Vhds = nil
	hosts := p.table.hosts[r.Name]
	for _, n := range slices.Sorted(maps.Keys(hosts)) {
		v := proto.CloneOf(hosts[n])
		_, v.Name = resource.SplitHostName(n)
		r.VirtualHosts = append(r.VirtualHosts, v)
	}
	return r
}

// kinds is the greatest number of a kind of edit.
func (r *run) kinds() int {
	if r.split {
		return 8
	}
	return 6
}

// editSplit makes the changes that matter to the split form: of the head of a route configuration, and its end together with its listener.
func (r *run) editSplit(l, mark string) {
	w := r.world
	if w.pieces["r"+l] == nil {
		return
	}
	if mark != "" {
		w.marks[resource.Route]["r"+l] = mark
		return
	}
	delete(w.marks[resource.Listener], "l"+l)
	delete(w.marks[resource.Route], "r"+l)
	delete(w.pieces, "r"+l)
}

// hasHeads checks that the proxy has the head of each route configuration, and waits for no virtual hosts.
func (r *run) hasHeads() {
	if !r.split {
		return
	}
	for route := range r.proxy.table.waiting {
		r.rt.Fatalf("the route configuration %s waits for virtual hosts for ever", route)
	}
	for n := range r.world.marks[resource.Listener] {
		name := "r" + strings.TrimPrefix(n, "l")
		got, want := r.proxy.routes[name], header(name, r.world.marks[resource.Route][name])
		if got == nil || got.Vhds == nil || !slices.Equal(got.InternalOnlyHeaders, want.InternalOnlyHeaders) {
			r.rt.Fatalf("the head of %s is %v, want %v", name, got, want)
		}
	}
	all := map[string]string{}
	for route, hosts := range r.proxy.table.hosts {
		for n := range hosts {
			_, piece := resource.SplitHostName(n)
			if p, ok := r.world.resource(resource.Route, route).Pieces().Get(omap.Name(piece)); ok {
				all[n] = p.Host(route).Version()
			}
		}
	}
	said := maps.Clone(r.proxy.table.versions)
	if len(r.world.marks[resource.Listener]) == 0 {
		// A proxy without listeners asks for no route configuration. If it connected again before it heard that its virtual hosts are gone, it
		// still names them. Such a claim does not count, because the proxy does not have the route configuration, and is corrected when the proxy
		// asks for one.
		maps.DeleteFunc(said, func(n, _ string) bool {
			route, _ := resource.SplitHostName(n)
			return r.proxy.routes[route] == nil && len(r.proxy.table.hosts[route]) == 0
		})
	}
	if !maps.Equal(all, said) {
		r.rt.Fatalf("the proxy says that it has %v, and has %v", r.proxy.table.versions, all)
	}
}
