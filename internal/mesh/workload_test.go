package mesh

import (
	"strings"
	"testing"
)

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

// TestText: the parts of the text about a workload are found by their places. A text that could be read in another way is empty.
func TestText(t *testing.T) {
	is := WorkloadIdentity{Workload: "reviews-v1", App: "reviews", Version: "v1.2_x", Service: "reviews", Revision: "latest"}
	parts := strings.Split(is.Text("east"), FieldSeparator)
	for field, want := range map[WorkloadField]string{FieldWorkload: "reviews-v1", FieldApp: "reviews", FieldVersion: "v1.2_x", FieldService: "reviews", FieldRevision: "latest", FieldCluster: "east"} {
		if len(parts) != 6 || parts[field] != want {
			t.Errorf("part %d of %q, want %q", field, parts, want)
		}
	}
	for _, bad := range []string{"a/b", "a,description=evil", `a\`, "ä"} {
		if got := is.Text(bad); got != "" {
			t.Errorf("with the cluster %q: %q", bad, got)
		}
	}
}
