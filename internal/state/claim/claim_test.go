package claim_test

import (
	"slices"
	"testing"

	"github.com/pilotmesh/pilot/internal/state/claim"
)

// TestClaimsOfOneAge checks the order of claims with equal ages: routes by name, then namespace; services and policies by
// namespace, then name. A greater age wins over both.
func TestClaimsOfOneAge(t *testing.T) {
	of := func(kind claim.Kind, age int64, namespace, name string) claim.Claim {
		return claim.Claim{Kind: kind, Created: age, Namespace: namespace, Name: name}
	}
	for _, kind := range []claim.Kind{claim.Route, claim.Service, claim.Policy} {
		first, second := of(kind, 2, "b", "a"), of(kind, 2, "a", "b")
		if kind != claim.Route {
			first, second = second, first
		}
		want := []claim.Claim{of(kind, 1, "z", "z"), first, second}
		got := []claim.Claim{second, want[0], first}
		slices.SortFunc(got, claim.Claim.Compare)
		if !slices.Equal(got, want) {
			t.Errorf("%v: got %v, want %v", kind, got, want)
		}
	}
}
