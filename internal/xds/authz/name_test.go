package authz

import (
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
)

// TestRuleOf checks that the name of a policy in Envoy leads back to the rule.
func TestRuleOf(t *testing.T) {
	key := api.Key{Kind: api.KindAuthorizationPolicy, Namespace: "shop", Name: "a-rule.b"}
	for name, want := range map[string]Rule{
		policyName(key, 3):                                  {Policy: key, Index: 3},
		customPrefix + "-" + policyName(key, 0):             {Policy: key, Custom: true},
		customPrefix + "-" + policyName(key, 1) + badCustom: {Policy: key, Index: 1, Custom: true, Untranslated: true},
	} {
		if got, ok := RuleOf(name); !ok || got != want {
			t.Errorf("%s: %+v %t, want %+v", name, got, ok, want)
		}
	}
	for _, name := range []string{"", becauseOfBug, "ns[a]-policy[b]", "ns[a]-policy[b]-rule[c]"} {
		if got, ok := RuleOf(name); ok {
			t.Errorf("%q is the name of %+v", name, got)
		}
	}
}
