package traffic

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/query"
	"github.com/pilotmesh/pilot/internal/state"
)

// MaxDelegates bounds how many rules of one object may be in others.
const MaxDelegates = 60

// Merged are the rules of a VirtualService with those it delegates to in their place.
type Merged struct {
	*state.VirtualService
	// Dropped are the rules that have no effect.
	Dropped []Dropped
}

// Dropped is a rule without effect.
type Dropped struct {
	Field  string // of the object that delegates
	Reason string
}

func (m *Merged) equal(o *Merged) bool {
	return m.Object == o.Object && m.Hash == o.Hash && slices.Equal(m.Dropped, o.Dropped)
}

// merged puts the rules of delegates in the place of the rules that delegate to them.
func (q *Queries) merged(r *query.Reader, k api.Key) (*Merged, bool) {
	root, ok := q.tables.VirtualServices.Get(r, k)
	if !ok {
		return nil, false
	}
	out := &Merged{VirtualService: &state.VirtualService{Object: k, Hosts: root.Hosts}}
	hashes := [][]byte{root.Hash[:]}
	var rules []*networking.HTTPRoute
	left := MaxDelegates
	for i, rule := range root.Spec.Http {
		if rule.Delegate == nil {
			rules = append(rules, rule)
			continue
		}
		at := fmt.Sprintf("spec.http[%d].delegate", i)
		if left--; left < 0 {
			out.drop(at, "only the first %d rules that delegate are used: the rule has no effect", MaxDelegates)
			continue
		}
		d, why := q.delegate(r, state.DelegateOf(rule.Delegate, k.Namespace), k.Namespace)
		if why != "" {
			out.drop(at, "%s: the rule has no effect, requests try the next", why)
			continue
		}
		hashes = append(hashes, d.Hash[:])
		for j, sub := range d.Spec.Http {
			if one, why := mergeRule(rule, sub); why != "" {
				out.drop(at, "rule http[%d] of %v has no effect here: %s", j, d.Object, why)
			} else {
				rules = append(rules, one)
			}
		}
	}
	out.Spec = &networking.VirtualService{
		Hosts: root.Spec.Hosts, Gateways: root.Spec.Gateways, ExportTo: root.Spec.ExportTo,
		Http: rules, Tls: root.Spec.Tls, Tcp: root.Spec.Tcp,
	}
	out.Hash = omap.Sum(hashes...)
	return out, true
}

func (m *Merged) drop(field, format string, args ...any) {
	m.Dropped = append(m.Dropped, Dropped{field, fmt.Sprintf(format, args...)})
}

// delegate finds the object a rule delegates to, or says why it must not.
func (q *Queries) delegate(r *query.Reader, k api.Key, client string) (d *state.VirtualService, why string) {
	d, ok := q.tables.VirtualServices.Get(r, k)
	if !ok {
		return nil, fmt.Sprintf("there is no %v", k)
	}
	if !d.IsDelegate() {
		return nil, fmt.Sprintf("%v has hosts of its own; only one without can be delegated to", k)
	}
	claims, ok := q.tables.Claims.Get(r, k)
	if !ok || !slices.Contains(claims.Layers, "") && !slices.Contains(claims.Layers, client) {
		return nil, fmt.Sprintf("%v is not exported to namespace %q", k, client)
	}
	return d, ""
}

// mergeRule is a delegate's rule in the place of the rule that delegates: what it does not say comes from there.
func mergeRule(root, leaf *networking.HTTPRoute) (out *networking.HTTPRoute, why string) {
	matches, why := mergeMatches(root.Match, leaf.Match)
	if why != "" {
		return nil, why
	}
	// One level down is enough: messages below a rule are not changed.
	out = &networking.HTTPRoute{
		Name: join(root.Name, leaf.Name), Match: matches,
		Route: leaf.Route, Redirect: leaf.Redirect, DirectResponse: leaf.DirectResponse,
		Rewrite: leaf.Rewrite, Timeout: leaf.Timeout, Retries: leaf.Retries, Fault: leaf.Fault,
		Mirror: leaf.Mirror, Mirrors: leaf.Mirrors, MirrorPercentage: leaf.MirrorPercentage,
		MirrorPercent: leaf.MirrorPercent, //nolint:staticcheck // the deprecated field counts where it is the only one
		CorsPolicy:    leaf.CorsPolicy, Headers: leaf.Headers,
	}
	out.Rewrite = or(out.Rewrite, root.Rewrite)
	out.Fault = or(out.Fault, root.Fault)
	out.Timeout = or(out.Timeout, root.Timeout)
	out.Retries = or(out.Retries, root.Retries)
	if out.Mirror == nil && out.Mirrors == nil {
		out.Mirror, out.Mirrors = root.Mirror, root.Mirrors
	}
	out.MirrorPercentage = or(out.MirrorPercentage, root.MirrorPercentage)
	out.MirrorPercent = or(out.MirrorPercent, root.MirrorPercent) //nolint:staticcheck // as above
	out.CorsPolicy = or(out.CorsPolicy, root.CorsPolicy)
	out.Headers = or(out.Headers, root.Headers)
	return out, ""
}

func or[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// join names what is both a's and b's.
func join(a, b string) string {
	if a != "" && b != "" {
		return a + "-" + b
	}
	return a + b
}

// mergeMatches are the requests that both match. Every match of the delegate must lie within one of the root's: with one
// that does not, the API says, the delegate's rule does not take effect, not even for its other matches.
func mergeMatches(root, leaf []*networking.HTTPMatchRequest) (out []*networking.HTTPMatchRequest, why string) {
	if len(root) == 0 {
		return leaf, ""
	}
	if len(leaf) == 0 {
		return root, ""
	}
	for i, l := range leaf {
		found := false
		for _, r := range root {
			conflict := conflict(r, l)
			if conflict == "" {
				out, found = append(out, mergeMatch(r, l)), true
			} else if why == "" {
				why = fmt.Sprintf("match[%d] lies outside the match that delegates, or cannot be told to lie inside: %s", i, conflict)
			}
		}
		if !found {
			return nil, why
		}
		why = ""
	}
	return out, ""
}

func mergeMatch(root, leaf *networking.HTTPMatchRequest) *networking.HTTPMatchRequest {
	out := proto.Clone(leaf).(*networking.HTTPMatchRequest)
	out.Name = join(root.Name, leaf.Name)
	if out.Uri == nil {
		out.Uri, out.IgnoreUriCase = root.Uri, root.IgnoreUriCase
	}
	out.Scheme = or(out.Scheme, root.Scheme)
	out.Method, out.Authority = or(out.Method, root.Method), or(out.Authority, root.Authority)
	out.Headers = both(root.Headers, leaf.Headers)
	out.WithoutHeaders = both(root.WithoutHeaders, leaf.WithoutHeaders)
	out.QueryParams = both(root.QueryParams, leaf.QueryParams)
	out.SourceLabels = both(root.SourceLabels, leaf.SourceLabels)
	if out.SourceNamespace == "" {
		out.SourceNamespace = root.SourceNamespace
	}
	if out.Port == 0 {
		out.Port = root.Port
	}
	if len(out.Gateways) == 0 {
		out.Gateways = root.Gateways
	}
	if out.StatPrefix == "" {
		out.StatPrefix = root.StatPrefix
	}
	return out
}

// both has the entries of both maps; b's win.
func both[V any](a, b map[string]V) map[string]V {
	out := maps.Clone(a)
	if out == nil {
		return b
	}
	maps.Copy(out, b)
	return out
}

// conflict names the field in which a delegate's match goes beyond that of its root.
func conflict(root, leaf *networking.HTTPMatchRequest) string {
	for _, f := range []struct {
		name       string
		root, leaf *networking.StringMatch
	}{
		{"uri", ignoring(root.IgnoreUriCase, root.Uri), ignoring(root.IgnoreUriCase, leaf.Uri)}, {"scheme", root.Scheme, leaf.Scheme},
		{"method", root.Method, leaf.Method}, {"authority", root.Authority, leaf.Authority},
	} {
		if f.root != nil && f.leaf != nil && !within(f.root, f.leaf) {
			return f.name
		}
	}
	for _, f := range []struct {
		name       string
		root, leaf map[string]*networking.StringMatch
	}{
		{"headers", root.Headers, leaf.Headers}, {"withoutHeaders", root.WithoutHeaders, leaf.WithoutHeaders},
		{"queryParams", root.QueryParams, leaf.QueryParams},
	} {
		for _, key := range slices.Sorted(maps.Keys(f.leaf)) {
			if r := f.root[key]; r != nil && !within(r, f.leaf[key]) {
				return f.name + "." + key
			}
		}
	}
	switch {
	case leaf.IgnoreUriCase && !root.IgnoreUriCase && root.Uri != nil && leaf.Uri != nil:
		return "ignoreUriCase"
	case root.Port > 0 && leaf.Port > 0 && root.Port != leaf.Port:
		return "port"
	case root.SourceNamespace != "" && leaf.SourceNamespace != "" && root.SourceNamespace != leaf.SourceNamespace:
		return "sourceNamespace"
	}
	for _, key := range slices.Sorted(maps.Keys(leaf.SourceLabels)) {
		if v, ok := root.SourceLabels[key]; ok && v != leaf.SourceLabels[key] {
			return "sourceLabels." + key
		}
	}
	for _, g := range leaf.Gateways {
		if len(root.Gateways) > 0 && !slices.Contains(root.Gateways, g) {
			return "gateways"
		}
	}
	return ""
}

// ignoring is a match in lower case, if case does not count.
func ignoring(letterCase bool, m *networking.StringMatch) *networking.StringMatch {
	if !letterCase {
		return m
	}
	switch kind := m.GetMatchType().(type) {
	case *networking.StringMatch_Exact:
		return &networking.StringMatch{MatchType: &networking.StringMatch_Exact{Exact: strings.ToLower(kind.Exact)}}
	case *networking.StringMatch_Prefix:
		return &networking.StringMatch{MatchType: &networking.StringMatch_Prefix{Prefix: strings.ToLower(kind.Prefix)}}
	}
	return m
}

// within reports whether all that leaf matches is matched by root. Of regular expressions that cannot be told.
func within(root, leaf *networking.StringMatch) bool {
	if exact := root.GetExact(); exact != "" {
		return leaf.GetExact() == exact
	}
	prefix := root.GetPrefix()
	if prefix == "" {
		return false
	}
	if p := leaf.GetPrefix(); p != "" {
		return strings.HasPrefix(p, prefix)
	}
	return leaf.GetExact() != "" && strings.HasPrefix(leaf.GetExact(), prefix)
}
