package kubesource

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/ads/server"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/controller/addresses"
	pilotcluster "github.com/pilotmesh/pilot/internal/controller/cluster"
	"github.com/pilotmesh/pilot/internal/controller/entries"
	"github.com/pilotmesh/pilot/internal/controller/status"
	"github.com/pilotmesh/pilot/internal/controller/untaint"
	"github.com/pilotmesh/pilot/internal/engine/query"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/source"
	kubesource "github.com/pilotmesh/pilot/internal/source/kube"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/xds/class"
)

// replica is a control plane that reads the cluster and can write statuses.
type replica struct {
	*place
	account *rest.Config
	loop    *loop.Loop
	writer  *status.Writer
	// addresses writes allocated addresses.
	addresses *addresses.Writer
	// taints removes the taint of nodes with a ready agent of the CNI plugin.
	taints *untaint.Writer
	log    *slog.Logger
	events atomic.Int64
	// register registers proxies. Identity names the replica in the entries of its proxies.
	register *entries.Registrar
	identity string
}

// replica runs a control plane until the end of the test, with the account of the control plane. It writes no statuses before the test runs its
// writer.
func (p *place) replica() *replica {
	p.Helper()
	account := p.account()
	r := &replica{place: p, account: account, log: slog.New(slog.NewTextHandler(p.Output(), nil))}
	src, err := kubesource.New(kubesource.Options{Config: account, Cluster: clusterID, Namespace: p.namespace, Configuration: true, Log: r.log})
	p.must(err)
	tables := state.New(state.Options{ClusterID: clusterID, Sources: []string{src.Name()}, ControlNamespace: p.namespace})
	graph := query.New(tables.DB, query.Options{Strict: true})
	r.loop = loop.New(tables, graph, class.Define(graph, tables), loop.Settings{Sources: []string{src.Name()}, Log: r.log})
	target, err := pilotcluster.NewStatuses(account)
	p.must(err)
	r.writer = status.New(status.Options{Mesh: r.loop, Streams: server.New(r.loop, server.Options{}), Target: target, Log: r.log})
	registered, err := pilotcluster.NewEntries(account)
	p.must(err)
	r.identity = fmt.Sprintf("%s-%d", p.namespace, replicas.Add(1))
	r.register = entries.New(entries.Options{
		Mesh: r.loop, Target: registered, Sink: r.loop, Self: r.identity, Grace: 2 * time.Second, Orphan: 3 * time.Second, Log: r.log,
	})
	r.addresses = addresses.New(r.loop, target, r.log)
	nodes, err := pilotcluster.NewNodes(account)
	p.must(err)
	r.taints = untaint.New(r.loop, p.namespace, nodes, r.log)
	p.background(func(ctx context.Context) { _ = r.loop.Run(ctx) })
	p.background(func(ctx context.Context) { _ = src.Run(ctx, counting{r.loop, &r.events}) })
	select {
	case <-r.loop.Synced():
	case <-p.Context().Done():
		p.Fatal("the cluster is not listed")
	}
	return r
}

// replicas is the number of replicas that tests have started.
var replicas atomic.Int64

// counting counts the events of objects of Istio's kinds.
type counting struct {
	source.Sink
	events *atomic.Int64
}

func (c counting) Apply(b source.Batch) {
	for _, e := range b.Events {
		if e.Object != nil {
			c.events.Add(1)
		}
	}
	c.Sink.Apply(b)
}

// background runs fn until the end of the test, or until the returned function is called.
func (p *place) background(fn func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { fn(ctx) })
	stop = func() { cancel(); running.Wait() }
	p.Cleanup(stop)
	return stop
}

// lease is the lease that the account of the control plane may hold.
const lease = "pilot-discovery-leader"

// lead competes for the writing of statuses.
func (r *replica) lead(identity string) (stop func()) {
	return r.background(func(ctx context.Context) {
		work := func(ctx context.Context) {
			var running sync.WaitGroup
			running.Go(func() { r.addresses.Run(ctx) })
			r.writer.Run(ctx)
			running.Wait()
		}
		err := pilotcluster.Lead(ctx, r.account, pilotcluster.Lease{Namespace: r.namespace, Name: lease, Identity: identity, Log: r.log}, work)
		if err != nil {
			r.Error(err)
		}
	})
}

// condition waits for a condition of an object of the test, which is a VirtualService if no kind is named.
func (p *place) condition(name, want string) {
	p.Helper()
	if !strings.Contains(name, "/") {
		name = "virtualservice/" + name
	}
	p.kubectl("", "wait", "--for=condition="+want, name, "--timeout", patience.String())
}

// knows waits until the replica has read a ServiceEntry of the test.
func (r *replica) knows(name string) {
	r.Helper()
	r.until("the replica reads "+name, func() bool {
		found := make(chan bool, 1)
		r.must(r.loop.Inspect(r.Context(), func(v *loop.View) {
			_, ok := v.Tables.Objects.Peek(r.config(api.KindServiceEntry, name))
			found <- ok
		}))
		return <-found
	})
}

const (
	rules = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: good}
spec: {hosts: [web], http: [{route: [{destination: {host: web}}]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: odd}
spec: {hosts: [other], http: [{route: [{destination: {host: nowhere}}]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: broken}
spec: {hosts: [web.bro ken], http: [{route: [{destination: {host: web}}]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: second}
spec: {hosts: [web], http: [{route: [{destination: {host: web}}]}]}
`
	repaired = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: broken}
spec: {hosts: [web.repaired], http: [{route: [{destination: {host: web}}]}]}
`
)

// TestStatus: users see on an object whether it is accepted, its errors, and the generation that these describe. The control plane's own writes cause
// no work for it, and conditions of others stay.
func TestStatus(t *testing.T) {
	p := on(t)
	p.definitions()
	p.apply(shop)
	p.apply(rules)
	p.kubectl("", "patch", "virtualservice/good", "--subresource=status", "--type=merge", "-p", `{"status":{"conditions":[{"type":"Theirs","status":"True"}]}}`)
	r := p.replica()
	r.background(r.writer.Run)
	p.condition("good", "Accepted")
	p.condition("good", "Effective")
	p.condition("good", "Live")
	p.condition("good", "Theirs")
	p.condition("odd", "Accepted")
	p.condition("odd", "Effective=false")
	p.condition("broken", "Accepted=false")
	p.condition("broken", "Live=false")
	p.condition("second", "Effective=false")
	if got := p.output("get", "virtualservice/second", "-o", `jsonpath={.status.conditions[?(@.type=="Effective")].reason}`); got != "Conflict" {
		t.Errorf("a VirtualService of a host that another one has: %s, want Conflict", got)
	}
	before := r.events.Load()
	p.apply(repaired)
	p.condition("broken", "Accepted")
	if n := r.events.Load() - before; n != 1 {
		t.Errorf("%d events for one edit: writing statuses must be none", n)
	}
	if got := p.output("get", "virtualservice/broken", "-o", "jsonpath={.status.observedGeneration}/{.metadata.generation}"); got != "2/2" {
		t.Errorf("observed and present generation %s", got)
	}
}

// TestLeader: of two replicas one writes, and the other one takes over when it ends.
func TestLeader(t *testing.T) {
	p := on(t)
	p.definitions()
	p.apply(shop)
	one, two := p.replica(), p.replica()
	stop := one.lead("one")
	p.until("the first leads", p.holder("one"))
	two.lead("two")
	p.apply(rules)
	p.condition("good", "Accepted")
	stop()
	p.until("the second leads", p.holder("two"))
	p.apply(repaired)
	p.condition("broken", "Accepted")
}

// holder reports whether a replica holds the lease.
func (p *place) holder(identity string) func() bool {
	return func() bool {
		held, err := p.api.CoordinationV1().Leases(p.namespace).Get(p.Context(), lease, meta.GetOptions{})
		return err == nil && held.Spec.HolderIdentity != nil && *held.Spec.HolderIdentity == identity
	}
}
