package authz

import (
	"fmt"
	"strconv"
	"strings"

	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// The parts of the names of policies in Envoy.
const (
	nameStart, nameMiddle, nameRule, nameEnd = "ns[", "]-policy[", "]-rule[", "]"
	// becauseOfBug is the name of the policy that denies everything when a translation failed.
	becauseOfBug = "deny-because-of-a-bug"
)

// policyName is the name of a rule in Envoy.
func policyName(k api.Key, rule int) string {
	return fmt.Sprint(nameStart, k.Namespace, nameMiddle, k.Name, nameRule, rule, nameEnd)
}

// Rule is what a policy of Envoy was made of.
type Rule struct {
	// Policy is the AuthorizationPolicy, and Index the position of the rule in it.
	Policy api.Key
	Index  int
	// Custom is true if the rule only finds out whether an external authorizer is asked.
	Custom bool
	// Untranslated is true if the policy could not be translated, so that requests that it matches are denied.
	Untranslated bool
}

// RuleOf returns what the policy of Envoy with a name was made of. ok is false if it was made of no rule.
func RuleOf(name string) (r Rule, ok bool) {
	name, r.Custom = strings.CutPrefix(name, customPrefix+"-")
	name, r.Untranslated = strings.CutSuffix(name, badCustom)
	namespace, rest, ok := strings.Cut(strings.TrimPrefix(name, nameStart), nameMiddle)
	object, number, ok2 := strings.Cut(rest, nameRule)
	index, err := strconv.Atoi(strings.TrimSuffix(number, nameEnd))
	if !ok || !ok2 || err != nil {
		return Rule{}, false
	}
	r.Policy = api.Key{Kind: api.KindAuthorizationPolicy, Namespace: namespace, Name: object}
	r.Index = index
	return r, true
}

// Keyless reports whether the keys of an issuer are not known, so that none of its tokens is valid.
func Keyless(p *jwtv3.JwtProvider) bool { return p.GetLocalJwks().GetInlineString() == mesh.NoKeys }
