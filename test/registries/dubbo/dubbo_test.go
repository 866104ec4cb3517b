package dubbo

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/testbed"
)

// subsets are the subsets of a host by the parameter of their providers.
const subsets = `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: greeter, namespace: shop}
spec:
  host: %[1]s
  subsets:
  - {name: v1, labels: {stage: v1}}
  - {name: v2, labels: {stage: v2}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: greeter, namespace: shop}
spec:
  hosts: [%[1]s]
  http:
`

// routes are routes for calls: Part and the user jason (in an attachment) to v2, and of the others 20% to v2.
const routes = subsets + `  - match: [{uri: {exact: /com.acme.Greeter/Part}}, {headers: {userId: {exact: jason}}}]
    route: [{destination: {host: %[1]s, subset: v2}}]
  - route:
    - {destination: {host: %[1]s, subset: v1}, weight: 80}
    - {destination: {host: %[1]s, subset: v2}, weight: 20}
`

// checkRoutes checks these routes with many calls.
func (b *bed) checkRoutes(t *testing.T, args ...string) {
	t.Helper()
	with := func(more ...string) []string { return slices.Concat(args, more) }
	b.until(t, "a method to be routed", only("ok v2 Part"), with("-method=Part", "-calls=10")...)
	b.until(t, "an attachment to be routed", only("ok v2 Greet jason"), with("-attach=userId=jason", "-calls=10")...)
	const calls = 500
	got := b.consume(t, with("-calls=500", "-attach=userId=ann")...)
	v1, v2 := got["ok v1 Greet ann"], got["ok v2 Greet ann"]
	t.Logf("%d of %d calls reached v2", v2, calls)
	if v1+v2 != calls || v2 < calls*13/100 || v2 > calls*27/100 {
		t.Errorf("got %v, want 80%% from v1 and 20%% from v2", got)
	}
}

// both reports whether both providers answered.
func both(got map[string]int) bool {
	return len(got) == 2 && got["ok v1 Greet"] > 0 && got["ok v2 Greet"] > 0
}

// TestDubbo: consumers that find providers in ZooKeeper call them in the protocol dubbo through Envoy, which routes the calls by method,
// attachments and weights, and by group and version.
func TestDubbo(t *testing.T) {
	b := enter(t)
	b.provide(t, "v1", "dubbo", 11)
	b.provide(t, "v2", "dubbo", 12)
	b.provide(t, "blue", "dubbo", 13, "-group=blue", "-version=2.0.0")
	find := "-zookeeper=" + b.zookeeper.Address()
	b.until(t, "calls to both providers", both, find, "-calls=20")
	if n, err := b.agent.Sum(t.Context(), `dubbo\..*\.request_twoway`); err != nil || n == 0 {
		t.Errorf("Envoy counted %d calls: %v", n, err)
	}
	b.write(t, fmt.Sprintf(routes, "com.acme.greeter.dubbo"))
	b.checkRoutes(t, find)
	b.until(t, "another group and version", only("ok blue Greet"), find, "-group=blue", "-version=2.0.0", "-calls=10")

	// The connection leads to any provider, and the interface, group and version say which one is called.
	b.until(t, "the group at the address of another provider", only("ok blue Greet"), "-url=dubbo://10.78.0.11:20880", "-group=blue", "-version=2.0.0", "-calls=10")
	got := b.consume(t, "-url=dubbo://10.78.0.11:20880", "-version=9.9.9")
	if len(got) != 1 || !strings.Contains(fmt.Sprint(got), "error") {
		t.Errorf("a version that nobody serves: %v", got)
	}
}

// TestDubboLosses: a rule that dubbo_proxy cannot follow has a Problem, and calls are routed all the same.
func TestDubboLosses(t *testing.T) {
	b := enter(t)
	b.provide(t, "v1", "dubbo", 11)
	b.provide(t, "v2", "dubbo", 12)
	find := "-zookeeper=" + b.zookeeper.Address()
	b.write(t, fmt.Sprintf(subsets+"  - {route: [{destination: {host: %[1]s, subset: v2}}], timeout: 1s, retries: {attempts: 2}}\n", "com.acme.greeter.dubbo"))
	b.until(t, "the route of the rule", only("ok v2 Greet"), find, "-calls=10")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := testbed.Until(ctx, "problems", func(ctx context.Context) error {
		list, err := b.plane.Problems(ctx)
		text := strings.Join(list, "\n")
		if err == nil && (!strings.Contains(text, "http[0].timeout") || !strings.Contains(text, "http[0].retries")) {
			err = fmt.Errorf("the problems are\n%s", text)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestTriple: consumers call the host of an interface in Triple, and VirtualServices apply as for gRPC.
func TestTriple(t *testing.T) {
	b := enter(t)
	b.provide(t, "v1", "tri", 14, "-group=g")
	b.provide(t, "v2", "tri", 15, "-group=g")
	const host = "com.acme.greeter-g.dubbo"
	args := func(more ...string) []string {
		return append([]string{"-protocol=tri", "-group=g", "-url=tri://com.acme.greeter-g.dubbo:50051"}, more...)
	}
	b.until(t, "calls to both providers", both, args("-calls=20")...)
	b.write(t, fmt.Sprintf(routes, host))
	b.checkRoutes(t, args()...)

	failed := func(reason string) func(map[string]int) bool {
		return func(got map[string]int) bool { return len(got) == 1 && strings.Contains(fmt.Sprint(got), reason) }
	}
	rule := func(text string) { b.write(t, fmt.Sprintf(subsets+text, host)) }
	rule("  - {route: [{destination: {host: %[1]s}}], timeout: 0.2s, retries: {attempts: 0}}\n")
	b.until(t, "a timeout", failed("upstream request timeout"), args("-argument=slow:v1,v2")...)
	rule("  - {route: [{destination: {host: %[1]s}}], fault: {abort: {percentage: {value: 100}, grpcStatus: UNAVAILABLE}}}\n")
	b.until(t, "a fault", failed("fault filter abort"), args()...)
	rule("  - {route: [{destination: {host: %[1]s, subset: v1}}], mirror: {host: %[1]s, subset: v2}}\n")
	b.until(t, "the route of the rule", only("ok v1 Greet"), args("-calls=10")...)
	b.until(t, "mirrored calls", func(map[string]int) bool {
		text, err := os.ReadFile(b.log("v2"))
		return err == nil && strings.Contains(string(text), "called Greet mirrored")
	}, args("-argument=mirrored")...)

	// A provider that is registered and does not answer.
	b.node(t, "tri://10.78.0.16:50051/com.acme.Greeter?group=g&interface=com.acme.Greeter&stage=v1")
	rule("  - {route: [{destination: {host: %[1]s}}], retries: {attempts: 0}}\n")
	b.until(t, "calls without retries", func(got map[string]int) bool { return len(got) > 2 }, args("-calls=30")...)
	rule("  - {route: [{destination: {host: %[1]s}}], retries: {attempts: 5, retryOn: connect-failure}}\n")
	b.until(t, "retries", both, args("-calls=30")...)
}
