package admin

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

func subscribeListeners() *discoveryv3.DeltaDiscoveryRequest {
	return &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.Listener.URL()}
}

// TestMetrics follows a proxy and checks the metrics that Prometheus would scrape.
func TestMetrics(t *testing.T) {
	w := newWorld(t, shop, api.Problem{Severity: api.Error, Code: "syntax", Reason: "broken"})
	for series, want := range map[string]string{
		`pilot_info{version="1.2.3"}`:                              "1",
		`istio_build{component="pilot",tag="1.2.3"}`:               "1",
		`pilot_inbound_updates{type="svc"}`:                        "2",
		`pilot_inbound_updates{type="eds"}`:                        "1",
		`pilot_inbound_updates{type="config"}`:                     "1",
		`pilot_k8s_cfg_events{event="update",type="ServiceEntry"}`: "2",
		`pilot_problem_codes{code="syntax"}`:                       "1",
		`pilot_services`:                                           "2",
		`pilot_virt_services`:                                      "0",
		`pilot_objects{kind="ServiceEntry"}`:                       "2",
		`pilot_problems{level="error"}`:                            "1",
		`pilot_problems{level="warning"}`:                          "0",
		`pilot_revision`:                                           "1",
		`pilot_commits_total`:                                      "1",
		`pilot_commit_duration_seconds_count`:                      "1",
		`pilot_cell_faults`:                                        "0",
		`pilot_xds_pushes{type="cds"}`:                             "0",
		`pilot_total_xds_rejects{type="lds"}`:                      "0",
		`pilot_xds_write_timeout`:                                  "0",
		`pilot_xds{version="1.31.0"}`:                              "none",
		`pilot_push_triggers{type="service"}`:                      "none",
		`pilot_xds_lds_reject{err="rejected",node="a.shop"}`:       "none",
	} {
		if got := w.metric(series); got != want {
			t.Errorf("%s = %s, want %s", series, got, want)
		}
	}
	c, response := w.connect("a.shop")
	c.answer(response, "")
	c.send(subscribeListeners())
	c.answer(c.receive(), "no")
	eventually(w, "/debug/syncz", func(l []Sync) bool { return l[0].Types["LDS"].State == Rejected && l[0].Types["CDS"].State == Synced })
	for series, want := range map[string]string{
		`pilot_xds{version="1.31.0"}`:                        "1",
		`pilot_xds_pushes{type="cds"}`:                       "1",
		`pilot_xds_acks_total{type="cds"}`:                   "1",
		`pilot_total_xds_rejects{type="lds"}`:                "1",
		`pilot_xds_lds_reject{err="rejected",node="a.shop"}`: "1",
		`pilot_proxy_convergence_time_count`:                 "1",
		`pilot_xds_push_time_count{type="cds"}`:              "1",
		`pilot_xds_config_size_bytes_count{type="type.googleapis.com/envoy.config.cluster.v3.Cluster"}`: "1",
	} {
		if got := w.metric(series); got != want {
			t.Errorf("%s = %s, want %s", series, got, want)
		}
	}
	if got := w.metric(`pilot_xds_sent_bytes_total{type="cds"}`); got == "0" || got == "none" {
		t.Errorf("bytes sent: %s", got)
	}
}

// TestTriggers checks which triggers a commit counts.
func TestTriggers(t *testing.T) {
	m := NewMetrics(run.Build{})
	m.pending.Or(uint32(serviceTrigger | configTrigger))
	m.Commit(loop.Commit{Classes: 2})
	m.Commit(loop.Commit{Classes: 1})
	m.pending.Or(uint32(endpointTrigger))
	m.Commit(loop.Commit{}) // changed nothing for anybody
	for name, want := range map[string]float64{"service": 1, "config": 1, "proxy": 1, "endpoint": 0, "global": 0} {
		if got := testutil.ToFloat64(m.triggers.WithLabelValues(name)); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// busy is a mesh that has no time.
type busy struct{}

func (busy) Inspect(context.Context, func(*loop.View)) error { return context.DeadlineExceeded }

// TestBusy: pages and metrics that do not need the loop work while it is busy, and the others return a reason.
func TestBusy(t *testing.T) {
	w := newWorld(t, shop)
	w.options.Mesh = busy{}
	if code, body := w.ask(here, "/debug/configz"); code != 503 {
		t.Errorf("%d %s", code, body)
	}
	if code, _ := w.ask(here, "/ready"); code != 200 {
		t.Errorf("/ready: %d", code)
	}
	s := scrape{mesh: w.loop, streams: w.server, board: NewBoard(nil), desc: describeScrape()}
	if s.sizes().services != 2 {
		t.Error("the first scrape saw no services")
	}
	s.mesh = busy{}
	if s.sizes().services != 2 {
		t.Error("a scrape that comes at a bad time forgets what the last one saw")
	}
	if _, err := loop.Look(t.Context(), busy{}, func(*loop.View) int { return 1 }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// TestNames: linting finds misspelt units and missing help.
func TestNames(t *testing.T) {
	w := newWorld(t, shop)
	problems, err := testutil.GatherAndLint(w.metrics.registry)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{ // names that others made, and that dashboards know
		"pilot_inbound_updates": true, "pilot_push_triggers": true, "pilot_total_xds_rejects": true, "pilot_xds_pushes": true,
		"pilot_xds_expired_nonce": true, "pilot_xds_write_timeout": true, "pilot_total_xds_internal_errors": true,
		"pilot_k8s_cfg_events": true, "pilot_k8s_reg_events": true,
	}
	for _, p := range problems {
		if !known[p.Metric] {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}
