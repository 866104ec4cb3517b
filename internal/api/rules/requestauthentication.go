package rules

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	security "istio.io/api/security/v1beta1"

	"github.com/pilotmesh/pilot/internal/api/document"
)

// RequestAuthentication checks a RequestAuthentication.
func RequestAuthentication(s *security.RequestAuthentication, about About) []document.Finding {
	return checkSpec(s, about, func(c *checker, at *document.Path) {
		c.attachment(at, s.Selector, s.TargetRef, s.TargetRefs)
		rules := at.Field("jwtRules")
		c.atMost(rules, len(s.JwtRules), 4096)
		for i, rule := range s.JwtRules {
			if rule == nil {
				c.fail(rules.At(i), "a rule must not be null")
				continue
			}
			c.jwtRule(rules.At(i), rule)
		}
	})
}

func (c *checker) jwtRule(p *document.Path, rule *security.JWTRule) {
	if rule.Issuer == "" && rule.JwksUri == "" && rule.Jwks == "" {
		c.fail(p.Field("issuer"), "a rule needs the issuer of its tokens, or their keys")
	}
	c.notEmpty(p.Field("audiences"), rule.Audiences)
	c.notEmpty(p.Field("fromParams"), rule.FromParams)
	c.notEmpty(p.Field("fromCookies"), rule.FromCookies)
	c.notEmpty(p.Field("spaceDelimitedClaims"), rule.SpaceDelimitedClaims)
	c.atMost(p.Field("spaceDelimitedClaims"), len(rule.SpaceDelimitedClaims), 64)
	if rule.JwksUri != "" {
		c.rule(p.Field("jwksUri"), checkKeyURL(rule.JwksUri))
		if rule.Jwks != "" {
			c.fail(p.Field("jwks"), "excludes jwksUri; keep one of them")
		}
	}
	if rule.Jwks != "" {
		c.rule(p.Field("jwks"), CheckKeySet([]byte(rule.Jwks)))
		if set, ok := parseKeySet([]byte(rule.Jwks)); ok && slices.ContainsFunc(set.Keys, keyHeader.symmetric) {
			c.warn(p.Field("jwks"), "has a symmetric key (kty: oct), with which whoever can read this object can make tokens; use RSA or EC keys")
		}
	}
	for i, h := range rule.FromHeaders {
		at := p.Field("fromHeaders").At(i).Field("name")
		if h.GetName() == "" {
			c.fail(at, "a header needs a name")
		} else {
			c.rule(at, checkHeaderName(h.Name))
		}
	}
	if rule.OutputPayloadToHeader != "" {
		c.rule(p.Field("outputPayloadToHeader"), checkHeaderName(rule.OutputPayloadToHeader))
	}
	seen := map[string]bool{}
	for i, out := range rule.OutputClaimToHeaders {
		at := p.Field("outputClaimToHeaders").At(i)
		if out.GetClaim() == "" {
			c.fail(at.Field("claim"), "a claim to copy needs a name")
		}
		header := out.GetHeader()
		switch {
		case header == "" || strings.Trim(header, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "":
			c.fail(at.Field("header"), "%s is not a header name of letters, digits, - and _", document.Quote(header))
		case seen[strings.ToLower(header)]:
			c.fail(at.Field("header"), "%s is given twice", document.Quote(header))
		}
		seen[strings.ToLower(header)] = true
	}
}

// notEmpty checks that no text of a list is empty.
func (c *checker) notEmpty(p *document.Path, texts []string) {
	for i, text := range texts {
		if text == "" {
			c.fail(p.At(i), "a value must not be empty")
		}
	}
}

// checkKeyURL checks the address of a key set.
func checkKeyURL(s string) string {
	if len(s) > 2048 {
		return fmt.Sprintf("has %d characters, the limit is 2048", len(s))
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return "is not the address of a key set; write http://HOST/PATH or https://HOST/PATH"
	}
	return ""
}

// MaxKeySet is the maximum size of a key set.
const MaxKeySet = 1 << 20

// keySet is a set of JSON Web Keys, as far as it is looked at.
type keySet struct {
	Keys []keyHeader `json:"keys"`
}

type keyHeader struct {
	Type string `json:"kty"`
}

func (k keyHeader) symmetric() bool { return k.Type == "oct" }

func parseKeySet(text []byte) (set keySet, ok bool) {
	err := json.Unmarshal(text, &set)
	return set, err == nil && set.Keys != nil
}

// CheckKeySet returns why a text is not a set of JSON Web Keys; "" if it is one. The reason holds nothing of the text.
func CheckKeySet(text []byte) string {
	if len(text) > MaxKeySet {
		return fmt.Sprintf("has %d bytes, the limit is %d", len(text), MaxKeySet)
	}
	set, ok := parseKeySet(text)
	if !ok {
		return `is not a set of JSON Web Keys; write {"keys": [...]}`
	}
	for i, key := range set.Keys {
		if key.Type == "" {
			return fmt.Sprintf("keys[%d] has no type (kty)", i)
		}
	}
	return ""
}
