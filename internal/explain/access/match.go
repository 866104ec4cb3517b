package access

import (
	"net/netip"
	"regexp"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// text is whether a matcher matches a text.
func (e *evaluation) text(m *matcherv3.StringMatcher, s string) truth {
	fold := func(s string) string {
		if m.GetIgnoreCase() {
			return lowerASCII(s)
		}
		return s
	}
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return is(fold(s) == fold(p.Exact))
	case *matcherv3.StringMatcher_Prefix:
		return is(strings.HasPrefix(fold(s), fold(p.Prefix)))
	case *matcherv3.StringMatcher_Suffix:
		return is(strings.HasSuffix(fold(s), fold(p.Suffix)))
	case *matcherv3.StringMatcher_Contains:
		return is(strings.Contains(fold(s), fold(p.Contains)))
	case *matcherv3.StringMatcher_SafeRegex:
		return e.regex(p.SafeRegex.GetRegex(), s)
	}
	return e.unsure("a policy matches texts in a way that is not known here")
}

// regex is whether a regular expression matches the whole of a text. Envoy takes both for bytes.
func (e *evaluation) regex(expression, s string) truth {
	r, err := regexp.Compile("^(?:" + asBytes(expression) + ")$")
	if err != nil {
		return e.unsure("a policy has a regular expression that is not known here: " + err.Error())
	}
	return is(r.MatchString(asBytes(s)))
}

// asBytes is a text whose characters are the bytes of another one.
func asBytes(s string) string {
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return string(runes)
}

// lowerASCII is a text with the letters A to Z in lower case. Envoy knows no other letters.
func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// header is whether a matcher matches the headers of the request.
func (e *evaluation) header(m *routev3.HeaderMatcher) truth {
	if m.GetInvertMatch() || m.GetTreatMissingHeaderAsEmpty() {
		return e.unsure("a policy matches the header " + m.GetName() + " in a way that is not known here")
	}
	values, why := e.headers.get(m.GetName())
	if why != "" {
		return e.unsure(why)
	}
	switch s := m.GetHeaderMatchSpecifier().(type) {
	case *routev3.HeaderMatcher_PresentMatch:
		return is(len(values) > 0 == s.PresentMatch)
	case *routev3.HeaderMatcher_StringMatch:
		return some(values, func(value string) truth { return e.text(s.StringMatch, value) })
	}
	return e.unsure("a policy matches the header " + m.GetName() + " in a way that is not known here")
}

// urlPath is whether a matcher matches the path of the request, without its query.
func (e *evaluation) urlPath(m *matcherv3.PathMatcher) truth {
	if e.headers == nil {
		return no
	}
	return e.text(m.GetPath(), withoutQuery(e.headers.path))
}

func withoutQuery(path string) string {
	if end := strings.IndexAny(path, "?#"); end >= 0 {
		return path[:end]
	}
	return path
}

// in is whether an address is in a block. what names the address.
func (e *evaluation) in(block *corev3.CidrRange, a netip.Addr, what string) truth {
	base, err := netip.ParseAddr(block.GetAddressPrefix())
	if err != nil {
		return e.unsure("a policy has an address that is not known here: " + block.GetAddressPrefix())
	}
	prefix, err := base.Prefix(int(block.GetPrefixLen().GetValue()))
	if err != nil {
		return e.unsure("a policy has an address block that is not known here: " + block.GetAddressPrefix())
	}
	if !a.IsValid() {
		return e.unsure("it depends on " + what)
	}
	return is(prefix.Contains(a)) // an address of IPv4 that is written as one of IPv6 is in no block of IPv4
}

// secret is a value of metadata that is not known.
type secret struct{ why string }

// inMetadata is whether a matcher matches what a filter wrote.
func (e *evaluation) inMetadata(m *matcherv3.MetadataMatcher) truth {
	var value any
	if written := e.metadata[m.GetFilter()]; written != nil {
		value = written
	}
	for _, segment := range m.GetPath() {
		at, ok := value.(map[string]any)
		if !ok {
			if _, hidden := value.(secret); !hidden {
				value = nil
			}
			break
		}
		value = at[segment.GetKey()]
	}
	found := e.value(m.GetValue(), value)
	if m.GetInvert() {
		return not(found)
	}
	return found
}

// value is whether a matcher matches a value of metadata, which is nil if there is none.
func (e *evaluation) value(m *matcherv3.ValueMatcher, v any) truth {
	if hidden, ok := v.(secret); ok {
		return e.unsure(hidden.why)
	}
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.ValueMatcher_StringMatch:
		if s, ok := v.(string); ok {
			return e.text(p.StringMatch, s)
		}
		return no
	case *matcherv3.ValueMatcher_BoolMatch:
		b, ok := v.(bool)
		return is(ok && b == p.BoolMatch)
	case *matcherv3.ValueMatcher_DoubleMatch:
		exact, ok := p.DoubleMatch.GetMatchPattern().(*matcherv3.DoubleMatcher_Exact)
		if !ok {
			break
		}
		n, ok := v.(float64)
		return is(ok && n == exact.Exact)
	case *matcherv3.ValueMatcher_PresentMatch:
		return is(p.PresentMatch == (v != nil))
	case *matcherv3.ValueMatcher_ListMatch:
		list, ok := v.([]any)
		one := p.ListMatch.GetOneOf()
		if one == nil {
			break
		}
		if !ok {
			return no
		}
		return some(list, func(v any) truth { return e.value(one, v) })
	}
	return e.unsure("a policy matches metadata in a way that is not known here")
}
