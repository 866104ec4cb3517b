package rules

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
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
			c.Warn(s.at, "does nothing beside %s, which answers the request without forwarding it; remove it, or route to a destination", action)
		}
	}
}

func (c *checker) cors(p *document.Path, r *networking.CorsPolicy) {
	if r == nil {
		return
	}
	if len(r.AllowOrigin) > 0 { //nolint:staticcheck // it is the deprecated field we look for
		c.Warn(p.Field("allowOrigin"), "is deprecated; use allowOrigins")
	}
	for i, origin := range r.AllowOrigins {
		at := p.Field("allowOrigins").At(i)
		if origin.GetMatchType() == nil {
			c.Fail(at, "an origin needs exact, prefix or regex")
		}
		if t, ok := origin.GetMatchType().(*networking.StringMatch_Exact); ok && t.Exact == "" {
			c.Fail(at.Field("exact"), "an origin must not be empty")
		}
		c.stringMatch(at, origin, false)
	}
	for i, method := range r.AllowMethods {
		if !slices.Contains([]string{"*", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"}, method) {
			c.Fail(p.Field("allowMethods").At(i), "%s is not an HTTP method", document.Quote(method))
		}
	}
	for i, name := range r.AllowHeaders {
		c.Rule(p.Field("allowHeaders").At(i), syntax.HeaderName(name))
	}
	for i, name := range r.ExposeHeaders {
		c.Rule(p.Field("exposeHeaders").At(i), syntax.HeaderName(name))
	}
	if r.MaxAge.GetNanos() != 0 {
		c.Fail(p.Field("maxAge"), "browsers count in whole seconds, not %v", r.MaxAge.AsDuration())
	}
}
