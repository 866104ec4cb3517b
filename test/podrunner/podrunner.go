// Package podrunner is a Kubernetes node that runs pods as processes of this machine: a kubelet and a container runtime
// in one, for tests. README.md describes its scope and its limits.
//
// A Node has one watch of its pods. Each pod has a worker: a goroutine that feeds what happens into the pod's Machine
// (package pod) and has done what that asks for. What takes long runs beside the worker, in goroutines it waits for; a pod
// that just runs costs no time. Run ends when the context does, and then nothing of the node is left on the machine.
package podrunner

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/test/podrunner/cni"
	"github.com/pilotmesh/pilot/test/podrunner/gate"
	"github.com/pilotmesh/pilot/test/podrunner/image"
	"github.com/pilotmesh/pilot/test/podrunner/pod"
	"github.com/pilotmesh/pilot/test/podrunner/sandbox"
)

// ErrUnsupported is the reason of a machine that cannot run pods. Tests skip with its text.
var ErrUnsupported = sandbox.ErrUnsupported

// Images is a map from images to local programs.
type Images = image.Images

// Image is an entry of it.
type Image = image.Image

// ReadImages reads an image map from a YAML file.
func ReadImages(path string) (Images, error) { return image.Read(path) }

// NewImages makes an image map; relative paths are relative to the working directory.
func NewImages(list ...Image) (Images, error) {
	dir, err := os.Getwd()
	if err != nil {
		return Images{}, fmt.Errorf("image map: %w", err)
	}
	return image.New(dir, list...)
}

// Options say what a node is.
type Options struct {
	// Config leads to the API server with the credentials of a node (system:node:NAME).
	Config *rest.Config
	// Node is its name, Labels are added to those every node has.
	Node   string
	Labels map[string]string
	// PodCIDRs are the pods' addresses, one range for each family. The first address of each is the node's own.
	PodCIDRs []netip.Prefix
	// Bridge is the name of the network bridge, and the beginning of other names on the machine: at most 10 characters.
	Bridge string
	// ClusterDNS and Domain go into the pods' resolv.conf.
	ClusterDNS netip.Addr
	Domain     string
	// Serving is the certificate of the node's own API, ClientCAs sign the clients that may call it.
	Serving   tls.Certificate
	ClientCAs *x509.CertPool
	// Images say which program an image is.
	Images Images
	// Root is a directory for the node's state. Remains of an earlier run are removed.
	Root string
	// Init is the path of the podrunner-init program; when empty it is built, which needs Go and a module that requires this
	// one as working directory.
	Init string
	// CNI has the folders of CNI plugins. Those behind the first one of a list are called after the node has made the network of a pod.
	CNI cni.Host
	// RenewTokens is how long a projected token is used at most before pods are given a new one: a day when zero, as with the
	// kubelet. Four fifths of a token's life are the limit in any case.
	RenewTokens time.Duration
	// Policy is how restarts are delayed; the kubelet's when nil.
	Policy *pod.Policy
	// Log receives what happens; nothing when nil.
	Log *slog.Logger
}

// kubeletPort is where a node's API is expected.
const kubeletPort = 10250

// longestBridge leaves room for the numbers of links, in the kernel's 15 characters.
const longestBridge = 10

// Node is a node that can be run.
type Node struct {
	options Options
	policy  pod.Policy
	log     *slog.Logger
	gate    *gate.Gate
	present atomic.Pointer[sandbox.Host] // while there is one

	running // while Run runs
}

// New checks the options and the machine. An error that is ErrUnsupported means that no node can run here.
func New(options Options) (*Node, error) {
	n := &Node{options: options, policy: pod.DefaultPolicy(), log: options.Log, gate: gate.New()}
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	if options.Policy != nil {
		n.policy = *options.Policy
	}
	if options.RenewTokens == 0 {
		n.options.RenewTokens = 24 * time.Hour
	}
	if options.Domain == "" {
		n.options.Domain = "cluster.local"
	}
	switch {
	case options.Config == nil:
		return nil, errors.New("podrunner: no Config: the node needs credentials for the API server")
	case options.Node == "":
		return nil, errors.New("podrunner: no Node: the node needs a name")
	case options.Bridge == "" || len(options.Bridge) > longestBridge:
		return nil, fmt.Errorf("podrunner: Bridge %q must have 1 to %d characters", options.Bridge, longestBridge)
	case options.Root == "":
		return nil, errors.New("podrunner: no Root: the node needs a directory for its state")
	}
	var err error
	if n.options.Root, err = filepath.Abs(options.Root); err != nil {
		return nil, fmt.Errorf("podrunner: state directory: %w", err)
	}
	if err := os.MkdirAll(n.options.Root, 0o755); err != nil {
		return nil, fmt.Errorf("podrunner: state directory: %w", err)
	}
	if err := sandbox.Supported(n.options.Root); err != nil {
		return nil, fmt.Errorf("podrunner: %w", err)
	}
	return n, nil
}

// Run is New and Node.Run.
func Run(ctx context.Context, options Options) error {
	n, err := New(options)
	if err != nil {
		return err
	}
	return n.Run(ctx)
}
