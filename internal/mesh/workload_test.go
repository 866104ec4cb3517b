package mesh

import "testing"

// TestIdentityOf: a label with the name of the workload goes before its owner, and the owner before labels about applications; a service is named by
// labels about applications first.
func TestIdentityOf(t *testing.T) {
	for _, c := range []struct {
		labels map[string]string
		owner  string
		want   WorkloadIdentity
	}{
		{nil, "", WorkloadIdentity{Revision: "latest"}},
		{nil, "reviews-v3", WorkloadIdentity{Workload: "reviews-v3", Service: "reviews-v3", Revision: "latest"}},
		{map[string]string{"app": "reviews", "version": "v3"}, "", WorkloadIdentity{"reviews", "reviews", "v3", "reviews", "v3"}},
		{map[string]string{"app": "reviews", "version": "v3"}, "reviews-v3", WorkloadIdentity{"reviews-v3", "reviews", "v3", "reviews", "v3"}},
		{map[string]string{"app.kubernetes.io/name": "n", "app": "a", "service.istio.io/workload-name": "w"}, "owner", WorkloadIdentity{"w", "a", "", "n", "latest"}},
	} {
		if got := IdentityOf(LabelsOf(c.labels), c.owner); got != c.want {
			t.Errorf("%v, owner %q: %+v, want %+v", c.labels, c.owner, got, c.want)
		}
	}
}
