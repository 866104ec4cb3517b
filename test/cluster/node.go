package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/pilotmesh/pilot/test/cluster/network"
	"github.com/pilotmesh/pilot/test/kit/certs"
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

// describeDNS writes the service at which pods find the DNS server: by the usual name, and without a
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

// AddNode starts one more node. It is ready some time later. Each of change may change its options before it starts.
func (c *Cluster) AddNode(change ...func(*podrunner.Options)) (*Node, error) {
	n, err := c.plan()
	if err != nil {
		return nil, err
	}
	for _, f := range change {
		f(&n.options)
	}
	if err := n.Start(); err != nil {
		c.forget(n)
		return nil, err
	}
	return n, nil
}

// plan takes the first index that no node has, and prepares the options of a node there.
func (c *Cluster) plan() (*Node, error) {
	c.mu.Lock()
	index := 0
	for c.nodes[nodeName(index)] != nil {
		index++
	}
	if index >= maxNodes {
		c.mu.Unlock()
		return nil, fmt.Errorf("a cluster has room for %d nodes", maxNodes)
	}
	n := &Node{Name: nodeName(index), cluster: c}
	c.nodes[n.Name] = n
	c.mu.Unlock()
	var err error
	if n.options, err = c.options(n.Name, index); err != nil {
		c.forget(n)
		return nil, err
	}
	return n, nil
}

func nodeName(index int) string { return fmt.Sprintf("node-%d", index) }

func (c *Cluster) forget(n *Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.nodes, n.Name)
}

// identity is a node's, for both ends of connections.
func (c *Cluster) identity(name string, index int) certs.Identity {
	return certs.Identity{Name: "system:node:" + name, Groups: []string{"system:nodes"}, Hosts: []string{name}, IPs: c.addresses(index)}
}

func (c *Cluster) options(name string, index int) (podrunner.Options, error) {
	config, err := c.pki.client(c.layout.server(), c.identity(name, index))
	if err != nil {
		return podrunner.Options{}, err
	}
	serving, err := c.pki.cluster.Issue(c.identity(name, index))
	if err != nil {
		return podrunner.Options{}, err
	}
	certificate, err := serving.TLS()
	if err != nil {
		return podrunner.Options{}, err
	}
	o := podrunner.Options{
		Config: config, Node: name, PodCIDRs: []netip.Prefix{c.slot.pods(index)}, Bridge: c.slot.bridge(index),
		ClusterDNS: c.slot.dns(), Domain: Domain, Serving: certificate, ClientCAs: c.pki.cluster.Pool(), Images: c.o.Images,
		Root: filepath.Join(c.dir, name), Init: c.o.Stage, Log: c.o.Log.With("node", name),
	}
	if c.dual {
		o.PodCIDRs = append(o.PodCIDRs, c.slot.pods6(index))
	}
	return o, nil
}

// PlanNode reserves a node that runs in another process, and returns the flags with which the command podrunner runs it.
// The image map is the caller's to add: -images FILE. RemoveNode ends the reservation.
func (c *Cluster) PlanNode() (name string, flags []string, err error) {
	n, err := c.plan()
	if err != nil {
		return "", nil, err
	}
	o := n.options
	if err := kubeconfig(c.pki.file(n.Name+".conf"), n.Name, o.Config); err != nil {
		return "", nil, err
	}
	// The node's client certificate also serves as its server certificate.
	pair := certs.Pair{Cert: string(o.Config.CertData), Key: string(o.Config.KeyData)}
	if err := pair.Write(c.pki.dir, n.Name); err != nil {
		return "", nil, err
	}
	var prefixes []string
	for _, p := range o.PodCIDRs {
		prefixes = append(prefixes, p.String())
	}
	return n.Name, []string{
		"-kubeconfig", c.pki.file(n.Name + ".conf"), "-cert", c.pki.file(n.Name + ".crt"), "-key", c.pki.file(n.Name + ".key"), "-client-ca", c.pki.file("ca.crt"),
		"-node", n.Name, "-pod-cidrs", strings.Join(prefixes, ","), "-bridge", o.Bridge, "-cluster-dns", o.ClusterDNS.String(), "-domain", o.Domain,
		"-root", o.Root, "-init", o.Init,
	}, nil
}

// RemoveNode ends a node and deletes its object: its pods are gone, and their controllers make others elsewhere.
func (c *Cluster) RemoveNode(ctx context.Context, name string) error {
	n := c.Node(name)
	if n == nil {
		return fmt.Errorf("there is no node %s", name)
	}
	n.Stop()
	c.forget(n)
	if err := c.client.CoreV1().Nodes().Delete(ctx, name, meta.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing %s: %w", name, err)
	}
	return nil
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

// Stop ends a node as a power cut does: its pods are gone, and the API server gets no notice. It does nothing to a node that
// does not run in this process.
func (n *Node) Stop() {
	if n.cancel != nil {
		n.cancel()
		<-n.done
	}
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
	return slices.SortedFunc(maps.Values(c.nodes), func(a, b *Node) int { return a.options.PodCIDRs[0].Addr().Compare(b.options.PodCIDRs[0].Addr()) })
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
