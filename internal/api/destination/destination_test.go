package destination

import (
	"slices"
	"testing"

	networking "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"
)

// TestParts: each question looks at the settings of the host, of its ports, of subsets, and of the ports of subsets.
func TestParts(t *testing.T) {
	for _, c := range []struct {
		name, spec           string
		credentials, labels  []string
		credential, locality bool
	}{
		{"nothing", "{}", nil, nil, false, false},
		{"host", "{trafficPolicy: {tls: {mode: SIMPLE, credentialName: a}}}", []string{"a"}, nil, true, false},
		{"port", "{trafficPolicy: {portLevelSettings: [{port: {number: 80}, tls: {mode: SIMPLE, credentialName: a}}]}}", []string{"a"}, nil, true, false},
		{"subset and its port", `{subsets: [{name: v1, trafficPolicy: {tls: {mode: SIMPLE, credentialName: a},
			portLevelSettings: [{port: {number: 80}, tls: {mode: SIMPLE, credentialName: b}}]}}]}`, []string{"a", "b"}, nil, true, false},
		{"with a selector", "{workloadSelector: {matchLabels: {app: web}}, trafficPolicy: {tls: {mode: SIMPLE, credentialName: a}}}", []string{"a"}, nil, false, false},
		{"outlier detection", "{trafficPolicy: {outlierDetection: {consecutive5xxErrors: 3}}}", nil, nil, false, true},
		{"failover by labels", "{trafficPolicy: {loadBalancer: {localityLbSetting: {failoverPriority: [rack, zone=a]}}}}", nil, []string{"rack"}, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &networking.DestinationRule{}
			if err := yaml.Unmarshal([]byte(c.spec), d); err != nil {
				t.Fatal(err)
			}
			if got := slices.Collect(Credentials(d)); !slices.Equal(got, c.credentials) {
				t.Errorf("credentials %q, want %q", got, c.credentials)
			}
			if got := slices.Collect(SiteLabels(d)); !slices.Equal(got, c.labels) {
				t.Errorf("labels %q, want %q", got, c.labels)
			}
			if by, at := ByCredential(d), ByLocality(d); by != c.credential || at != c.locality {
				t.Errorf("by credential %t, by locality %t", by, at)
			}
		})
	}
}
