package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os/exec"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"sigs.k8s.io/knftables"
)

// Options say what belongs to the cluster.
type Options struct {
	Client  kubernetes.Interface
	Table   string         // nftables table of family inet, made and removed by Run
	Devices string         // what the names of the cluster's network devices begin with
	Nodes   []netip.Addr   // where NodePorts are
	Virtual []netip.Prefix // service and LoadBalancer addresses: what no service has there is refused
	Pools   []netip.Prefix // LoadBalancer addresses, at most one range per family
	DNS     netip.AddrPort // where the DNS server listens, UDP and TCP
	Domain  string         // of the cluster
	Log     *slog.Logger
}

// Network keeps services of one cluster working.
type Network struct {
	o         Options
	factory   informers.SharedInformerFactory
	services  corelisters.ServiceLister
	endpoints *endpoints
	wake      chan struct{} // of capacity 1: there is something to do
	synced    chan struct{} // closed when the first state is in force
	current   *ruleset
	tables    knftables.Interface // set by Run
}

// New prepares a network; Run starts it.
func New(o Options) *Network {
	n := &Network{o: o, wake: make(chan struct{}, 1), synced: make(chan struct{}), current: newRuleset()}
	n.factory = informers.NewSharedInformerFactoryWithOptions(o.Client, 0, informers.WithTransform(trim))
	n.services = n.factory.Core().V1().Services().Lister()
	n.endpoints = newEndpoints(n.poke)
	return n
}

// trim drops the managed fields, which this package does not read and which are the larger part of small objects.
func trim(object any) (any, error) {
	if m, err := meta.Accessor(object); err == nil {
		m.SetManagedFields(nil)
	}
	return object, nil
}

func (n *Network) poke() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// DelayEndpoints makes services and DNS follow EndpointSlices late: a fault switch. It counts for changes that are not in force yet.
func (n *Network) DelayEndpoints(d time.Duration) { n.endpoints.setDelay(d) }

// Synced is closed when the objects that existed at the start are in force.
func (n *Network) Synced() <-chan struct{} { return n.synced }

// pause is the least time between two changes of the kernel's tables: a rolling update changes much in little time.
const pause = 20 * time.Millisecond

// Run follows the cluster until ctx ends, then removes the table.
func (n *Network) Run(ctx context.Context) error {
	if _, err := exec.LookPath("nft"); err != nil {
		return errors.New("nft is missing: run `make tools-cluster` as root, or install nftables")
	}
	var err error
	if n.tables, err = knftables.New(knftables.InetFamily, n.o.Table); err != nil {
		return fmt.Errorf("nftables cannot be used: %w", err)
	}
	tx := n.tables.NewTransaction()
	n.o.declare(tx)
	if err := n.tables.Run(ctx, tx); err != nil {
		return fmt.Errorf("making table %s: %w", n.o.Table, err)
	}
	defer n.remove()
	if err := n.watch(); err != nil {
		return err
	}
	n.factory.Start(ctx.Done())
	defer n.factory.Shutdown()
	for kind, ok := range n.factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return fmt.Errorf("listing %s: %w", kind, context.Cause(ctx))
		}
	}
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 1)
	running.Go(func() { failed <- n.serveDNS(ctx) })
	return n.follow(ctx, failed)
}

// watch subscribes to services and slices. Node addresses are known beforehand.
func (n *Network) watch() error {
	if _, err := n.factory.Core().V1().Services().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { n.poke() },
		UpdateFunc: func(_, _ any) { n.poke() },
		DeleteFunc: func(any) { n.poke() },
	}); err != nil {
		return fmt.Errorf("watching services: %w", err)
	}
	put := func(o any, gone bool) {
		if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = unknown.Obj
		}
		if s, ok := o.(*discovery.EndpointSlice); ok {
			n.endpoints.put(s, gone)
		}
	}
	if _, err := n.factory.Discovery().V1().EndpointSlices().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { put(o, false) },
		UpdateFunc: func(_, o any) { put(o, false) },
		DeleteFunc: func(o any) { put(o, true) },
	}); err != nil {
		return fmt.Errorf("watching endpoint slices: %w", err)
	}
	return nil
}

// follow is the loop: apply the due changes, sleep until there are more.
func (n *Network) follow(ctx context.Context, dns <-chan error) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	first := true
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-dns:
			return err
		case <-n.wake:
			timer.Reset(pause) // what comes in one go is one change
			continue
		case <-timer.C:
		}
		retry, err := n.update(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			n.o.Log.Error("services are not up to date", "table", n.o.Table, "error", err)
			timer.Reset(time.Second)
			continue
		case retry > 0:
			timer.Reset(retry)
		}
		if first {
			first = false
			close(n.synced)
		}
	}
}

// update brings everything in line with the known objects and returns when there will be more to do, or 0.
func (n *Network) update(ctx context.Context) (time.Duration, error) {
	retry := n.endpoints.advance(time.Now())
	services, err := n.services.List(labels.Everything())
	if err != nil {
		return 0, fmt.Errorf("listing services: %w", err)
	}
	next := newRuleset()
	for _, s := range services {
		next.add(s, n.endpoints.of(types.NamespacedName{Namespace: s.Namespace, Name: s.Name}))
	}
	if err := n.replace(ctx, next); err != nil {
		return 0, err
	}
	return retry, n.balance(ctx, services)
}

// replace puts next into force. If the kernel does not have what this package thinks it has, it makes all tables again.
func (n *Network) replace(ctx context.Context, next *ruleset) error {
	tx := n.tables.NewTransaction()
	replaceRules(tx, n.current, next)
	if tx.NumOperations() == 0 {
		return nil
	}
	if err := n.tables.Run(ctx, tx); err != nil {
		n.o.Log.Warn("making the table again", "table", n.o.Table, "error", err)
		tx = n.tables.NewTransaction()
		n.o.declare(tx)
		replaceRules(tx, newRuleset(), next)
		if err := n.tables.Run(ctx, tx); err != nil {
			return err
		}
	}
	forget(n.current, next)
	n.current = next
	return nil
}

// remove takes the table away when the context has ended already.
func (n *Network) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	tx := n.tables.NewTransaction()
	tx.Delete(&knftables.Table{})
	if err := n.tables.Run(ctx, tx); err != nil {
		n.o.Log.Error("removing the table", "table", n.o.Table, "error", err)
	}
}

// service returns a service the DNS server asks for, or nil.
func (n *Network) service(namespace, name string) *core.Service {
	s, err := n.services.Services(namespace).Get(name)
	if err != nil {
		return nil
	}
	return s
}
