package access

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	"google.golang.org/protobuf/proto"
)

// standing is what becomes of the tokens of a request.
type standing uint8

const (
	good standing = iota
	missing
	unknownIssuer
	wrongAudience
	bad
	// unclear means that the description does not say.
	unclear
)

// verification is the verification of the tokens of a request by one filter.
type verification struct {
	*evaluation
	providers map[string]*jwtv3.JwtProvider
	written   map[string]any
	// because says why the tokens are not good.
	because string
}

// tokens goes through a filter that verifies tokens.
func (e *evaluation) tokens(name string, config *jwtv3.JwtAuthentication) {
	e.stage = AtTokens
	if config.FilterStateRules != nil || len(config.RequirementMap) > 0 || config.StripFailureResponse {
		e.stop("the filter " + name + " has settings that are not known here")
		return
	}
	if config.BypassCorsPreflight && e.preflight() {
		for _, p := range config.Providers {
			e.headers.sanitize(p)
		}
		return
	}
	v := verification{evaluation: e, providers: config.Providers, written: map[string]any{}}
	for _, rule := range config.Rules {
		prefix := rule.GetMatch().GetPrefix()
		if !proto.Equal(rule.GetMatch(), &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: prefix}}) || rule.GetRequires() == nil {
			e.stop("the filter " + name + " has a rule that is not known here")
			return
		}
		if !strings.HasPrefix(e.headers.path, prefix) {
			continue
		}
		switch v.verify(rule.GetRequires()) {
		case good:
			e.metadata[name] = v.written
		case unclear:
			e.metadata[name] = map[string]any{}
			for _, p := range config.Providers {
				e.metadata[name][p.PayloadInMetadata] = secret{v.because}
			}
			e.headers.allHidden = v.because
			e.doubted(v.because)
		case wrongAudience:
			e.deny(http.StatusForbidden, "", v.because)
		default:
			e.deny(http.StatusUnauthorized, "", v.because)
		}
		return
	}
}

// preflight reports whether the request only asks what a browser may do.
func (e *evaluation) preflight() bool {
	has := func(name string) bool {
		values, _ := e.headers.get(name)
		return strings.Join(values, ",") != ""
	}
	return e.headers.method == http.MethodOptions && has("origin") && has("access-control-request-method")
}

// verify is whether a request fulfils a requirement.
func (v *verification) verify(r *jwtv3.JwtRequirement) standing {
	switch one := r.GetRequiresType().(type) {
	case *jwtv3.JwtRequirement_ProviderName:
		return v.provider(v.providers[one.ProviderName])
	case *jwtv3.JwtRequirement_RequiresAll:
		for _, each := range one.RequiresAll.GetRequirements() {
			if s := v.verify(each); s != good {
				return s
			}
		}
		return good
	case *jwtv3.JwtRequirement_RequiresAny:
		return v.any(one.RequiresAny.GetRequirements())
	}
	v.because = "a RequestAuthentication has a requirement that is not known here"
	return unclear
}

// any is whether a request fulfils one of several requirements. If it fulfils none, a token that is wrong says more than one that is
// missing.
func (v *verification) any(list []*jwtv3.JwtRequirement) standing {
	result, optional, why := missing, false, v.because
	for _, one := range list {
		if one.GetAllowMissing() != nil {
			optional = true
			continue
		}
		s := v.verify(one)
		if s == good || s == unclear {
			return s
		}
		if s != missing && s != unknownIssuer || result == missing {
			result, why = s, v.because
		}
	}
	if optional && result == missing {
		return good
	}
	v.because = why
	return result
}

// found is a token of a request, and how it is removed.
type found struct {
	text   string
	remove func()
}

// provider verifies the tokens in the places where an issuer looks for its own. All must be good.
func (v *verification) provider(p *jwtv3.JwtProvider) standing {
	v.headers.sanitize(p)
	list := v.find(p)
	if len(list) == 0 {
		v.because = fmt.Sprintf("the request has no token of the issuer %q, and must have one", p.GetIssuer())
		return missing
	}
	for _, f := range slices.Backward(list) {
		token, described := v.Tokens[f.text]
		switch {
		case !described && !shapedAsToken(f.text):
			v.because = "the request has a token that is no JSON Web Token"
			return bad
		case !described:
			v.because = "the request has a token whose claims are not described"
			return unclear
		}
		if s := v.check(p, token); s != good {
			return s
		}
		v.accept(p, token, f)
	}
	return good
}

// shapedAsToken reports whether a text can be a JSON Web Token at all.
func shapedAsToken(s string) bool {
	return strings.Count(s, ".") == 2 && !strings.ContainsFunc(s, func(r rune) bool { return !inToken(r) })
}

// inToken reports whether a token may have a character.
func inToken(r rune) bool {
	return r < 0x80 && unreserved(byte(r)) && r != '~' || r == '.'
}

// sanitize removes the headers that a provider sets: clients must not claim what tokens say.
func (h *headers) sanitize(p *jwtv3.JwtProvider) {
	delete(h.others, lowerASCII(p.GetForwardPayloadHeader()))
	for _, out := range p.GetClaimToHeaders() {
		delete(h.others, lowerASCII(out.GetHeaderName()))
	}
}

// find returns the tokens in the places of a provider, in the order of the places.
func (v *verification) find(p *jwtv3.JwtProvider) (list []found) {
	headers, params := p.GetFromHeaders(), p.GetFromParams()
	if len(headers)+len(params)+len(p.GetFromCookies()) == 0 {
		headers, params = []*jwtv3.JwtHeader{{Name: "Authorization", ValuePrefix: "Bearer "}}, []string{"access_token"}
	}
	headers = slices.SortedFunc(slices.Values(headers), func(a, b *jwtv3.JwtHeader) int {
		return strings.Compare(lowerASCII(a.Name)+a.ValuePrefix, lowerASCII(b.Name)+b.ValuePrefix)
	})
	for _, h := range headers {
		name := lowerASCII(h.Name)
		for _, value := range v.headers.others[name] {
			if h.ValuePrefix != "" {
				at := strings.Index(value, h.ValuePrefix)
				if at < 0 {
					continue
				}
				value = fromToken(value, at+len(h.ValuePrefix))
			}
			list = append(list, found{value, func() { delete(v.headers.others, name) }})
		}
	}
	_, query := cutQuery(v.headers.path)
	values, _ := url.ParseQuery(strings.TrimPrefix(query, "?"))
	for _, name := range slices.Sorted(slices.Values(params)) {
		if values.Has(name) {
			list = append(list, found{values.Get(name), func() { v.headers.pathHidden = "it depends on the query without the token" }})
		}
	}
	return append(list, v.cookies(p.GetFromCookies())...)
}

// fromToken returns a value from the first character on that a token may have, behind a prefix.
func fromToken(value string, behind int) string {
	at := strings.IndexFunc(value[behind:], inToken)
	if at < 0 {
		return value
	}
	return value[behind+at:]
}

func (v *verification) cookies(names []string) (list []found) {
	request := http.Request{Header: http.Header{"Cookie": v.headers.others["cookie"]}}
	for _, name := range slices.Sorted(slices.Values(names)) {
		if c, err := request.Cookie(name); err == nil {
			list = append(list, found{c.Value, func() {}})
		}
	}
	return list
}

// check is whether a token is one of a provider.
func (v *verification) check(p *jwtv3.JwtProvider, t Token) standing {
	issuer, _ := t.Claims["iss"].(string)
	switch {
	case p.GetIssuer() != "" && p.GetIssuer() != issuer:
		v.because = fmt.Sprintf("a token of the issuer %q is where the issuer %q looks for its own", issuer, p.GetIssuer())
		return unknownIssuer
	case t.Expired:
		v.because = "the token is not valid any more"
		return bad
	case !forAudience(p.GetAudiences(), t.Claims["aud"]):
		v.because = fmt.Sprintf("the token is for none of the audiences of the issuer %q: %s", issuer, strings.Join(p.GetAudiences(), ", "))
		return wrongAudience
	case v.options.Keyless != nil && v.options.Keyless(p):
		v.because = fmt.Sprintf("the keys of the issuer %q are not known, so none of its tokens is valid", issuer)
		return bad
	case t.Forged:
		v.because = "the token has a signature that its issuer did not make"
		return bad
	}
	return good
}

// forAudience is whether a token is for one of some audiences. Schemes and slashes at the end do not count.
func forAudience(audiences []string, claim any) bool {
	if len(audiences) == 0 {
		return true
	}
	plain := func(s string) string {
		s = strings.TrimPrefix(strings.TrimPrefix(s, "http://"), "https://")
		return strings.TrimSuffix(s, "/")
	}
	list, ok := claim.([]any)
	if !ok {
		list = []any{claim}
	}
	return slices.ContainsFunc(list, func(one any) bool {
		text, ok := one.(string)
		return ok && slices.ContainsFunc(audiences, func(a string) bool { return plain(a) == plain(text) })
	})
}

// accept writes what a good token says into metadata and headers.
func (v *verification) accept(p *jwtv3.JwtProvider, t Token, f found) {
	if name := lowerASCII(p.GetForwardPayloadHeader()); name != "" {
		v.headers.hidden[name] = "it depends on how the token is written"
	}
	for _, out := range p.GetClaimToHeaders() {
		v.headers.setClaim(lowerASCII(out.GetHeaderName()), t.Claims, out.GetClaimName())
	}
	if !p.GetForward() {
		f.remove()
	}
	if p.GetHeaderInMetadata() != "" {
		v.written[p.GetHeaderInMetadata()] = secret{"it depends on how the token is written"}
	}
	if p.GetPayloadInMetadata() == "" {
		return
	}
	claims := make(map[string]any, len(t.Claims))
	for name, value := range t.Claims {
		claims[name] = value
	}
	for _, name := range p.GetNormalizePayloadInMetadata().GetSpaceDelimitedClaims() {
		text, ok := claims[name].(string)
		if words := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' }); ok && len(words) > 0 {
			list := make([]any, len(words))
			for i, word := range words {
				list[i] = word
			}
			claims[name] = list
		}
	}
	v.written[p.GetPayloadInMetadata()] = claims
}

// setClaim sets a header to a claim.
func (h *headers) setClaim(header string, claims map[string]any, name string) {
	switch value := claims[name].(type) {
	case string:
		if value != "" {
			h.others[header] = append(h.others[header], value)
		}
	case bool:
		h.others[header] = append(h.others[header], fmt.Sprint(value))
	case nil:
		if strings.Contains(name, ".") {
			h.hidden[header] = "it depends on how the claim " + name + " is found"
		}
	default:
		h.hidden[header] = "it depends on how the claim " + name + " is written"
	}
}
