package patch

import (
	"fmt"
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
)

// routeConfiguration applies patches to a route configuration with all its virtual hosts, as it is in a listener.
func (r *run) routeConfiguration(c *routev3.RouteConfiguration) {
	r.header(c)
	about := func(p *Patch) bool { return p.selectsConfiguration(r.place, c.GetName()) }
	c.VirtualHosts = slices.DeleteFunc(c.GetVirtualHosts(), func(v *routev3.VirtualHost) bool { return !r.virtualHost(v, about) })
	for i, p := range r.of(networking.EnvoyFilter_VIRTUAL_HOST) {
		if p.Adds() && about(p) {
			r.do(i, func() error {
				v, err := valueOf[*routev3.VirtualHost](p)
				if err == nil {
					c.VirtualHosts = append(c.VirtualHosts, proto.CloneOf(v))
				}
				return err
			})
		}
	}
}

func (r *run) header(c *routev3.RouteConfiguration) (keep bool) {
	for i, p := range r.of(networking.EnvoyFilter_ROUTE_CONFIGURATION) {
		if p.selectsConfiguration(r.place, c.GetName()) {
			r.do(i, func() error { return p.mergeInto(c) })
		}
	}
	return true
}

// headerAlone is header without the virtual hosts that patches merge into the list: AddedHosts has these.
func (r *run) headerAlone(c *routev3.RouteConfiguration) (keep bool) {
	keep = r.header(c)
	c.VirtualHosts = nil
	return keep
}

// Header applies patches to a route configuration without its virtual hosts.
func Header(c *routev3.RouteConfiguration, at Place, patches []*Patch) Result[*routev3.RouteConfiguration] {
	name := c.GetName()
	return apply(c, at, patches, editing[*routev3.RouteConfiguration]{edit: (*run).headerAlone, check: func(c *routev3.RouteConfiguration) error {
		if c.GetName() != name {
			return fmt.Errorf("listeners fetch it as %q, and it would be called %q", name, c.GetName())
		}
		return nil
	}})
}

// VirtualHost applies patches to a virtual host of a route configuration, and to its routes. It keeps its name, by which proxies may fetch
// it. If a patch about access is left out, the virtual host refuses all requests.
func VirtualHost(v *routev3.VirtualHost, configuration string, at Place, patches []*Patch) Result[*routev3.VirtualHost] {
	name := v.GetName()
	edit := func(r *run, v *routev3.VirtualHost) bool {
		keep := r.virtualHost(v, func(p *Patch) bool { return p.selectsConfiguration(at, configuration) })
		v.Name = name
		return keep
	}
	return apply(v, at, patches, editing[*routev3.VirtualHost]{edit: edit, deny: denyRequests})
}

// AddedHost is a virtual host that a patch adds, with what became of the patch. It is nil if the patch has a flaw.
type AddedHost struct {
	Host *routev3.VirtualHost
	Outcome
}

// AddedHosts returns the virtual hosts that patches add to a route configuration. A patch that merges virtual hosts into the list adds them, too.
func AddedHosts(configuration string, at Place, patches []*Patch) (list []AddedHost) {
	var good []*routev3.VirtualHost
	for _, p := range patches {
		if !p.In(at.Context) || !p.selectsConfiguration(at, configuration) {
			continue
		}
		for _, v := range p.addedHosts() {
			o := Outcome{Patch: p.Ref, Matched: 1, Failure: p.Flaw}
			if o.Failure == "" {
				if err := checkAdded(v, good); err != nil {
					o.Failure = err.Error()
				} else {
					good = append(good, v)
				}
			}
			list = append(list, AddedHost{v, o})
		}
	}
	return list
}

// addedHosts are the virtual hosts that a patch adds to route configurations. There is one that is nil if the patch has a flaw.
func (p *Patch) addedHosts() []*routev3.VirtualHost {
	switch {
	case p.ApplyTo == networking.EnvoyFilter_VIRTUAL_HOST && p.Adds():
		v, _ := p.value.(*routev3.VirtualHost)
		return []*routev3.VirtualHost{v}
	case p.ApplyTo == networking.EnvoyFilter_ROUTE_CONFIGURATION && merges(p.op) && p.Flaw == "":
		v, _ := p.value.(*routev3.RouteConfiguration)
		return v.GetVirtualHosts()
	}
	return nil
}

func (r *run) virtualHost(v *routev3.VirtualHost, about func(*Patch) bool) (keep bool) {
	for i, p := range r.of(networking.EnvoyFilter_VIRTUAL_HOST) {
		if p.Adds() || !about(p) || !p.selectsHost(v) {
			continue
		}
		if p.op == networking.EnvoyFilter_Patch_REMOVE {
			r.do(i, func() error { return nil })
			return false
		}
		r.do(i, func() error { return p.changeHost(v) })
	}
	r.routes(v, func(p *Patch) bool { return about(p) && p.selectsHost(v) })
	return true
}

// changeHost merges into a virtual host, or replaces its content.
func (p *Patch) changeHost(v *routev3.VirtualHost) error {
	if p.op != networking.EnvoyFilter_Patch_REPLACE {
		return p.mergeInto(v)
	}
	with, err := valueOf[*routev3.VirtualHost](p)
	if err != nil {
		return err
	}
	proto.Reset(v)
	proto.Merge(v, with)
	return nil
}

func (r *run) routes(v *routev3.VirtualHost, about func(*Patch) bool) {
	v.Routes = slices.DeleteFunc(v.GetRoutes(), func(route *routev3.Route) bool { return !r.route(route, about) })
	for i, p := range r.of(networking.EnvoyFilter_HTTP_ROUTE) {
		if merges(p.op) || p.op == networking.EnvoyFilter_Patch_REMOVE || !about(p) {
			continue
		}
		of := placed[*routev3.Route]{op: p.op, named: p.namesRoute() && !p.Adds(), selects: p.selectsRoute, add: atEnd[*routev3.Route]}
		if value, ok := p.value.(*routev3.Route); ok {
			of.value = func() *routev3.Route { return proto.CloneOf(value) }
		}
		v.Routes = placeIn(r, i, of, v.GetRoutes())
	}
}

func (r *run) route(route *routev3.Route, about func(*Patch) bool) (keep bool) {
	for i, p := range r.of(networking.EnvoyFilter_HTTP_ROUTE) {
		if !about(p) || !p.selectsRoute(route) {
			continue
		}
		switch {
		case p.op == networking.EnvoyFilter_Patch_REMOVE:
			r.do(i, func() error { return nil })
			return false
		case merges(p.op):
			r.do(i, func() error { return p.mergeInto(route) })
		}
	}
	return true
}
