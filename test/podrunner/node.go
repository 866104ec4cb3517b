package podrunner

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/pilotmesh/pilot/test/podrunner/register"
	"github.com/pilotmesh/pilot/test/podrunner/sandbox"
	"github.com/pilotmesh/pilot/test/podrunner/stage"
	"github.com/pilotmesh/pilot/test/podrunner/stream"
	"github.com/pilotmesh/pilot/test/podrunner/watch"
)

// running is what a node has while it runs.
type running struct {
	ctx      context.Context
	client   kubernetes.Interface
	host     *sandbox.Host
	objects  *watch.Objects
	services *watch.Mirror[*v1.Service]
	recorder record.EventRecorder
	hostIPs  []string
	// slots bound the work done at once for all pods together: the machine has few cores.
	starts, reports slots

	mu      sync.Mutex
	workers map[types.UID]*worker
	tasks   sync.WaitGroup
}

// slots are free while they can be put into the channel.
type slots chan struct{}

// Run runs the node until the context ends, and returns when everything of it is gone from the machine. The node's and the
// pods' objects stay; a node that runs again recreates its pods.
func (n *Node) Run(ctx context.Context) (err error) {
	n.running = running{workers: make(map[types.UID]*worker), starts: make(slots, 4), reports: make(slots, 4)}
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n.ctx = inner
	defer cancel()
	defer n.gate.Open() // no request waits for a node that has ended
	if err := n.connect(); err != nil {
		return err
	}
	if err := n.openHost(ctx); err != nil {
		return err
	}
	n.present.Store(n.host)
	defer func() {
		n.present.Store(nil)
		err = errors.Join(err, n.host.Close())
	}()
	server, err := n.serve()
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }() // a second time does nothing
	broadcaster := n.events()
	defer broadcaster.Shutdown()
	n.objects = watch.NewObjects(inner, n.client)
	n.services = watch.NewMirror[*v1.Service](nil, nil)
	pods := watch.NewMirror(n.podChanged, n.podGone)
	var following sync.WaitGroup
	watching, stopWatching := context.WithCancel(inner)
	known := make(chan struct{})
	following.Go(func() { n.registration().Run(watching, func() { close(known) }) })
	following.Go(func() { watch.Follow(watching, n.services, n.client.CoreV1().Services(""), "") })
	following.Go(func() {
		// Pods learn of services as they start, and nothing of theirs can be read before the API server knows the node.
		if !wait(watching, n.services.Synced()) || !wait(watching, known) {
			return
		}
		selector := fields.OneTermEqualSelector("spec.nodeName", n.options.Node).String()
		watch.Follow(watching, pods, n.client.CoreV1().Pods(""), selector)
	})
	n.log.Info("node runs", "node", n.options.Node, "addresses", n.hostIPs)
	<-ctx.Done()
	stopWatching()
	following.Wait()
	n.abandon()
	cancel()
	_ = server.Close() // ends the connections that still follow a log
	n.objects.Wait()
	n.tasks.Wait()
	return nil
}

// wait reports whether the channel was closed before the context ended.
func wait(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

func (n *Node) connect() error {
	config := rest.CopyConfig(n.options.Config)
	config.QPS = -1 // the API server is ours, and next door
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.UserAgent = "podrunner/" + n.options.Node
	config.Wrap(n.gate.Wrap)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("podrunner: client of the API server: %w", err)
	}
	n.client = client
	return nil
}

func (n *Node) openHost(ctx context.Context) error {
	if err := os.RemoveAll(n.podsDir()); err != nil {
		return fmt.Errorf("podrunner: remove what an earlier life left: %w", err)
	}
	init := n.options.Init
	if init == "" {
		var err error
		if init, err = stage.Build(ctx, n.options.Root); err != nil {
			return fmt.Errorf("podrunner: %w", err)
		}
	}
	host, err := sandbox.Open(sandbox.Config{Bridge: n.options.Bridge, Prefixes: n.options.PodCIDRs, Stage: init, Root: n.options.Root})
	if err != nil {
		return fmt.Errorf("podrunner: %w", err)
	}
	n.host = host
	for _, address := range host.Addresses() {
		n.hostIPs = append(n.hostIPs, address.String())
	}
	return nil
}

func (n *Node) podsDir() string { return filepath.Join(n.options.Root, "pods") }

func (n *Node) registration() *register.Node {
	node := &register.Node{
		Client: n.client, Name: n.options.Node, Labels: n.options.Labels, Addresses: n.hostIPs, Port: kubeletPort, Log: n.log,
	}
	for _, prefix := range n.options.PodCIDRs {
		node.PodCIDRs = append(node.PodCIDRs, prefix.String())
	}
	return node
}

// serve listens on the node's own addresses.
func (n *Node) serve() (*http.Server, error) {
	config := &tls.Config{Certificates: []tls.Certificate{n.options.Serving}, ClientCAs: n.options.ClientCAs}
	if n.options.ClientCAs != nil {
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	handler := stream.Handler(n)
	server := &http.Server{
		TLSConfig: config, ReadHeaderTimeout: 30 * time.Second,
		ErrorLog: slog.NewLogLogger(n.log.Handler(), slog.LevelDebug),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n.gate.IsShut() {
				panic(http.ErrAbortHandler) // a node that is cut off answers nothing
			}
			handler.ServeHTTP(w, r)
		}),
	}
	for _, address := range n.hostIPs {
		listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(kubeletPort)))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("podrunner: node API: %w", err), server.Close())
		}
		n.tasks.Go(func() { _ = server.ServeTLS(listener, "", "") }) // ends with Close
	}
	return server, nil
}

// events begins to write Event objects.
func (n *Node) events() record.EventBroadcaster {
	broadcaster := record.NewBroadcaster(record.WithContext(n.ctx))
	broadcaster.StartRecordingToSink(&typedv1.EventSinkImpl{Interface: n.client.CoreV1().Events("")})
	n.recorder = broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: "podrunner", Host: n.options.Node})
	return broadcaster
}

// podChanged takes a pod that is new or has changed.
func (n *Node) podChanged(object *v1.Pod) {
	n.mu.Lock()
	w := n.workers[object.UID]
	if w == nil {
		w = newWorker(n, object)
		n.workers[object.UID] = w
		n.tasks.Go(w.run)
	}
	n.mu.Unlock()
	w.changed(object)
}

// podGone takes a pod that was deleted.
func (n *Node) podGone(object *v1.Pod) {
	n.mu.Lock()
	w := n.workers[object.UID]
	n.mu.Unlock()
	if w != nil {
		w.gone()
	}
}

// leave forgets a worker that has ended.
func (n *Node) leave(w *worker) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.workers, w.uid)
}

// abandon ends all pods at once, without a word to the API server.
func (n *Node) abandon() {
	n.mu.Lock()
	workers := make([]*worker, 0, len(n.workers))
	for _, w := range n.workers {
		workers = append(workers, w)
	}
	n.mu.Unlock()
	for _, w := range workers {
		w.cancel()
	}
	for _, w := range workers {
		<-w.ended
	}
}

// find returns the worker of a pod.
func (n *Node) find(pod stream.Pod) (*worker, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.workers {
		object := w.pod()
		if object.Namespace == pod.Namespace && object.Name == pod.Name && (pod.UID == "" || pod.UID == string(object.UID)) {
			return w, nil
		}
	}
	return nil, fmt.Errorf("pod %s/%s is not on node %s: %w", pod.Namespace, pod.Name, n.options.Node, stream.ErrNotFound)
}

// Down cuts the node off: it reaches the API server no more, nor others its pods, which keep running. Up ends that.
func (n *Node) Down() error {
	n.gate.Shut()
	return n.setForwarding(false)
}

// Up ends what Down began.
func (n *Node) Up() error {
	n.gate.Open()
	return n.setForwarding(true)
}

func (n *Node) setForwarding(on bool) error {
	host := n.present.Load()
	if host == nil {
		return errors.New("the node does not run")
	}
	return host.SetForwarding(on)
}

// CutNetwork takes a pod from the network: packets to it or from it are lost. RestoreNetwork ends that.
func (n *Node) CutNetwork(namespace, name string) error {
	return n.setConnected(namespace, name, false)
}

// RestoreNetwork ends what CutNetwork began.
func (n *Node) RestoreNetwork(namespace, name string) error {
	return n.setConnected(namespace, name, true)
}

func (n *Node) setConnected(namespace, name string, on bool) error {
	w, err := n.find(stream.Pod{Namespace: namespace, Name: name})
	if err != nil {
		return err
	}
	box := w.sandbox()
	if box == nil {
		return fmt.Errorf("pod %s/%s has no network yet", namespace, name)
	}
	return box.SetConnected(on)
}

// Pause stops all processes of a container where they stand. Resume lets them continue.
func (n *Node) Pause(namespace, name, container string) error {
	return n.setPaused(namespace, name, container, true)
}

// Resume ends what Pause began.
func (n *Node) Resume(namespace, name, container string) error {
	return n.setPaused(namespace, name, container, false)
}

func (n *Node) setPaused(namespace, name, container string, on bool) error {
	process, err := n.process(stream.Pod{Namespace: namespace, Name: name}, container)
	if err != nil {
		return err
	}
	return process.Pause(on)
}

// resolver is the text of resolv.conf for pods that use the cluster's DNS.
func resolver(server netip.Addr, namespace, domain string) string {
	return fmt.Sprintf("nameserver %v\nsearch %[2]s.svc.%[3]s svc.%[3]s %[3]s\noptions ndots:5\n", server, namespace, domain)
}
