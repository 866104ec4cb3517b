package agent

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/pilotmesh/pilot/test/testbed"
)

// flushing is an EnvoyFilter that changes how often Envoy flushes statistics.
const flushing = `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: flush, namespace: shop}
spec:
  workloadSelector: {labels: {app: app}}
  configPatches:
  - applyTo: BOOTSTRAP
    patch: {operation: MERGE, value: %s}
`

// patchBootstrap writes an EnvoyFilter with a patch of the bootstrap.
func (b *bed) patchBootstrap(value string) {
	b.Helper()
	if _, err := b.Write("flush.yaml", fmt.Sprintf(flushing, value)); err != nil {
		b.Fatal(err)
	}
}

// flushes wants Envoy's bootstrap to have an interval.
func (b *bed) flushes(a *testbed.Agent, interval string) {
	b.Helper()
	b.await("the interval "+interval, func(ctx context.Context) error {
		page, err := a.Admin(ctx, "/config_dump?mask=bootstrap.stats_flush_interval")
		if err == nil && !strings.Contains(page, interval) {
			err = fmt.Errorf("there is\n%s", page)
		}
		return err
	})
}

// TestPatchedBootstrap: Envoy starts with what EnvoyFilters add to the bootstrap. A change is applied by a hot restart. Wrong patches are left out with
// a Problem, whether the control plane or Envoy finds the mistake.
func TestPatchedBootstrap(t *testing.T) {
	b := newBed(t)
	b.patchBootstrap("{stats_flush_interval: 7s}")
	b.serve()
	o := options()
	o.Env = []string{"BOOTSTRAP_XDS_AGENT=true"}
	a := b.restarts(o, testbed.Node{})
	b.flushes(a.Agent, `"7s"`)
	plain := options()
	plain.Env = []string{`ISTIO_METAJSON_LABELS={"app":"app"}`}
	other := b.ready(plain, testbed.Node{Name: "other", IP: "127.1.0.2"})
	b.reported("patch-not-asked", "other.shop")
	if page, err := other.Admin(t.Context(), "/config_dump"); err != nil || strings.Contains(page, `"stats_flush_interval": "7s"`) {
		t.Errorf("the Envoy of an agent that does not ask is patched, or %v", err)
	}

	b.patchBootstrap("{stats_flush_interval: 8s}")
	a.complete(1)
	b.flushes(a.Agent, `"8s"`)

	b.patchBootstrap("{stats_flush_interval: 9s, bootstrap_extensions: [{name: nothing, typed_config: {\"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]}")
	b.reported("proxy-rejected", "nothing")
	b.flushes(a.Agent, `"8s"`)
	b.patchBootstrap("{stats_flush_interval: 0s}")
	b.reported("patch-left-out", "StatsFlushInterval")
}

// TestPatchThatEnvoyRefuses: an Envoy whose patched bootstrap does not pass its own check starts with the one that is not patched.
func TestPatchThatEnvoyRefuses(t *testing.T) {
	b := newBed(t)
	b.patchBootstrap("{stats_flush_interval: 7s, bootstrap_extensions: [{name: nothing, typed_config: {\"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]}")
	b.serve()
	o := options()
	o.Env = []string{`PROXY_CONFIG={"proxyMetadata": {"BOOTSTRAP_XDS_AGENT": "true"}}`}
	a := b.ready(o, testbed.Node{})
	b.logs(a, "what EnvoyFilters add to the bootstrap is refused", 1)
	b.reported("proxy-rejected", "nothing")
	if page, err := a.Admin(t.Context(), "/config_dump"); err != nil || strings.Contains(page, `"stats_flush_interval": "7s"`) {
		t.Errorf("Envoy is patched, or %v", err)
	}
}

// TestStopBeforePatches: an agent that waits for patches of a control plane that does not run ends at once when it is asked to, and has not started
// Envoy.
func TestStopBeforePatches(t *testing.T) {
	b := newBed(t)
	o := options()
	o.Env = []string{"BOOTSTRAP_XDS_AGENT=true"}
	a := b.agent(o, testbed.Node{})
	b.says(a, "starting the agent of a proxy")
	if err := a.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	b.ends(a, 0)
	if pids, err := a.EnvoyPIDs(); err != nil || len(pids) > 0 {
		t.Errorf("the agent has started the Envoys %v; %v", pids, err)
	}
}

// reported waits for a problem with a code that says something.
func (b *bed) reported(code, says string) {
	b.Helper()
	b.await("the problem "+code, func(ctx context.Context) error {
		page, err := b.Get(ctx, "/debug/problemz")
		if err == nil && (!strings.Contains(page, code) || !strings.Contains(page, says)) {
			err = fmt.Errorf("there is\n%s", page)
		}
		return err
	})
}
