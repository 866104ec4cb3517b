package traffic

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/state"
)

// maxDelegates bounds how many rules of one VirtualService may delegate.
const maxDelegates = 60

// MergedRoutes are the rules of a VirtualService, in which the rules of delegates replace the rules that delegate to
// them.
type MergedRoutes struct {
	*state.VirtualService
	// Dropped are the rules that have no effect.
	Dropped []DroppedRule
}

// DroppedRule is a rule without effect.
type DroppedRule struct {
	// Field is the path of the rule in the object that delegates.
	Field  string
	Reason string
}

func (m *MergedRoutes) equal(o *MergedRoutes) bool {
	return m.Object == o.Object && m.Hash == o.Hash && slices.Equal(m.Dropped, o.Dropped)
}

// merged puts the rules of delegates in the place of the rules that delegate to them.
func (q *Queries) merged(r *query.Reader, k api.Key) (*MergedRoutes, bool) {
	root, ok := q.tables.VirtualServices.Get(r, k)
	if !ok {
		return nil, false
	}
	out := &MergedRoutes{VirtualService: &state.VirtualService{Object: k, Hosts: root.Hosts}}
	hashes := [][]byte{root.Hash[:]}
	var rules []*networking.HTTPRoute
	left := maxDelegates
	for i, rule := range root.Spec.Http {
		if rule.Delegate == nil {
			rules = append(rules, rule)
			continue
		}
		at := fmt.Sprintf("spec.http[%d].delegate", i)
		if left--; left < 0 {
			out.drop(at, "only the first %d rules that delegate are used: the rule has no effect", maxDelegates)
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

func (m *MergedRoutes) drop(field, format string, args ...any) {
	m.Dropped = append(m.Dropped, DroppedRule{field, fmt.Sprintf(format, args...)})
}

// delegate returns the object that a rule delegates to. If that is not allowed, why says so and d is nil.
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

// mergeRule returns a delegate's rule with the fields of the delegating rule that it does not set.
func mergeRule(root, leaf *networking.HTTPRoute) (out *networking.HTTPRoute, why string) {
	matches, why := mergeMatches(root.Match, leaf.Match)
	if why != "" {
		return nil, why
	}
	// One level down is enough: messages below a rule are not changed.
	out = &networking.HTTPRoute{
		Name: joinNames(root.Name, leaf.Name), Match: matches,
		Route: leaf.Route, Redirect: leaf.Redirect, DirectResponse: leaf.DirectResponse,
		Rewrite: leaf.Rewrite, Timeout: leaf.Timeout, Retries: leaf.Retries, Fault: leaf.Fault,
		Mirror: leaf.Mirror, Mirrors: leaf.Mirrors, MirrorPercentage: leaf.MirrorPercentage,
		MirrorPercent: leaf.MirrorPercent, //nolint:staticcheck // the deprecated field counts where it is the only one
		CorsPolicy:    leaf.CorsPolicy, Headers: leaf.Headers,
	}
	out.Rewrite = firstNonNil(out.Rewrite, root.Rewrite)
	out.Fault = firstNonNil(out.Fault, root.Fault)
	out.Timeout = firstNonNil(out.Timeout, root.Timeout)
	out.Retries = firstNonNil(out.Retries, root.Retries)
	if out.Mirror == nil && out.Mirrors == nil {
		out.Mirror, out.Mirrors = root.Mirror, root.Mirrors
	}
	out.MirrorPercentage = firstNonNil(out.MirrorPercentage, root.MirrorPercentage)
	out.MirrorPercent = firstNonNil(out.MirrorPercent, root.MirrorPercent) //nolint:staticcheck // as above
	out.CorsPolicy = firstNonNil(out.CorsPolicy, root.CorsPolicy)
	out.Headers = firstNonNil(out.Headers, root.Headers)
	return out, ""
}

func firstNonNil[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// joinNames joins two names with a hyphen. It returns the other name if one is empty.
func joinNames(a, b string) string {
	if a != "" && b != "" {
		return a + "-" + b
	}
	return a + b
}

// mergeMatches returns the requests that both rules match. Every match of the delegate must lie within a match of the
// root. If one does not, the delegate's rule has no effect, not even for its other matches; the API documentation says
// so.
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
				why = fmt.Sprintf("match[%d] lies outside the match that delegates, or is not known to lie inside: %s", i, conflict)
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
	out.Name = joinNames(root.Name, leaf.Name)
	if out.Uri == nil {
		out.Uri, out.IgnoreUriCase = root.Uri, root.IgnoreUriCase
	}
	out.Scheme = firstNonNil(out.Scheme, root.Scheme)
	out.Method, out.Authority = firstNonNil(out.Method, root.Method), firstNonNil(out.Authority, root.Authority)
	out.Headers = mergeMaps(root.Headers, leaf.Headers)
	out.WithoutHeaders = mergeMaps(root.WithoutHeaders, leaf.WithoutHeaders)
	out.QueryParams = mergeMaps(root.QueryParams, leaf.QueryParams)
	out.SourceLabels = mergeMaps(root.SourceLabels, leaf.SourceLabels)
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

// mergeMaps returns the entries of both maps. The entries of b win.
func mergeMaps[V any](a, b map[string]V) map[string]V {
	out := maps.Clone(a)
	if out == nil {
		return b
	}
	maps.Copy(out, b)
	return out
}

// conflict returns the field in which a delegate's match exceeds the match of its root. It is empty if there is none.
func conflict(root, leaf *networking.HTTPMatchRequest) string {
	for _, f := range []struct {
		name       string
		root, leaf *networking.StringMatch
	}{
		{"uri", lowerCase(root.IgnoreUriCase, root.Uri), lowerCase(root.IgnoreUriCase, leaf.Uri)}, {"scheme", root.Scheme, leaf.Scheme},
		{"method", root.Method, leaf.Method}, {"authority", root.Authority, leaf.Authority},
	} {
		if f.root != nil && f.leaf != nil && !isWithin(f.root, f.leaf) {
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
			if r := f.root[key]; r != nil && !isWithin(r, f.leaf[key]) {
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

// lowerCase returns a match in lower case if letter case is ignored, else the match itself.
func lowerCase(letterCase bool, m *networking.StringMatch) *networking.StringMatch {
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

// isWithin reports whether root matches everything that leaf matches. For regular expressions it returns false.
func isWithin(root, leaf *networking.StringMatch) bool {
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
