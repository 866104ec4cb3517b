package traffic

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spf13/cobra"

	"github.com/pilotmesh/pilot/internal/admin"
)

// growing is an agent whose proxy has served ten requests more at each reading.
func growing(t *testing.T) string {
	t.Helper()
	var served atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "# TYPE istio_requests_total counter\nistio_requests_total{reporter=\"source\",source_workload=\"shop\",source_workload_namespace=\"store\","+
			"destination_workload=\"reviews\",destination_workload_namespace=\"store\",response_code=\"200\"} %[1]d\n"+
			"# TYPE pilot_agent_metrics_dropped_total counter\npilot_agent_metrics_dropped_total{type=\"counter\"} %[1]d\n", served.Add(10))
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// TestFlow: both commands show what happened between two readings, in each form, and an invalid command line has an error with the remedy.
func TestFlow(t *testing.T) {
	agent := growing(t)
	for _, c := range []struct{ line, want, fails string }{
		{"top --interval 100ms AGENT", "reviews.store", ""}, {"top --edges --interval 100ms AGENT", "shop.store", ""},
		{"top --interval 100ms AGENT", "did not record 10 values", ""},
		{"top --interval 100ms -o json AGENT", `"requests_per_second"`, ""}, {"top --interval 100ms -n other AGENT", "No traffic", ""},
		{"graph --interval 100ms AGENT", "└─ reviews.store", ""}, {"graph --interval 100ms -o svg AGENT", "</svg>", ""}, {"graph --interval 100ms -o dot AGENT", "digraph", ""},
		{"top --interval 1ms AGENT", "", "write 100ms or more"}, {"graph -o png AGENT", "", "write text, dot, svg, json or yaml"},
		{"top --prometheus http://p:9090 AGENT", "", "leave out one of them"}, {"top --interval 100ms 127.0.0.1:1", "", "no agent answers"},
		{"top --address 127.0.0.1:1", "", "is it running"},
	} {
		command := &cobra.Command{Use: "pilotctl", SilenceUsage: true, SilenceErrors: true}
		command.AddCommand(TopCommand(), GraphCommand())
		var out, problems strings.Builder
		command.SetOut(&out)
		command.SetErr(&problems)
		command.SetArgs(strings.Fields(strings.ReplaceAll(c.line, "AGENT", agent)))
		err := command.ExecuteContext(t.Context())
		switch {
		case c.fails == "" && (err != nil || !strings.Contains(out.String(), c.want)):
			t.Errorf("%s: %v\n%s", c.line, err, out.String())
		case c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)):
			t.Errorf("%s: %v, want %q", c.line, err, c.fails)
		}
	}
}

// TestAgentsOf: each proxy's agent counts once, whatever the number of its streams, and a node id without an address is left out.
func TestAgentsOf(t *testing.T) {
	got := agentsOf([]admin.Sync{
		{Connection: "sidecar~10.1.0.1~web-1.shop~shop.svc.cluster.local-7"}, {Connection: "sidecar~10.1.0.1~web-1.shop~shop.svc.cluster.local-9"},
		{Connection: "sidecar~fd00::1~api-1.bank~bank.svc.cluster.local-8"}, {Connection: "odd"}, {Connection: "sidecar~web~x~y-1"},
	}, 15020)
	if want := "10.1.0.1:15020 [fd00::1]:15020"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}
