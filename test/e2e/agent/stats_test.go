package agent

import (
	"context"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/testbed"
)

// TestStatistics: Envoy keeps the statistics that its settings select, and those by which the agent sees that it is ready and that
// connections are left.
func TestStatistics(t *testing.T) {
	b := newBed(t)
	b.serve()
	o := options()
	o.Env = []string{"EXIT_ON_ZERO_ACTIVE_CONNECTIONS=true", "MINIMUM_DRAIN_DURATION=1ms",
		"PROXY_CONFIG={proxyStatsMatcher: {inclusionRegexps: ['^cluster\\.outbound.*upstream_rq_200$']}}"}
	a := b.ready(o, testbed.Node{})
	b.answers()
	const of = `^cluster\.outbound\|.*web\.shop.*;\.upstream_`
	for match, want := range map[string]bool{
		of + `rq_200$`: true, of + `rq_total$`: false, of + `cx_total$`: false, `^http\..*downstream_rq_total$`: false, `^listener_manager\.listener_added$`: true,
		`^listener\..*\.downstream_cx_active$`: true, `^cluster\.xds-grpc\.upstream_cx_total$`: true,
	} {
		found, err := a.Stats(t.Context(), match)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) > 0 != want {
			t.Errorf("%s: %v, want any: %v", match, found, want)
		}
	}
	release := b.backend.holdBack()
	answer := b.under()
	if err := a.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// Twice the time between two looks at the connections, in which it must not end.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if code, err := a.Wait(ctx); err == nil {
		t.Fatalf("it ended with %d while a request was under way", code)
	}
	release()
	if code, err := answer(); code != http.StatusOK || err != nil {
		t.Errorf("the request under way: %d, %v", code, err)
	}
	b.client.CloseIdleConnections()
	b.ends(a, 0)
}
