package authz

import (
	"maps"
	"slices"
	"strings"
	"testing"

	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
)

// TestVerify checks which requirements follow from the places where issuers look: a missing token is written as "-", one of several as
// (a b), and all of them one after the other.
func TestVerify(t *testing.T) {
	header := func(name, prefix string) *jwtv3.JwtProvider {
		return &jwtv3.JwtProvider{FromHeaders: []*jwtv3.JwtHeader{{Name: name, ValuePrefix: prefix}}}
	}
	usual, parameter := &jwtv3.JwtProvider{}, &jwtv3.JwtProvider{FromParams: []string{"access_token"}}
	two := &jwtv3.JwtProvider{FromHeaders: []*jwtv3.JwtHeader{{Name: "X-A"}, {Name: "x-b"}}}
	for name, c := range map[string]struct {
		list []issuer
		want string
	}{
		"one":                            {[]issuer{{provider: usual}}, "(origins-0 -)"},
		"one that is required":           {[]issuer{{provider: usual, required: true}}, "origins-0"},
		"the same places":                {[]issuer{{provider: usual}, {provider: usual}}, "(origins-0 origins-1 -)"},
		"the same places, one required":  {[]issuer{{provider: usual}, {provider: usual, required: true}}, "origins-1 (origins-0 origins-1 -)"},
		"other places":                   {[]issuer{{provider: usual}, {provider: header("x-a", "")}}, "(origins-0 -) (origins-1 -)"},
		"other places, one required":     {[]issuer{{provider: usual}, {provider: header("x-a", ""), required: true}}, "(origins-0 -) origins-1"},
		"other prefixes":                 {[]issuer{{provider: header("x-a", "S ")}, {provider: header("X-A", "T ")}}, "(origins-0 -) (origins-1 -)"},
		"a prefix and none":              {[]issuer{{provider: header("x-a", "S ")}, {provider: header("X-A", "")}}, "(origins-0 origins-1 -)"},
		"one place in common":            {[]issuer{{provider: usual}, {provider: parameter}}, "(origins-0-0 -) (origins-0-1 origins-1-0 -)"},
		"one in common, one required":    {[]issuer{{provider: usual, required: true}, {provider: parameter}}, "(origins-0-0 origins-0-1) (origins-0-0 -) (origins-0-1 origins-1-0 -)"},
		"places that others have common": {[]issuer{{provider: header("x-a", "")}, {provider: header("x-b", "")}, {provider: two}}, "(origins-0-0 origins-2-0 -) (origins-1-0 origins-2-1 -)"},
	} {
		providers, requires := verify(c.list)
		var text func(r *jwtv3.JwtRequirement) string
		every := func(list []*jwtv3.JwtRequirement) string {
			var all []string
			for _, one := range list {
				all = append(all, text(one))
			}
			return strings.Join(all, " ")
		}
		used := map[string]bool{}
		text = func(r *jwtv3.JwtRequirement) string {
			switch {
			case r.GetAllowMissing() != nil:
				return "-"
			case r.GetRequiresAll() != nil:
				return every(r.GetRequiresAll().GetRequirements())
			case r.GetRequiresAny() != nil:
				return "(" + every(r.GetRequiresAny().GetRequirements()) + ")"
			}
			used[r.GetProviderName()] = true
			return r.GetProviderName()
		}
		if got := text(requires); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if !maps.Equal(used, maps.Collect(func(yield func(string, bool) bool) {
			for name := range providers {
				if !yield(name, true) {
					return
				}
			}
		})) {
			t.Errorf("%s: the providers are %v", name, slices.Sorted(maps.Keys(providers)))
		}
	}
}

// TestRestricted checks that a provider that is split looks where it did before.
func TestRestricted(t *testing.T) {
	usual, parameter := &jwtv3.JwtProvider{Issuer: "i"}, &jwtv3.JwtProvider{Issuer: "j", FromParams: []string{"access_token"}}
	providers, _ := verify([]issuer{{provider: usual}, {provider: parameter}})
	if h := providers["origins-0-0"]; h.GetIssuer() != "i" || len(h.GetFromHeaders()) != 1 || h.FromHeaders[0].Name != "Authorization" || h.FromHeaders[0].ValuePrefix != "Bearer " ||
		len(h.FromParams) > 0 {
		t.Errorf("the header: %v", h)
	}
	if p := providers["origins-0-1"]; p.GetIssuer() != "i" || !slices.Equal(p.GetFromParams(), []string{"access_token"}) || len(p.FromHeaders) > 0 {
		t.Errorf("the parameter: %v", p)
	}
	if !byDefault(usual) {
		t.Error("the provider of the issuer was changed")
	}
}
