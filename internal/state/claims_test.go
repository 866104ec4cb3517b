package state_test

import (
	"slices"
	"testing"

	"github.com/pilotmesh/pilot/internal/state"
)

// TestClaimsOfOneAge checks the order of claims with equal ages: routes by name, then namespace; services and policies by
// namespace, then name. A greater age wins over both.
func TestClaimsOfOneAge(t *testing.T) {
	claim := func(kind state.ClaimKind, age int64, namespace, name string) state.Claim {
		return state.Claim{Kind: kind, Created: age, Namespace: namespace, Name: name}
	}
	for _, kind := range []state.ClaimKind{state.RouteClaim, state.ServiceClaim, state.PolicyClaim} {
		first, second := claim(kind, 2, "b", "a"), claim(kind, 2, "a", "b")
		if kind != state.RouteClaim {
			first, second = second, first
		}
		want := []state.Claim{claim(kind, 1, "z", "z"), first, second}
		got := []state.Claim{second, want[0], first}
		slices.SortFunc(got, state.Claim.Compare)
		if !slices.Equal(got, want) {
			t.Errorf("%v: got %v, want %v", kind, got, want)
		}
	}
}
