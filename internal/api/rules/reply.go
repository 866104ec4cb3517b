package rules

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/document"
)

// unforwarded warns of settings for forwarded requests on a route that answers requests itself.
func (c *checker) unforwarded(p *document.Path, r *networking.HTTPRoute) {
	action := "redirect"
	switch {
	case len(r.Route) > 0 || r.Delegate != nil:
		return
	case r.DirectResponse != nil:
		action = "directResponse"
	case r.Redirect == nil:
		return
	}
	at := p.Field("headers").Field("request")
	for _, s := range []struct {
		at  *document.Path
		set bool
	}{
		{p.Field("timeout"), r.Timeout != nil}, {p.Field("retries"), r.Retries != nil},
		{p.Field("mirror"), r.Mirror != nil}, {p.Field("mirrors"), len(r.Mirrors) > 0},
		{at.Field("set"), len(r.Headers.GetRequest().GetSet()) > 0}, {at.Field("add"), len(r.Headers.GetRequest().GetAdd()) > 0},
		{at.Field("remove"), len(r.Headers.GetRequest().GetRemove()) > 0},
	} {
		if s.set {
			c.warn(s.at, "does nothing beside %s, which answers the request without forwarding it; remove it, or route to a destination", action)
		}
	}
}
