package rules

import (
	"strings"

	security "istio.io/api/security/v1beta1"

	"github.com/pilotmesh/pilot/internal/api/document"
	"github.com/pilotmesh/pilot/internal/api/rules/syntax"
)

// RequestAuthentication checks a RequestAuthentication.
func RequestAuthentication(s *security.RequestAuthentication, about About) []document.Finding {
	return checkSpec(s, about, func(c *checker, at *document.Path) {
		c.attachment(at, s.Selector, s.TargetRef, s.TargetRefs)
		rules := at.Field("jwtRules")
		c.atMost(rules, len(s.JwtRules), 4096)
		for i, rule := range s.JwtRules {
			if rule == nil {
				c.Fail(rules.At(i), "a rule must not be null")
				continue
			}
			c.jwtRule(rules.At(i), rule)
		}
	})
}

func (c *checker) jwtRule(p *document.Path, rule *security.JWTRule) {
	if rule.Issuer == "" && rule.JwksUri == "" {
		c.Fail(p.Field("issuer"), "a rule needs the issuer of its tokens, or jwksUri")
	}
	c.notEmpty(p.Field("audiences"), rule.Audiences)
	c.notEmpty(p.Field("fromParams"), rule.FromParams)
	c.notEmpty(p.Field("fromCookies"), rule.FromCookies)
	c.notEmpty(p.Field("spaceDelimitedClaims"), rule.SpaceDelimitedClaims)
	c.atMost(p.Field("spaceDelimitedClaims"), len(rule.SpaceDelimitedClaims), 64)
	if rule.JwksUri != "" {
		c.Rule(p.Field("jwksUri"), syntax.KeyURL(rule.JwksUri))
		if rule.Jwks != "" {
			c.Fail(p.Field("jwks"), "excludes jwksUri; keep one of them")
		}
	}
	if rule.Jwks != "" {
		c.keys(p.Field("jwks"), rule.Jwks)
	}
	for i, h := range rule.FromHeaders {
		at := p.Field("fromHeaders").At(i).Field("name")
		if h.GetName() == "" {
			c.Fail(at, "a header needs a name")
		} else {
			c.Rule(at, syntax.HeaderName(h.Name))
		}
		c.HeaderText(p.Field("fromHeaders").At(i).Field("prefix"), h.GetPrefix())
	}
	if rule.OutputPayloadToHeader != "" {
		c.Rule(p.Field("outputPayloadToHeader"), syntax.HeaderName(rule.OutputPayloadToHeader))
	}
	seen := map[string]bool{}
	for i, out := range rule.OutputClaimToHeaders {
		at := p.Field("outputClaimToHeaders").At(i)
		if out.GetClaim() == "" {
			c.Fail(at.Field("claim"), "a claim to copy needs a name")
		}
		header := out.GetHeader()
		switch {
		case header == "" || strings.Trim(header, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "":
			c.Fail(at.Field("header"), "%s is not a header name of letters, digits, - and _", document.Quote(header))
		case seen[strings.ToLower(header)]:
			c.Fail(at.Field("header"), "%s is given twice", document.Quote(header))
		}
		seen[strings.ToLower(header)] = true
	}
}

// notEmpty checks that no text of a list is empty.
func (c *checker) notEmpty(p *document.Path, texts []string) {
	for i, text := range texts {
		if text == "" {
			c.Fail(p.At(i), "a value must not be empty")
		}
	}
}

// keys checks the keys in a rule: a set of them, or one.
func (c *checker) keys(p *document.Path, text string) {
	if len(text) > syntax.MaxKeySet {
		c.Fail(p, "has %d bytes, the limit is %d", len(text), syntax.MaxKeySet)
		return
	}
	secret, reason := syntax.KeySet([]byte(text))
	c.Rule(p, reason)
	if secret {
		c.Warn(p, "has a symmetric key (kty: oct) or a private one, with which all readers of this object can make tokens; write public RSA or EC keys only")
	}
}
