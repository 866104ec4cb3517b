package telemetry

import (
	"strings"
	"testing"

	statsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stats/v3"
	telemetryapi "istio.io/api/telemetry/v1alpha1"

	view "github.com/pilotmesh/pilot/internal/view/telemetry"
)

// statsOf returns the logger for requests of an Envoy. Envoys from 1.39 have the version 0.
func statsOf(t *testing.T, minor uint32, side view.Side, secure bool, metrics ...view.Metric) *statsv3.Config {
	t.Helper()
	b := builder{Key: Key{Side: side, OldStats: minor}}
	c := new(statsv3.Config)
	if err := b.stats(metrics, secure).http.GetTypedConfig().UnmarshalTo(c); err != nil {
		t.Fatal(err)
	}
	return c
}

// tagsOf returns the formats of the tags of the first counter.
func tagsOf(c *statsv3.Config) (formats map[string]string, withRules int) {
	formats = map[string]string{}
	for _, tag := range c.Counters[0].Stat.Tags {
		formats[tag.Name] = tag.ValueFormat
		if tag.Rules != nil {
			withRules++
		}
	}
	return formats, withRules
}

// TestOldStats: an Envoy without scopes prefixes the names, and one without rules has an operator that yields "unknown".
func TestOldStats(t *testing.T) {
	requests := view.Metric{ID: telemetryapi.MetricSelector_REQUEST_COUNT}
	for _, c := range []struct {
		minor  uint32
		name   string
		prefix string
		scope  bool
		rules  bool
		app    string
	}{
		{0, "istio_requests_total", "", true, true, "%UPSTREAM_METADATA(pilot.peer:app)%"},
		{38, "requests_total", "istio", false, true, "%UPSTREAM_METADATA(pilot.peer:app)%"},
		{37, "requests_total", "istio", false, false, `%COALESCE({"operators":[{"command":"UPSTREAM_METADATA","param":"pilot.peer:app"},{"command":"ENVIRONMENT","param":"PROXY_UNKNOWN"}]})%`},
	} {
		got := statsOf(t, c.minor, view.Client, false, requests)
		formats, rules := tagsOf(got)
		if got.Counters[0].Stat.Name != c.name || got.StatPrefix != c.prefix || (got.StatsScope != nil) != c.scope || (rules > 0) != c.rules || formats["destination_app"] != c.app { //nolint:staticcheck // older Envoys have no other field
			t.Errorf("Envoy 1.%d: %v", c.minor, got)
		}
	}
}

// TestTagsOfSides: a server believes the certificate of a client, then its headers, and of its namespace the certificate only. In plain text, and of
// connections without HTTP, there are no headers to believe.
func TestTagsOfSides(t *testing.T) {
	requests := view.Metric{ID: telemetryapi.MetricSelector_REQUEST_COUNT}
	secure, _ := tagsOf(statsOf(t, 0, view.Server, true, requests))
	plain, _ := tagsOf(statsOf(t, 0, view.Server, false, requests))
	client, _ := tagsOf(statsOf(t, 0, view.Client, false, requests))
	for name, want := range map[string][3]string{
		"reporter":                  {"destination", "destination", "source"},
		"source_workload_namespace": {"%FILTER_STATE(pilot.peer.workload_namespace:PLAIN)%", unknown, "%ENVIRONMENT(POD_NAMESPACE)%"},
		"source_app":                {coalesce(`{"command":"FILTER_STATE","param":"pilot.peer.app:PLAIN"},{"command":"DYNAMIC_METADATA","param":"pilot.peer:header:app"}`), unknown, "%ENVIRONMENT(PROXY_APP)%"},
		"source_workload": {
			coalesce(`{"command":"FILTER_STATE","param":"pilot.peer.workload:PLAIN"},{"command":"DYNAMIC_METADATA","param":"pilot.peer:header:workload"},{"command":"DYNAMIC_METADATA","param":"pilot.peer:id"}`),
			unknown, "%ENVIRONMENT(ISTIO_META_WORKLOAD_NAME)%",
		},
		"source_principal":           {"%DOWNSTREAM_PEER_URI_SAN%", "%DOWNSTREAM_PEER_URI_SAN%", "%UPSTREAM_LOCAL_URI_SAN%"},
		"connection_security_policy": {"mutual_tls", "none", unknown},
		"destination_workload":       {"%ENVIRONMENT(ISTIO_META_WORKLOAD_NAME)%", "%ENVIRONMENT(ISTIO_META_WORKLOAD_NAME)%", "%UPSTREAM_METADATA(pilot.peer:workload)%"},
		"destination_service_name":   {"authority", "%METADATA(CLUSTER:pilot.service:service_name)%", "authority"},
	} {
		for i, got := range []string{secure[name], plain[name], client[name]} {
			if got != want[i] && !(want[i] == "authority" && strings.Contains(got, ":authority")) {
				t.Errorf("%s: %q, want %q", name, got, want[i])
			}
		}
	}
}

func coalesce(operators string) string { return `%COALESCE({"operators":[` + operators + `]})%` }

// TestTagsOfConnections: a connection without HTTP has no headers, so only the certificate says who the client is.
func TestTagsOfConnections(t *testing.T) {
	b := builder{Key: Key{Side: view.Server}}
	for _, tag := range b.standardTags(false, true) {
		if f := tag.format(false); strings.Contains(f, "DYNAMIC_METADATA") || tag.name == "source_app" && f != "%FILTER_STATE(pilot.peer.app:PLAIN)%" {
			t.Errorf("%s: %s", tag.name, f)
		}
	}
}

// TestOverriddenTags: a tag may be removed, replaced or added, and one whose expression Envoy cannot evaluate is left out.
func TestOverriddenTags(t *testing.T) {
	formats, _ := tagsOf(statsOf(t, 0, view.Client, false, view.Metric{
		ID: telemetryapi.MetricSelector_REQUEST_COUNT, Removed: []string{"source_app"},
		Tags: []view.MetricTag{{Name: "response_code", Value: "'x'"}, {Name: "port", Value: "string(destination.port)"}, {Name: "wrong", Value: "request.host.split('.')[0]"}},
	}))
	for name, want := range map[string]string{"source_app": "", "response_code": "%CEL('x')%", "port": "%CEL(destination.port)%", "wrong": ""} {
		if formats[name] != want {
			t.Errorf("%s: %q, want %q", name, formats[name], want)
		}
	}
}
