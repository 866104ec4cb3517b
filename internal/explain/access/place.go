package access

import (
	"maps"
	"net/url"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
)

// describedToken is the stand-in text of a token known only by its claims.
const describedToken = "described.by.claims"

// WithToken returns the request with a valid token that has some claims, in the place where the listener looks for tokens of its
// issuer. If it looks for none, the token is where clients usually put it.
func (r Request) WithToken(l *listenerv3.Listener, claims map[string]any) Request {
	r.Tokens = map[string]Token{describedToken: {Claims: claims}}
	r.Headers = slices.Clone(r.Headers)
	p := providerOf(l, claims["iss"])
	switch {
	case len(p.GetFromHeaders()) > 0:
		h := p.FromHeaders[0]
		r.Headers = append(r.Headers, Header{h.Name, h.ValuePrefix + describedToken})
	case len(p.GetFromParams()) > 0:
		separator := "?"
		if _, query := cutQuery(r.Path); query != "" {
			separator = "&"
		}
		r.Path += separator + url.QueryEscape(p.FromParams[0]) + "=" + describedToken
	case len(p.GetFromCookies()) > 0:
		r.Headers = append(r.Headers, Header{"cookie", p.FromCookies[0] + "=" + describedToken})
	default:
		r.Headers = append(r.Headers, Header{"authorization", "Bearer " + describedToken})
	}
	return r
}

// providerOf is the provider of an issuer; nil if a listener has none.
func providerOf(l *listenerv3.Listener, issuer any) *jwtv3.JwtProvider {
	for _, c := range l.FilterChains {
		for _, f := range c.Filters {
			m, ok := opened(f.GetTypedConfig()).(*hcmv3.HttpConnectionManager)
			if !ok {
				continue
			}
			for _, filter := range m.HttpFilters {
				config, ok := opened(filter.GetTypedConfig()).(*jwtv3.JwtAuthentication)
				if !ok {
					continue
				}
				for _, name := range slices.Sorted(maps.Keys(config.Providers)) {
					if p := config.Providers[name]; p.GetIssuer() == issuer {
						return p
					}
				}
			}
		}
	}
	return nil
}
