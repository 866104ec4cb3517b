package kubesource

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/mesh"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/security/identity"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// machines is a WorkloadGroup with a probe, and a service that selects its workloads.
const machines = `
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: vm}
spec:
  metadata: {labels: {app: shop}, annotations: {team: blue}}
  template: {serviceAccount: shop, weight: 3}
  probe: {httpGet: {port: 8080, path: /healthy}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: shop}
spec:
  hosts: [shop.test]
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  workloadSelector: {labels: {app: shop}}
`

// deaf is a stream that ignores all messages.
type deaf struct{}

func (deaf) Update(*resource.State)   {}
func (deaf) Answer([]protocol.Answer) {}

// machine connects the proxy of a virtual machine to a replica, until it closes the connection.
func (r *replica) machine(address, group, account string) *loop.Connection {
	r.Helper()
	m, err := structpb.NewStruct(map[string]any{
		"AUTO_REGISTER_GROUP": group, "NETWORK": "net1", "SERVICE_ACCOUNT": account, "LABELS": map[string]any{"version": "v2"},
	})
	r.must(err)
	p, err := proxy.Parse(proxy.Node{ID: "sidecar~" + address + "~machine." + r.namespace + "~" + r.namespace + ".svc.cluster.local", Metadata: m})
	r.must(err)
	p.Identity = identity.Identity{TrustDomain: "cluster.local", Namespace: r.namespace, ServiceAccount: account}
	p.Connected = time.Now().UTC()
	c, err := r.loop.Attach(p, deaf{})
	r.must(err)
	return c
}

// entry returns a field of a WorkloadEntry; empty if it has none, or if there is no such entry.
func (p *place) entry(name, field string) string {
	p.Helper()
	return p.output("get", "--ignore-not-found", "workloadentry/"+name, "-o", "jsonpath={"+field+"}")
}

const (
	controller   = `.metadata.annotations.istio\.io/workloadController`
	disconnected = `.metadata.annotations.istio\.io/disconnectedAt`
)

// registers runs the registration of a replica.
func (r *replica) registers() (stop func()) {
	return r.background(func(ctx context.Context) { r.register.Run(ctx) })
}

func (p *place) controlledBy(name string, r *replica) func() bool {
	return func() bool { return p.entry(name, controller) == r.identity && p.entry(name, disconnected) == "" }
}

// TestRegistration: a proxy that asks for it becomes a workload, which serves when its health is reported; another replica adopts it when
// the proxy connects there; it goes some time after the proxy has left.
func TestRegistration(t *testing.T) {
	p := on(t)
	p.definitions()
	p.apply(machines)
	one, two := p.replica(), p.replica()
	one.registers()
	two.registers()
	const name = "vm-10.1.1.1-net1"
	first := one.machine("10.1.1.1", "vm", "shop")
	p.until("the entry", p.controlledBy(name, one))
	for field, want := range map[string]string{
		".spec.address": "10.1.1.1", ".spec.network": "net1", ".spec.weight": "3", ".spec.serviceAccount": "shop", ".spec.labels.app": "shop",
		".metadata.labels.version": "v2", ".metadata.annotations.team": "blue", ".metadata.annotations.istio\\.io/autoRegistrationGroup": "vm",
		".metadata.ownerReferences[0].name": "vm", ".metadata.annotations.proxy\\.istio\\.io/health-checks-enabled": "true",
	} {
		if got := p.entry(name, field); got != want {
			t.Errorf("%s is %q, want %q", field, got, want)
		}
	}

	if got := two.healthOf(name); got != mesh.Unusable {
		t.Errorf("before the first report the endpoint has health %d", got)
	}
	first.Health(true, "")
	p.condition("workloadentry/"+name, "Healthy")
	p.until("the endpoint is used", func() bool { return two.healthOf(name) != mesh.Unusable })
	first.Health(false, "connection refused")
	p.condition("workloadentry/"+name, "Healthy=false")
	p.until("the endpoint is not used", func() bool { return two.healthOf(name) == mesh.Unusable })
	if got := p.entry(name, ".status.conditions[?(@.type=='Healthy')].message"); got != "connection refused" {
		t.Errorf("the message is %q", got)
	}

	uid := p.entry(name, ".metadata.uid")
	second := two.machine("10.1.1.1", "vm", "shop")
	first.Close()
	p.until("the second replica adopts it", p.controlledBy(name, two))
	second.Health(true, "")
	p.condition("workloadentry/"+name, "Healthy")
	if got := p.entry(name, ".metadata.uid"); got != uid {
		t.Error("the entry was made anew")
	}
	second.Close()
	p.until("the entry goes", func() bool { return p.entry(name, ".metadata.name") == "" })
}

// healthOf returns the health of a WorkloadEntry's endpoint, as the replica sends it to proxies.
func (r *replica) healthOf(name string) mesh.Health {
	r.Helper()
	found := make(chan mesh.Health, 1)
	r.must(r.loop.Inspect(r.Context(), func(v *loop.View) {
		e, ok := v.Tables.Workloads.Peek(r.config(api.KindWorkloadEntry, name))
		if !ok {
			e.Health = mesh.Unusable
		}
		found <- e.Health
	}))
	return <-found
}

// TestRegistrationRefused: a proxy without a group, with another service account than its group, or whose entry another writer has made is not
// registered, and there is a Problem of the group that says why. It goes when the reason goes.
func TestRegistrationRefused(t *testing.T) {
	p := on(t)
	p.definitions()
	r := p.replica()
	r.registers()
	r.machine("10.1.1.1", "vm", "shop")
	r.problem("WorkloadGroup " + p.namespace + "/vm: proxy machine." + p.namespace + " asks to be registered as WorkloadEntry " + p.namespace + "/vm-10.1.1.1-net1 of the group, and is not: there is no such WorkloadGroup")
	r.machine("fd00::2", "vm", "other")
	p.apply(strings.Replace(`
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: vm-10.1.1.3-net1}
spec: {address: 10.1.1.3}
---`, "\n", "", 1) + machines)
	p.until("the entry, when the group is there", p.controlledBy("vm-10.1.1.1-net1", r))
	r.problem(`vm-fd00--2-net1 of the group, and is not: the proxy has the service account "other" and the template of the group "shop"`)
	r.machine("10.1.1.3", "vm", "shop")
	r.problem("vm-10.1.1.3-net1 cannot be written: there is a WorkloadEntry of this name that no control plane has made")
	if got := p.entry("vm-10.1.1.3-net1", controller); got != "" {
		t.Errorf("an entry of somebody else was taken by %q", got)
	}
	p.kubectl("", "delete", "workloadentry/vm-10.1.1.3-net1")
	p.until("the entry, when that of somebody else is gone", p.controlledBy("vm-10.1.1.3-net1", r))
	r.noProblem("vm-10.1.1.3-net1 cannot be written")
}

// TestRegistrationForbidden: without the permission there is a Problem that names the rule.
func TestRegistrationForbidden(t *testing.T) {
	p := on(t)
	p.definitions()
	p.apply(machines)
	r := p.replica()
	role := "clusterrole/pilot-discovery-" + p.namespace
	rules := strings.Fields(p.output("get", role, "-o", `jsonpath={range .rules[*]}{.resources[0]},{.verbs[0]}{"\n"}{end}`))
	p.kubectl("", "patch", role, "--type=json", "-p", fmt.Sprintf(`[{"op":"remove","path":"/rules/%d"}]`, slices.Index(rules, "workloadentries,create")))
	r.registers()
	r.machine("10.1.1.1", "vm", "shop")
	r.problem("add the rule {apiGroups: [networking.istio.io], resources: [workloadentries], verbs: [create]} to the ClusterRole")
}

// TestOrphans: the leader removes the entries of a replica that is no more, and keeps the entries of a replica that lives. The entries that a replica left behind
// when it was restarted go, too.
func TestOrphans(t *testing.T) {
	p := on(t)
	p.definitions()
	p.apply(machines)
	gone, living, r := p.replica(), p.replica(), p.replica()
	stop := gone.registers()
	living.registers()
	r.registers()
	for _, one := range []*replica{living, r} { // replicas are known by their pods
		p.pod(one.identity)
	}
	gone.machine("10.1.1.1", "vm", "shop")
	living.machine("10.1.1.2", "vm", "shop")
	p.until("both entries", func() bool {
		return p.controlledBy("vm-10.1.1.1-net1", gone)() && p.controlledBy("vm-10.1.1.2-net1", living)()
	})
	stop()
	r.background(func(ctx context.Context) { r.register.Lead(ctx) })
	p.until("the entry of the gone replica is removed", func() bool { return p.entry("vm-10.1.1.1-net1", ".metadata.name") == "" })
	if !p.controlledBy("vm-10.1.1.2-net1", living)() {
		t.Error("the entry of a living replica was touched")
	}
}

// pod makes a pod that stays pending.
func (p *place) pod(name string) {
	p.Helper()
	_, err := p.api.CoreV1().Pods(p.namespace).Create(p.Context(), &core.Pod{
		ObjectMeta: meta.ObjectMeta{Name: name}, Spec: core.PodSpec{Containers: []core.Container{{Name: "c", Image: "none"}}},
	}, meta.CreateOptions{})
	p.must(err)
}

// has returns a problem with a text that the replica has; empty if there is none.
func (r *replica) has(text string) string {
	r.Helper()
	found := make(chan string, 1)
	r.must(r.loop.Inspect(r.Context(), func(v *loop.View) {
		for _, p := range v.Problems.All() {
			if strings.Contains(p.String(), text) {
				found <- p.String()
				return
			}
		}
		found <- ""
	}))
	return <-found
}

func (r *replica) problem(text string) {
	r.Helper()
	r.until("a problem: "+text, func() bool { return r.has(text) != "" })
}

func (r *replica) noProblem(text string) {
	r.Helper()
	r.until("no problem: "+text, func() bool {
		found := r.has(text)
		if found != "" {
			r.Log("still there: ", found)
		}
		return found == ""
	})
}
