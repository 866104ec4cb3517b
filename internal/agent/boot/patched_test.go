package boot

import (
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/pilotmesh/pilot/internal/xds/envoy"
)

// TestPatched: a patch is merged into each bootstrap, lists are appended, and nothing else changes. What would break the bootstrap is refused.
func TestPatched(t *testing.T) {
	for name, c := range cases(t) {
		text, err := c.JSON()
		if err != nil {
			t.Fatal(err)
		}
		same, err := Patched(text, &bootstrapv3.Bootstrap{})
		if err != nil || string(same) != string(text) {
			t.Errorf("%s: an empty patch changes it: %v", name, err)
		}
	}
	c := cases(t)["usual"]
	text, err := c.JSON()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Patched(text, &bootstrapv3.Bootstrap{
		StatsFlushInterval: durationpb.New(9 * time.Second),
		StaticResources:    &bootstrapv3.Bootstrap_StaticResources{Clusters: c.Message().GetStaticResources().GetClusters()[:1]},
	})
	var b bootstrapv3.Bootstrap
	if err != nil || protojson.Unmarshal(got, &b) != nil || b.GetStatsFlushInterval().AsDuration() != 9*time.Second ||
		len(b.GetStaticResources().GetClusters()) != len(c.Message().GetStaticResources().GetClusters())+1 {
		t.Errorf("%v\n%s", err, got)
	}
	for what, patch := range map[string]*bootstrapv3.Bootstrap{
		"the id of the node":             {Node: &corev3.Node{Id: "another"}},
		"address of the admin interface": {Admin: &bootstrapv3.Admin{Address: envoy.Address("0.0.0.0", 15000)}},
		"StatsFlushInterval":             {StatsFlushInterval: durationpb.New(time.Hour)},
	} {
		if _, err := Patched(text, patch); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v does not name %s", err, what)
		}
	}
	_, err = Patched([]byte(`{"nothing": 1}`), &bootstrapv3.Bootstrap{EnableDispatcherStats: true, StatsServerVersionOverride: wrapperspb.UInt64(1)})
	if err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("%v does not name the field of the template that is not known", err)
	}
}
