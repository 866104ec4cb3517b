package rules

import (
	"maps"
	"strings"

	"google.golang.org/protobuf/proto"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api/document"
)

// unreachable warns of routes that never apply because an earlier route matches all their requests.
func (c *checker) unreachable(p *document.Path, routes []*networking.HTTPRoute) {
	seen := map[string]int{}
	for i, r := range routes {
		if r == nil {
			continue
		}
		if len(r.Match) == 0 {
			if i < len(routes)-1 {
				c.Warn(p.At(i+1), "never applies: http[%d] has no match and takes every request; move it to the end", i)
			}
			return
		}
		for j, m := range r.Match {
			at := p.At(i).Field("match").At(j)
			if m == nil {
				continue
			}
			if first, dup := seen[matchKey(m)]; dup {
				c.Warn(at, "never applies: http[%d] has the same match", first)
				continue
			}
			seen[matchKey(m)] = i
			if first, ok := shadowedBy(m, routes[:i]); ok {
				what := "prefix " + document.Quote(m.GetUri().GetPrefix())
				if exact := m.GetUri().GetExact(); exact != "" {
					what = "path " + document.Quote(exact)
				}
				c.Warn(at.Field("uri"), "never applies: http[%d] comes first and matches the %s; move it behind this route", first, what)
			}
		}
	}
}

// matchKey identifies the conditions of a match, whatever its name is.
func matchKey(m *networking.HTTPMatchRequest) string {
	anonymous := proto.Clone(m).(*networking.HTTPMatchRequest)
	anonymous.Name = ""
	return wireForm(anonymous)
}

// wireForm is the same text for equal messages.
func wireForm(m proto.Message) string {
	wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return ""
	}
	return string(wire)
}

// shadowedBy returns the earlier route that matches a shorter prefix, or a prefix of an exact path, and otherwise no less than a match.
func shadowedBy(m *networking.HTTPMatchRequest, earlier []*networking.HTTPRoute) (int, bool) {
	prefix, exact := m.GetUri().GetPrefix(), m.GetUri().GetExact()
	path := prefix + exact // one of them is empty
	if path == "" {
		return 0, false
	}
	for i, r := range earlier {
		for _, e := range r.GetMatch() {
			shorter := e.GetUri().GetPrefix()
			if shorter != "" && shorter != prefix && strings.HasPrefix(path, shorter) && e.IgnoreUriCase == m.IgnoreUriCase && coversRest(e, m) {
				return i, true
			}
		}
	}
	return 0, false
}

// coversRest reports whether each condition of a match beside its path is absent or equal in the other.
func coversRest(wide, narrow *networking.HTTPMatchRequest) bool {
	same := func(a, b *networking.StringMatch) bool { return a == nil || proto.Equal(a, b) }
	all := func(a, b map[string]*networking.StringMatch) bool {
		for name, m := range a {
			if is, ok := b[name]; !ok || !proto.Equal(m, is) {
				return false
			}
		}
		return true
	}
	texts := func(a, b []string) bool { return len(a) == 0 || strings.Join(a, " ") == strings.Join(b, " ") }
	return same(wide.Method, narrow.Method) && same(wide.Authority, narrow.Authority) && same(wide.Scheme, narrow.Scheme) &&
		all(wide.Headers, narrow.Headers) && all(wide.QueryParams, narrow.QueryParams) && all(wide.WithoutHeaders, narrow.WithoutHeaders) &&
		(wide.Port == 0 || wide.Port == narrow.Port) && texts(wide.Gateways, narrow.Gateways) &&
		(len(wide.SourceLabels) == 0 || maps.Equal(wide.SourceLabels, narrow.SourceLabels)) &&
		(wide.SourceNamespace == "" || wide.SourceNamespace == narrow.SourceNamespace)
}

// repeats warns of matches of connections that an earlier route, or the same one, has already. kind is the name of the list of routes, and matches are the matches of each.
func repeats[M proto.Message](c *checker, p *document.Path, kind string, routes int, matches func(int) []M) {
	seen := map[string]int{}
	for i := range routes {
		for j, m := range matches(i) {
			if first, dup := seen[wireForm(m)]; dup {
				c.Warn(p.At(i).Field("match").At(j), "never applies: %s[%d] has the same match", kind, first)
			} else {
				seen[wireForm(m)] = i
			}
		}
	}
}

// unreachableTLS warns of matches that an earlier route has.
func (c *checker) unreachableTLS(p *document.Path, routes []*networking.TLSRoute) {
	repeats(c, p, "tls", len(routes), func(i int) []*networking.TLSMatchAttributes { return routes[i].GetMatch() })
}

// unreachableTCP warns of routes behind one without a match, and of matches that an earlier route has.
func (c *checker) unreachableTCP(p *document.Path, routes []*networking.TCPRoute) {
	repeats(c, p, "tcp", len(routes), func(i int) []*networking.L4MatchAttributes { return routes[i].GetMatch() })
	for i, r := range routes {
		if r != nil && len(r.Match) == 0 && i < len(routes)-1 {
			c.Warn(p.At(i+1), "never applies: tcp[%d] has no match and takes every connection; move it to the end", i)
			return
		}
	}
}
