package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/test/cluster/binaries"
	"github.com/pilotmesh/pilot/test/cluster/network"
	"github.com/pilotmesh/pilot/test/kit/certs"
	"github.com/pilotmesh/pilot/test/podrunner"
)

// Domain is the DNS domain of every cluster.
const Domain = "cluster.local"

// Options say what kind of cluster to start. The zero value is a control plane without nodes.
type Options struct {
	Nodes    int              // they are called node-0, node-1, ...
	Binaries binaries.Paths   // of binaries.Find
	Images   podrunner.Images // the programs for the image names of pods
	Stage    string           // podrunner's program that starts containers; empty: it is built
	Dir      string           // parent of the data folder, which is new and goes away with the cluster; empty: the system's
	Log      *slog.Logger     // of this process's parts; the programs' logs are files of the data folder
	// NodeGrace is how long a node may be silent before it counts as lost, 40 s if 0; Eviction how long its pods then may
	// stay, where they do not say so themselves, 300 s if 0.
	NodeGrace, Eviction time.Duration
	// Keep leaves the logs in place when the cluster is closed, to look at.
	Keep bool
}

// Cluster is a Kubernetes that runs.
type Cluster struct {
	o       Options
	slot    slot
	dir     string
	dual    bool
	pki     *pki
	layout  layout
	reaper  *reaper
	control *control
	network *network.Network
	admin   *rest.Config
	client  kubernetes.Interface

	cancel  context.CancelFunc // of the network and the nodes
	running sync.WaitGroup
	mu      sync.Mutex
	nodes   map[string]*Node
	failed  []error
}

// Start starts a cluster and waits until its API server and its nodes work. ctx bounds the start only; Close ends the cluster.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	o = o.withDefaults()
	if o.Nodes > maxNodes {
		return nil, fmt.Errorf("%d nodes: a cluster has room for %d", o.Nodes, maxNodes)
	}
	if o.Nodes > 0 {
		if err := Able(ctx); err != nil {
			return nil, err
		}
	}
	s, err := claim()
	if err != nil {
		return nil, err
	}
	c := &Cluster{o: o, slot: s, dual: o.Nodes > 0 && hasIPv6(), nodes: map[string]*Node{}}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (o Options) withDefaults() Options {
	if o.NodeGrace == 0 {
		o.NodeGrace = 40 * time.Second
	}
	if o.Eviction == 0 {
		o.Eviction = 300 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

func (c *Cluster) start(ctx context.Context) error {
	if err := sweepNow(c.slot); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(c.o.Dir, "pilot-cluster-")
	if err != nil {
		return fmt.Errorf("making the data folder: %w", err)
	}
	c.dir = dir
	// Pods run as other users below this folder; secrets lie in folders of their own.
	if err := os.Chmod(dir, 0o755); err != nil {
		return fmt.Errorf("opening the data folder to pods: %w", err)
	}
	if c.reaper, err = startReaper(c.slot, dir); err != nil {
		return err
	}
	if err := c.startControl(ctx); err != nil {
		return err
	}
	if c.o.Nodes == 0 {
		return c.nodesReady(ctx)
	}
	if err := c.startNetwork(ctx); err != nil {
		return err
	}
	for range c.o.Nodes {
		if _, err := c.AddNode(); err != nil {
			return err
		}
	}
	return c.nodesReady(ctx)
}

func (c *Cluster) startControl(ctx context.Context) error {
	address := c.slot.private()
	if c.o.Nodes > 0 {
		address = c.slot.self()
		if err := raise(c.dual); err != nil {
			return err
		}
		if err := c.slot.plug(c.dual); err != nil {
			return err
		}
	}
	c.layout = layout{dir: c.dir, slot: c.slot, address: address, dual: c.dual, nodeGrace: c.o.NodeGrace, eviction: c.o.Eviction}
	var err error
	if c.pki, err = newPKI(filepath.Join(c.dir, "pki"), c.layout.apiServer(), c.slot.private()); err != nil {
		return err
	}
	c.layout.pki = c.pki
	if c.admin, err = c.pki.client(c.layout.server(), certs.Identity{Name: "kubernetes-admin", Groups: []string{"system:masters"}}); err != nil {
		return err
	}
	if err := kubeconfig(c.Kubeconfig(), "pilot-test", c.admin); err != nil {
		return err
	}
	if c.client, err = kubernetes.NewForConfig(c.admin); err != nil {
		return fmt.Errorf("a client of the cluster: %w", err)
	}
	if c.control, err = newControl(c.layout, c.o.Binaries, c.fail); err != nil {
		return err
	}
	return c.control.start(ctx, c.admin)
}

// Config returns the credentials of the cluster's administrator, a copy that the caller may change.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.admin) }

// Client is the administrator's.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// Kubeconfig is a file with the administrator's credentials, for kubectl and the like.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// Dir is the data folder; the logs of the control plane lie there.
func (c *Cluster) Dir() string { return c.dir }

// Devices is what the names of the cluster's network devices begin with.
func (c *Cluster) Devices() string { return c.slot.device() }

// Kubectl is the kubectl that fits the cluster.
func (c *Cluster) Kubectl() string { return c.o.Binaries.Kubectl }

// Diagnosis describes the state of the control plane's processes and the end of their logs, to explain why a test failed.
func (c *Cluster) Diagnosis() string {
	var b strings.Builder
	for _, p := range c.control.all() {
		fmt.Fprintf(&b, "%s: %s; its log ends:\n%s\n", p.name, p.state(), p.tail())
	}
	return b.String()
}

// fail notes what broke in the background; Close reports it.
func (c *Cluster) fail(err error) {
	c.o.Log.Error("part of the cluster has failed", "error", err)
	c.mu.Lock()
	c.failed = append(c.failed, err)
	c.mu.Unlock()
}

// Close ends the cluster and removes everything it made. It returns what broke while the cluster ran, and what could not be removed.
func (c *Cluster) Close() error {
	if c.cancel != nil {
		c.cancel()
	}
	c.mu.Lock()
	for _, n := range c.nodes {
		if n.cancel != nil {
			n.cancel()
		}
	}
	c.mu.Unlock()
	c.running.Wait()
	if c.control != nil {
		c.control.stop()
	}
	var errs []error
	if c.o.Nodes > 0 {
		errs = append(errs, c.slot.unplug())
	}
	if c.o.Keep && c.dir != "" {
		errs = append(errs, c.keepLogs())
	}
	// Before the reaper looks: it must find nothing that holds the slot but itself.
	errs = append(errs, c.slot.release())
	if c.reaper != nil {
		errs = append(errs, c.reaper.close())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(append(errs, c.failed...)...)
}

// keepLogs moves the logs beside the data folder.
func (c *Cluster) keepLogs() error {
	logs, err := filepath.Glob(filepath.Join(c.dir, "*.log"))
	if err != nil {
		return fmt.Errorf("keeping logs: %w", err)
	}
	to := c.dir + "-logs"
	if err := os.MkdirAll(to, 0o755); err != nil {
		return fmt.Errorf("keeping logs: %w", err)
	}
	for _, l := range logs {
		if err := os.Rename(l, filepath.Join(to, filepath.Base(l))); err != nil {
			return fmt.Errorf("keeping logs: %w", err)
		}
	}
	return nil
}
