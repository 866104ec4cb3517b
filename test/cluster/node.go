package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/pilotmesh/pilot/test/cluster/network"
	"github.com/pilotmesh/pilot/test/podrunner"
)

// Node is one node of a cluster. Its embedded methods cut it off, cut off its pods and pause their processes.
type Node struct {
	*podrunner.Node
	Name string

	cluster *Cluster
	options podrunner.Options
	cancel  context.CancelFunc
	done    chan struct{}
}

// startNetwork starts services, LoadBalancer addresses and DNS, and waits until they work.
func (c *Cluster) startNetwork(ctx context.Context) error {
	config := c.Config()
	// Beside the nodes' own traffic in the API server's logs.
	config.UserAgent = "pilot-cluster-network"
	o := network.Options{
		Client: c.client, Table: c.slot.table(), Devices: c.slot.device(), Domain: Domain, Log: c.o.Log.With("part", "network"),
		Virtual: []netip.Prefix{c.slot.services(), c.slot.balancers()},
		Pools:   []netip.Prefix{c.slot.balancers()},
		DNS:     netip.AddrPortFrom(c.slot.self(), 53),
	}
	if c.dual {
		o.Virtual = append(o.Virtual, c.slot.services6(), c.slot.balancers6())
		o.Pools = append(o.Pools, c.slot.balancers6())
	}
	for i := range maxNodes {
		o.Nodes = append(o.Nodes, c.addresses(i)...)
	}
	if err := c.describeDNS(ctx); err != nil {
		return err
	}
	c.network = network.New(o)
	running, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	ended := make(chan struct{})
	c.running.Go(func() {
		defer close(ended)
		if err := c.network.Run(running); err != nil {
			c.fail(fmt.Errorf("cluster network: %w", err))
		}
	})
	select {
	case <-c.network.Synced():
		return nil
	case <-ended:
		return errors.New("the cluster's network did not start")
	case <-ctx.Done():
		return fmt.Errorf("waiting for the cluster's network: %w", context.Cause(ctx))
	}
}

// addresses are a node's own.
func (c *Cluster) addresses(node int) []netip.Addr {
	all := []netip.Addr{c.slot.pods(node).Addr().Next()}
	if c.dual {
		all = append(all, c.slot.pods6(node).Addr().Next())
	}
	return all
}

// describeDNS writes the service at which pods find the DNS server: by the name everybody expects, and without a
// selector, because it is no pod.
func (c *Cluster) describeDNS(ctx context.Context) error {
	name, port := "kube-dns", int32(53)
	udp, tcp := core.ProtocolUDP, core.ProtocolTCP
	service := &core.Service{
		ObjectMeta: meta.ObjectMeta{Name: name, Namespace: meta.NamespaceSystem, Labels: map[string]string{"k8s-app": name, "kubernetes.io/name": "CoreDNS"}},
		Spec: core.ServiceSpec{ClusterIP: c.slot.dns().String(), Ports: []core.ServicePort{
			{Name: "dns", Port: port, Protocol: udp, TargetPort: intstr.FromInt32(port)},
			{Name: "dns-tcp", Port: port, Protocol: tcp, TargetPort: intstr.FromInt32(port)},
		}},
	}
	slice := &discovery.EndpointSlice{
		ObjectMeta: meta.ObjectMeta{Name: name, Namespace: meta.NamespaceSystem, Labels: map[string]string{
			discovery.LabelServiceName: name, discovery.LabelManagedBy: "pilot-cluster",
		}},
		AddressType: discovery.AddressTypeIPv4,
		Endpoints:   []discovery.Endpoint{{Addresses: []string{c.slot.self().String()}}},
		Ports:       []discovery.EndpointPort{{Name: &service.Spec.Ports[0].Name, Port: &port, Protocol: &udp}, {Name: &service.Spec.Ports[1].Name, Port: &port, Protocol: &tcp}},
	}
	return c.eventually(ctx, "the service kube-dns", func(ctx context.Context) error {
		// The API server makes the namespace a moment after it is ready.
		_, err := c.client.CoreV1().Services(meta.NamespaceSystem).Create(ctx, service, meta.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		_, err = c.client.DiscoveryV1().EndpointSlices(meta.NamespaceSystem).Create(ctx, slice, meta.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	})
}

// eventually repeats f until it succeeds, and otherwise says what came last.
func (c *Cluster) eventually(ctx context.Context, what string, f func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		last = f(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w (last: %w)", what, err, last)
	}
	return nil
}

// AddNode starts one more node. It is ready some time later.
func (c *Cluster) AddNode(labels map[string]string) (*Node, error) {
	c.mu.Lock()
	index := len(c.nodes)
	c.mu.Unlock()
	if index >= maxNodes {
		return nil, fmt.Errorf("a cluster has room for %d nodes", maxNodes)
	}
	n := &Node{Name: fmt.Sprintf("node-%d", index), cluster: c}
	config, err := c.pki.client(c.layout.server(), identity{name: "system:node:" + n.Name, groups: []string{"system:nodes"}})
	if err != nil {
		return nil, err
	}
	serving, err := c.pki.cluster.issue(identity{name: "system:node:" + n.Name, groups: []string{"system:nodes"}, hosts: []string{n.Name}, ips: c.addresses(index)})
	if err != nil {
		return nil, err
	}
	certificate, err := serving.tls()
	if err != nil {
		return nil, err
	}
	n.options = podrunner.Options{
		Config: config, Node: n.Name, Labels: labels, PodCIDRs: []netip.Prefix{c.slot.pods(index)}, Bridge: c.slot.bridge(index),
		ClusterDNS: c.slot.dns(), Domain: Domain, Serving: certificate, ClientCAs: c.pki.cluster.pool(), Images: c.o.Images,
		Root: filepath.Join(c.dir, n.Name), Init: c.o.Stage, Log: c.o.Log.With("node", n.Name),
	}
	if c.dual {
		n.options.PodCIDRs = append(n.options.PodCIDRs, c.slot.pods6(index))
	}
	if err := n.Start(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.nodes[n.Name] = n
	c.mu.Unlock()
	return n, nil
}

// Start runs a node, or runs it again after Stop.
func (n *Node) Start() error {
	runner, err := podrunner.New(n.options)
	if errors.Is(err, podrunner.ErrUnsupported) {
		return fmt.Errorf("%w: %w", ErrUnable, err)
	}
	if err != nil {
		return fmt.Errorf("starting %s: %w", n.Name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	n.Node, n.cancel, n.done = runner, cancel, done
	n.cluster.running.Go(func() {
		defer close(done)
		if err := runner.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			n.cluster.fail(fmt.Errorf("%s: %w", n.Name, err))
		}
	})
	return nil
}

// Stop ends a node as a power cut does: its pods are gone, and nobody tells the API server.
func (n *Node) Stop() {
	n.cancel()
	<-n.done
}

// Node returns a node by name, or nil.
func (c *Cluster) Node(name string) *Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[name]
}

// Nodes returns all nodes, ordered by name.
func (c *Cluster) Nodes() []*Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.nodes), func(a, b *Node) int { return int(a.options.PodCIDRs[0].Addr().Compare(b.options.PodCIDRs[0].Addr())) })
}

// nodesReady waits until pods can run: nodes are ready and the namespace default has its service account.
func (c *Cluster) nodesReady(ctx context.Context) error {
	return c.eventually(ctx, "nodes to be ready", func(ctx context.Context) error {
		if _, err := c.client.CoreV1().ServiceAccounts(meta.NamespaceDefault).Get(ctx, "default", meta.GetOptions{}); err != nil {
			return err
		}
		nodes, err := c.client.CoreV1().Nodes().List(ctx, meta.ListOptions{})
		if err != nil {
			return err
		}
		ready := 0
		for _, n := range nodes.Items {
			for _, condition := range n.Status.Conditions {
				if condition.Type == core.NodeReady && condition.Status == core.ConditionTrue {
					ready++
				}
			}
		}
		if ready < len(c.Nodes()) {
			return fmt.Errorf("%d of %d nodes are ready", ready, len(c.Nodes()))
		}
		return nil
	})
}
