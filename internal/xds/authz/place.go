package authz

import (
	"fmt"
	"slices"
	"strings"

	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

// place is where tokens are looked for: a header, where they stand behind a prefix, a parameter of the query, or a cookie.
type place struct{ kind, name, prefix string }

// The kinds of places.
const (
	inHeader    = "header"
	inParameter = "parameter"
	inCookie    = "cookie"
)

// placesOf returns where issuers look for their tokens, each place once. One header with two prefixes is two places, unless what one
// issuer finds there is, with another prefix, what the other one finds.
func placesOf(list []issuer) [][]place {
	where := make([][]place, len(list))
	for i, of := range list {
		for _, h := range headersOf(of.provider) {
			where[i] = append(where[i], placeIn(h))
		}
		for _, name := range paramsOf(of.provider) {
			where[i] = append(where[i], place{inParameter, name, ""})
		}
		for _, name := range of.provider.GetFromCookies() {
			where[i] = append(where[i], place{inCookie, name, ""})
		}
	}
	every := slices.Concat(where...)
	for i := range where {
		var own []place
		for _, at := range where[i] {
			if at = widest(at, every); !slices.Contains(own, at) {
				own = append(own, at)
			}
		}
		where[i] = own
	}
	return where
}

// widest returns the place with the shortest prefix that has all tokens of a place.
func widest(at place, every []place) place {
	widest := at
	for _, other := range every {
		if other.kind == at.kind && other.name == at.name && strings.Contains(at.prefix, other.prefix) && len(other.prefix) < len(widest.prefix) {
			widest = other
		}
	}
	return widest
}

func placeIn(h *jwtv3.JwtHeader) place {
	return place{inHeader, strings.ToLower(h.GetName()), h.GetValuePrefix()}
}

// headersOf and paramsOf are the headers and parameters where a provider looks. Without any, Envoy has defaults.
func headersOf(p *jwtv3.JwtProvider) []*jwtv3.JwtHeader {
	if byDefault(p) {
		return []*jwtv3.JwtHeader{{Name: "Authorization", ValuePrefix: "Bearer "}}
	}
	return p.GetFromHeaders()
}

func paramsOf(p *jwtv3.JwtProvider) []string {
	if byDefault(p) {
		return []string{"access_token"}
	}
	return p.GetFromParams()
}

func byDefault(p *jwtv3.JwtProvider) bool {
	return len(p.GetFromHeaders())+len(p.GetFromParams())+len(p.GetFromCookies()) == 0
}

// restricted is a provider that looks for tokens in one of its places only.
func restricted(p *jwtv3.JwtProvider, to place) *jwtv3.JwtProvider {
	headers := headersOf(p)
	p = proto.CloneOf(p)
	p.FromHeaders, p.FromParams, p.FromCookies = nil, nil, nil
	switch to.kind {
	case inHeader:
		for _, h := range headers {
			if at := placeIn(h); at.name == to.name && strings.Contains(at.prefix, to.prefix) {
				p.FromHeaders = append(p.FromHeaders, h)
			}
		}
	case inParameter:
		p.FromParams = []string{to.name}
	case inCookie:
		p.FromCookies = []string{to.name}
	}
	return p
}

// verification collects the providers of issuers, and the requirements for requests.
type verification struct {
	providers map[string]*jwtv3.JwtProvider
	all       []*jwtv3.JwtRequirement
}

// verify requires of each place that a token there is a good one of an issuer that looks there, and of some issuers that there is a token
// of theirs. A good token in one place excuses no other one: the application may read either.
func verify(list []issuer) (map[string]*jwtv3.JwtProvider, *jwtv3.JwtRequirement) {
	v := &verification{providers: map[string]*jwtv3.JwtProvider{}}
	where := placesOf(list)
	inPlace := map[place][]int{}
	for i := range where {
		for _, at := range where[i] {
			inPlace[at] = append(inPlace[at], i)
		}
	}
	done := make([]bool, len(list))
	for i := range list {
		if done[i] {
			continue
		}
		group := related(where, inPlace, i)
		for _, j := range group {
			done[j] = true
		}
		v.add(list, where, group)
	}
	return v.providers, allOf(v.all)
}

// related returns all issuers that share a place with a given one, directly or through other issuers. inPlace lists the issuers of each
// place. It reads each place once, because one namespace may name thousands of issuers that share the default places.
func related(where [][]place, inPlace map[place][]int, first int) []int {
	group, member, read := []int{first}, map[int]bool{first: true}, map[place]bool{}
	for next := 0; next < len(group); next++ {
		for _, at := range where[group[next]] {
			if read[at] {
				continue
			}
			read[at] = true
			for _, i := range inPlace[at] {
				if !member[i] {
					member[i] = true
					group = append(group, i)
				}
			}
		}
	}
	slices.Sort(group)
	return group
}

// add adds issuers that share places. If all look in the same places, each is one provider, which verifies all tokens there. Otherwise
// each issuer is one provider per place.
func (v *verification) add(list []issuer, where [][]place, group []int) {
	same := !slices.ContainsFunc(group, func(i int) bool {
		return len(where[i]) != len(where[group[0]]) || slices.ContainsFunc(where[i], func(at place) bool { return !slices.Contains(where[group[0]], at) })
	})
	missing := &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_AllowMissing{AllowMissing: &emptypb.Empty{}}}
	at := map[place][]*jwtv3.JwtRequirement{}
	var places []place
	var required []*jwtv3.JwtRequirement
	for _, i := range group {
		var own []*jwtv3.JwtRequirement
		for n, one := range where[i] {
			name, p := providerName(i), list[i].provider
			switch {
			case same && n > 0:
				continue
			case same:
				one = place{}
			default:
				name, p = fmt.Sprint(name, "-", n), restricted(p, one)
			}
			v.providers[name] = p
			good := &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_ProviderName{ProviderName: name}}
			if at[one] == nil {
				places = append(places, one)
			}
			at[one], own = append(at[one], good), append(own, good)
		}
		if list[i].required {
			required = append(required, anyOf(own...))
		}
	}
	v.all = append(v.all, required...)
	for _, one := range places {
		if len(required) == 1 && len(group) == 1 && same {
			break // it is required already
		}
		v.all = append(v.all, anyOf(append(at[one], missing)...))
	}
}

// allOf requires all, and anyOf one. A list of one requirement becomes that requirement.
func allOf(list []*jwtv3.JwtRequirement) *jwtv3.JwtRequirement {
	if len(list) == 1 {
		return list[0]
	}
	return &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_RequiresAll{RequiresAll: &jwtv3.JwtRequirementAndList{Requirements: list}}}
}

func anyOf(list ...*jwtv3.JwtRequirement) *jwtv3.JwtRequirement {
	if len(list) == 1 {
		return list[0]
	}
	return &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_RequiresAny{RequiresAny: &jwtv3.JwtRequirementOrList{Requirements: list}}}
}
