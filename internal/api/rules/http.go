package rules

import (
	"maps"
	"slices"
	"strings"
	"unicode"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
	"github.com/pilotmesh/pilot/internal/mesh"
)

const (
	maxBody   = 1 << 20   // bytes of a direct response
	largeBody = 100 << 10 // bytes of a direct response that burden proxies
	claimKey  = "@request.auth.claims"
)

func (c *checker) httpRoute(p *document.Path, r *networking.HTTPRoute, delegate bool) {
	if r == nil {
		c.Fail(p, "a route must not be null")
		return
	}
	c.action(p, r, delegate)
	c.unforwarded(p, r)
	for i, m := range r.Match {
		c.httpMatch(p.Field("match").At(i), m)
		if r.GetRedirect().GetPrefixRewrite() != "" && m.GetUri() != nil && !isPrefix(m.Uri) {
			c.Fail(p.Field("redirect").Field("prefixRewrite"), "replaces the prefix of a path, and match[%d] names no prefix; match uri.prefix, or use uri", i)
		}
	}
	for i, d := range r.Route {
		at := p.Field("route").At(i)
		if d == nil {
			c.Fail(at, "a destination must not be null")
			continue
		}
		c.destination(at.Field("destination"), d.Destination)
		c.headers(at.Field("headers"), d.Headers)
	}
	c.weights(p.Field("route"), len(r.Route), func(i int) int32 { return r.Route[i].GetWeight() })
	c.headers(p.Field("headers"), r.Headers)
	c.redirect(p.Field("redirect"), r.Redirect)
	c.directResponse(p.Field("directResponse"), r.DirectResponse)
	c.rewrite(p.Field("rewrite"), r)
	c.oneAuthority(p, r)
	c.Retries(p.Field("retries"), r.Retries)
	c.fault(p.Field("fault"), r.Fault)
	c.mirror(p, r)
	c.cors(p.Field("corsPolicy"), r.CorsPolicy)
}

// action checks that a route does exactly one of these: route, redirect, direct response, delegate.
func (c *checker) action(p *document.Path, r *networking.HTTPRoute, delegate bool) {
	type action struct {
		name string
		set  bool
	}
	actions := []action{
		{"route", len(r.Route) > 0}, {"redirect", r.Redirect != nil},
		{"directResponse", r.DirectResponse != nil}, {"delegate", r.Delegate != nil},
	}
	first := ""
	for _, a := range actions {
		if !a.set {
			continue
		}
		if first != "" {
			c.Fail(p.Field(a.name), "a route has one action: %s excludes %s", a.name, first)
			continue
		}
		first = a.name
	}
	if first == "" {
		c.Fail(p, "a route needs an action: route, redirect, directResponse or delegate")
	}
	if first == "redirect" || first == "directResponse" {
		for _, a := range []action{{"fault", r.Fault != nil}, {"rewrite", r.Rewrite != nil}} {
			if a.set {
				c.Fail(p.Field(a.name), "%s needs a route that forwards; it excludes %s", a.name, first)
			}
		}
	}
	if r.Delegate != nil {
		at := p.Field("delegate")
		if delegate {
			c.Fail(at, "a delegate must not delegate again: there is one level only")
		}
		if r.Delegate.Name == "" {
			c.Warn(at.Field("name"), "names no VirtualService, so the route does nothing")
		} else {
			c.Rule(at.Field("name"), syntax.Subdomain(r.Delegate.Name))
		}
		if r.Delegate.Namespace != "" {
			c.Rule(at.Field("namespace"), syntax.Label(r.Delegate.Namespace))
		}
	}
}

func isPrefix(m *networking.StringMatch) bool {
	_, ok := m.GetMatchType().(*networking.StringMatch_Prefix)
	return ok
}

func (c *checker) httpMatch(p *document.Path, m *networking.HTTPMatchRequest) {
	if m == nil {
		c.Fail(p, "a match must not be null")
		return
	}
	c.stringMatch(p.Field("uri"), m.Uri, true)
	c.stringMatch(p.Field("scheme"), m.Scheme, false)
	c.stringMatch(p.Field("method"), m.Method, false)
	c.stringMatch(p.Field("authority"), m.Authority, false)
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		at := p.Field("headers").Key(name)
		c.headerMatch(at, name, m.Headers[name])
		c.stringMatch(at, m.Headers[name], false)
	}
	for _, name := range slices.Sorted(maps.Keys(m.WithoutHeaders)) {
		at := p.Field("withoutHeaders").Key(name)
		c.headerMatch(at, name, m.WithoutHeaders[name])
		if m.WithoutHeaders[name].GetRegex() != "*" { // the old way to say "any value"
			c.stringMatch(at, m.WithoutHeaders[name], false)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.QueryParams)) {
		at := p.Field("queryParams").Key(name)
		if name == "" {
			c.Fail(at, "a query parameter needs a name")
		}
		c.AtMostBytes(at, name, maxQueryName)
		if m.QueryParams[name] == nil {
			c.Fail(at, "a match must not be null")
		}
		c.stringMatch(at, m.QueryParams[name], false)
	}
	if m.GetUri().GetRegex() != "" && m.IgnoreUriCase {
		c.Warn(p.Field("ignoreUriCase"), "has no effect on regular expressions; begin the expression with (?i)")
	}
	c.gateways(p.Field("gateways"), m.Gateways)
	if len(m.Gateways) > 0 && (len(m.SourceLabels) > 0 || m.SourceNamespace != "") {
		c.Warn(p.Field("gateways"), "says alone whom the match is for: sourceLabels and sourceNamespace beside it have no effect; use two matches")
	}
	if m.SourceNamespace != "" {
		c.Rule(p.Field("sourceNamespace"), syntax.Name(m.SourceNamespace))
	}
}

// headerMatch checks the name of a header to match: a header, a pseudo-header, or a claim of a token.
func (c *checker) headerMatch(p *document.Path, name string, m *networking.StringMatch) {
	switch {
	case m == nil:
		c.Fail(p, "a match must not be null; write {} for any value")
	case name == "":
		c.Fail(p, "a header needs a name")
	case isClaim(name):
		rest := name[len(claimKey):]
		if _, ok := syntax.Brackets(rest); !ok && (len(rest) < 2 || rest[0] != '.') {
			c.Fail(p, "%s names no claim; write %s.group or %s[group]", document.Quote(name), claimKey, claimKey)
		}
	case name[0] == ':':
		if !slices.Contains([]string{":method", ":scheme", ":authority", ":path", ":status"}, name) {
			c.Fail(p, "%s is none of :method, :scheme, :authority, :path and :status", document.Quote(name))
		}
	default:
		c.Rule(p, syntax.HeaderName(name))
	}
}

// isClaim reports whether the name of a header to match names a claim of a token.
func isClaim(name string) bool {
	return len(name) >= len(claimKey) && strings.EqualFold(name[:len(claimKey)], claimKey)
}

func (c *checker) claimsAtGatewaysOnly(p *document.Path, r *networking.HTTPRoute) {
	for i, m := range r.GetMatch() {
		if g := m.GetGateways(); len(g) > 0 && !slices.Contains(g, mesh.Gateway) {
			continue
		}
		at := p.Field("match").At(i)
		c.noClaims(at.Field("headers"), m.GetHeaders())
		c.noClaims(at.Field("withoutHeaders"), m.GetWithoutHeaders())
	}
}

func (c *checker) noClaims(p *document.Path, headers map[string]*networking.StringMatch) {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if isClaim(name) {
			c.Fail(p.Key(name), "claims of tokens can be matched at gateways only; name gateways without mesh, in spec.gateways or in the match")
		}
	}
}

// stringMatch checks a match of a text. An empty prefix is valid for paths only.
func (c *checker) stringMatch(p *document.Path, m *networking.StringMatch, emptyPrefix bool) {
	switch t := m.GetMatchType().(type) {
	case *networking.StringMatch_Prefix:
		if t.Prefix == "" && !emptyPrefix {
			c.Fail(p.Field("prefix"), "an empty prefix matches everything; remove the match or give it a text")
		}
	case *networking.StringMatch_Regex:
		c.Rule(p.Field("regex"), syntax.Regex(t.Regex))
	}
}

func (c *checker) redirect(p *document.Path, r *networking.HTTPRedirect) {
	if r == nil {
		return
	}
	if r.Uri == "" && r.Authority == "" && r.RedirectPort == nil && r.Scheme == "" && r.PrefixRewrite == "" {
		c.Fail(p, "a redirect must change something: uri, prefixRewrite, authority, scheme or port")
	}
	c.plainText(p.Field("uri"), r.Uri)
	c.plainText(p.Field("prefixRewrite"), r.PrefixRewrite)
	c.plainText(p.Field("authority"), r.Authority)
	if r.Uri != "" && r.PrefixRewrite != "" {
		c.Fail(p.Field("prefixRewrite"), "excludes uri; keep one of them")
	}
	if r.Scheme != "" && r.Scheme != "http" && r.Scheme != "https" {
		c.Fail(p.Field("scheme"), "must be http or https, not %s", document.Quote(r.Scheme))
	}
	switch r.RedirectCode {
	case 0, 301, 302, 303, 307, 308:
	default:
		c.Fail(p.Field("redirectCode"), "must be one of 301, 302, 303, 307, 308, not %d", r.RedirectCode)
	}
}

func (c *checker) directResponse(p *document.Path, r *networking.HTTPDirectResponse) {
	if r == nil {
		return
	}
	if r.Status < 200 || r.Status > 599 {
		c.Fail(p.Field("status"), "must be an HTTP status from 200 to 599, not %d", r.Status)
	}
	if size := max(len(r.Body.GetString_()), len(r.Body.GetBytes())); size > maxBody {
		c.Fail(p.Field("body"), "has %d bytes, the limit is %d", size, maxBody)
	} else if size > largeBody {
		c.Warn(p.Field("body"), "has %d bytes, which each proxy holds; serve more than %d from a service", size, largeBody)
	}
}

func (c *checker) rewrite(p *document.Path, r *networking.HTTPRoute) {
	w := r.Rewrite
	if w == nil {
		return
	}
	if w.Uri == "" && w.Authority == "" && w.UriRegexRewrite == nil {
		c.Fail(p, "a rewrite must rewrite something: uri, uriRegexRewrite or authority")
	}
	if re := w.UriRegexRewrite; re != nil {
		at := p.Field("uriRegexRewrite")
		if w.Uri != "" {
			c.Fail(at, "excludes uri; keep one of them")
		}
		c.Rule(at.Field("match"), syntax.Regex(re.Match))
		if re.Rewrite == "" {
			c.Fail(at.Field("rewrite"), "the new text is needed")
		}
		c.plainText(at.Field("rewrite"), re.Rewrite)
		if reason := syntax.Substitution(re.Rewrite, re.Match); reason != "" {
			c.Warn(at.Field("rewrite"), "%s: the path is not rewritten", reason)
		}
	}
	c.plainText(p.Field("uri"), w.Uri)
	if w.Authority == "" {
		return
	}
	c.Rule(p.Field("authority"), syntax.HeaderValue(strings.ReplaceAll(w.Authority, "%", "%%")))
}

// oneAuthority checks that a route sets the authority of its requests in one place only.
func (c *checker) oneAuthority(p *document.Path, r *networking.HTTPRoute) {
	first := ""
	if r.GetRewrite().GetAuthority() != "" {
		first = "rewrite.authority"
	}
	request := p.Field("headers").Field("request")
	for _, set := range []struct {
		name    string
		headers map[string]string
	}{{"set", r.GetHeaders().GetRequest().GetSet()}, {"add", r.GetHeaders().GetRequest().GetAdd()}} {
		for _, name := range slices.Sorted(maps.Keys(set.headers)) {
			switch {
			case !isAuthority(name):
			case first == "":
				first = "headers.request." + set.name + "[" + name + "]"
			case first == "rewrite.authority":
				c.Fail(p.Field("rewrite").Field("authority"), "the authority is set by headers.request.%s[%s] as well; keep one of them", set.name, name)
			default:
				c.Fail(request.Field(set.name).Key(name), "the authority is set by %s already; keep one of them", first)
			}
		}
	}
}

// plainText checks a text that becomes part of a request or response. Envoy accepts no control characters there.
func (c *checker) plainText(p *document.Path, s string) {
	if i := strings.IndexFunc(s, unicode.IsControl); i >= 0 {
		c.Fail(p, "the control character %q has no place here", s[i])
	}
}

func isAuthority(header string) bool {
	return strings.EqualFold(header, "host") || strings.EqualFold(header, ":authority")
}

// grpcStatuses are the names of gRPC's status codes.
const grpcStatuses = " OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED " +
	"UNAUTHENTICATED RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS "

func (c *checker) fault(p *document.Path, f *networking.HTTPFaultInjection) {
	if f == nil {
		return
	}
	if f.Delay == nil && f.Abort == nil {
		c.Fail(p, "a fault needs a delay or an abort")
	}
	if d := f.Delay; d != nil {
		at := p.Field("delay")
		c.faultShare(at, d.Percentage)
		if _, ok := d.HttpDelayType.(*networking.HTTPFaultInjection_Delay_ExponentialDelay); ok {
			c.Fail(at.Field("exponentialDelay"), "there is no such delay; use fixedDelay")
		} else if d.HttpDelayType == nil {
			c.Warn(at, "has no effect without fixedDelay")
		}
		if d.HttpDelayType != nil && d.Percentage == nil && d.Percent == 0 { //nolint:staticcheck // the deprecated field is still in use
			c.Warn(at, "does nothing without percentage; set percentage.value, 100 for every request")
		}
		if d.Percent != 0 { //nolint:staticcheck // it is the deprecated field we look for
			c.Warn(at.Field("percent"), "is deprecated; use percentage")
		}
	}
	if f.Abort == nil {
		return
	}
	at := p.Field("abort")
	c.faultShare(at, f.Abort.Percentage)
	if f.Abort.ErrorType != nil && f.Abort.Percentage == nil {
		c.Warn(at, "does nothing without percentage; set percentage.value, 100 for every request")
	}
	switch t := f.Abort.ErrorType.(type) {
	case nil:
		c.Warn(at, "has no effect without httpStatus or grpcStatus")
	case *networking.HTTPFaultInjection_Abort_HttpStatus:
		if t.HttpStatus < 200 || t.HttpStatus > 599 {
			c.Fail(at.Field("httpStatus"), "must be an HTTP status from 200 to 599, not %d", t.HttpStatus)
		}
	case *networking.HTTPFaultInjection_Abort_GrpcStatus:
		if t.GrpcStatus == "" || strings.Contains(t.GrpcStatus, " ") || !strings.Contains(grpcStatuses, " "+t.GrpcStatus+" ") {
			c.Fail(at.Field("grpcStatus"), "%s is none of %s", document.Quote(t.GrpcStatus),
				strings.ReplaceAll(strings.TrimSpace(grpcStatuses), " ", ", "))
		}
	case *networking.HTTPFaultInjection_Abort_Http2Error:
		c.Fail(at.Field("http2Error"), "there is no such abort; use httpStatus or grpcStatus")
	}
}

// faultShare refuses a share of requests that Envoy rounds to none.
func (c *checker) faultShare(p *document.Path, share *networking.Percent) {
	const least = 0.0001
	if n := share.GetValue(); n > 0 && n < least {
		c.Fail(p.Field("percentage").Field("value"), "must be 0, or %v at least, not %v", least, n)
	}
}

func (c *checker) mirror(p *document.Path, r *networking.HTTPRoute) {
	if r.Mirror != nil {
		c.destination(p.Field("mirror"), r.Mirror)
		if len(r.Mirrors) > 0 {
			c.Fail(p.Field("mirrors"), "excludes mirror; keep one of them")
		}
	}
	if r.Mirror == nil {
		const reason = "does nothing without mirror; name where to, or set the percentage of each of mirrors"
		if r.MirrorPercentage != nil {
			c.Warn(p.Field("mirrorPercentage"), reason)
		}
		if r.MirrorPercent != nil { //nolint:staticcheck // it is the deprecated field we look for
			c.Warn(p.Field("mirrorPercent"), reason)
		}
	}
	for i, m := range r.Mirrors {
		c.destination(p.Field("mirrors").At(i).Field("destination"), m.GetDestination())
	}
	if r.MirrorPercent != nil { //nolint:staticcheck // it is the deprecated field we look for
		c.Warn(p.Field("mirrorPercent"), "is deprecated; use mirrorPercentage")
	}
}

// headers checks changes of headers.
func (c *checker) headers(p *document.Path, h *networking.Headers) {
	c.headerOperations(p.Field("request"), h.GetRequest(), true)
	c.headerOperations(p.Field("response"), h.GetResponse(), false)
}

func (c *checker) headerOperations(p *document.Path, o *networking.Headers_HeaderOperations, request bool) {
	for _, name := range slices.Sorted(maps.Keys(o.GetSet())) {
		c.header(p.Field("set").Key(name), name, o.Set[name], request)
	}
	for _, name := range slices.Sorted(maps.Keys(o.GetAdd())) {
		c.header(p.Field("add").Key(name), name, o.Add[name], request)
	}
	for i, name := range o.GetRemove() {
		at := p.Field("remove").At(i)
		if isAuthority(name) || strings.HasPrefix(name, ":") {
			c.Fail(at, "%s cannot be removed", document.Quote(name))
			continue
		}
		c.headerName(at, name)
	}
}

func (c *checker) header(p *document.Path, name, text string, request bool) {
	switch {
	case isAuthority(name) && request: // becomes a rewrite of the authority
	case strings.HasPrefix(name, ":") || isAuthority(name):
		c.Fail(p, "%s cannot be changed", document.Quote(name))
	default:
		c.headerName(p, name)
	}
	c.Rule(p, syntax.HeaderValue(text))
}

// headerName checks the name of a header that is changed. An invalid name is a warning, because existing meshes have them, unless Envoy refuses it.
func (c *checker) headerName(p *document.Path, name string) {
	if name == "" {
		c.Fail(p, "a header needs a name")
	} else if c.HeaderText(p, name) {
		return
	} else if reason := syntax.HeaderName(name); reason != "" {
		c.Warn(p, "%s", reason)
	}
}
