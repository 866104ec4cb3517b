package patch

import (
	"errors"
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

// Header applies patches to a route configuration without its virtual hosts.
func Header(c *routev3.RouteConfiguration, at Place, patches []*Patch) Result[*routev3.RouteConfiguration] {
	name := c.GetName()
	return apply(c, at, patches, editing[*routev3.RouteConfiguration]{edit: (*run).header, check: func(c *routev3.RouteConfiguration) error {
		switch {
		case c.GetName() != name:
			return fmt.Errorf("listeners fetch it as %q, and it would be called %q", name, c.GetName())
		case len(c.GetVirtualHosts()) > 0:
			return errors.New("virtual hosts are added by a patch of VIRTUAL_HOST")
		}
		return nil
	}})
}

// VirtualHost applies patches to a virtual host of a route configuration, and to its routes. If a patch about access is left out, the
// virtual host refuses all requests.
func VirtualHost(v *routev3.VirtualHost, configuration string, at Place, patches []*Patch) Result[*routev3.VirtualHost] {
	edit := func(r *run, v *routev3.VirtualHost) bool {
		return r.virtualHost(v, func(p *Patch) bool { return p.selectsConfiguration(at, configuration) })
	}
	name := v.GetName()
	return apply(v, at, patches, editing[*routev3.VirtualHost]{edit: edit, deny: denyRequests, check: func(v *routev3.VirtualHost) error {
		if v.GetName() != name {
			return fmt.Errorf("the virtual host %q would be called %q", name, v.GetName())
		}
		return nil
	}})
}

// AddedHosts returns the virtual hosts that patches add to a route configuration, with the name of the patch.
func AddedHosts(configuration string, at Place, patches []*Patch) (list []*routev3.VirtualHost, outcomes []Outcome) {
	return added[*routev3.VirtualHost](patches, networking.EnvoyFilter_VIRTUAL_HOST, func(p *Patch) bool {
		return p.selectsConfiguration(at, configuration)
	})
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
