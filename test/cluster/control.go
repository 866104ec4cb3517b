package cluster

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/test/cluster/binaries"
	"github.com/pilotmesh/pilot/test/kit/certs"
)

// control is the control plane: its processes in the order they start.
type control struct {
	etcd, api, controllers, scheduler *program
}

func (c *control) all() []*program {
	return []*program{c.etcd, c.api, c.controllers, c.scheduler}
}

// layout is what the command lines of the control plane depend on.
type layout struct {
	dir       string // of all files
	slot      slot
	address   netip.Addr // of the API server
	dual      bool       // IPv6 as well
	nodeGrace time.Duration
	eviction  time.Duration
	pki       *pki
}

// Ports are free because the addresses are the cluster's own.
const (
	apiPort         = 6443
	etcdPort        = 2379
	etcdPeerPort    = 2380
	controllersPort = 10257
)

func (l layout) server() string { return fmt.Sprintf("https://%s:%d", l.address, apiPort) }

func (l layout) etcdURL() string { return fmt.Sprintf("https://%s:%d", l.slot.private(), etcdPort) }

// apiServer is what the API server's certificate says.
func (l layout) apiServer() certs.Identity {
	id := certs.Identity{Name: "kube-apiserver", IPs: []netip.Addr{l.address, l.slot.services().Addr().Next(), l.slot.services6().Addr().Next(), l.slot.self6()}}
	id.Hosts = []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + Domain, "localhost"}
	return id
}

// newControl prepares the processes; none runs yet. lost is called for each process that ends without being stopped.
func newControl(l layout, b binaries.Paths, lost func(error)) (*control, error) {
	make := func(name, path string, args []string) *program {
		return &program{name: name, log: filepath.Join(l.dir, name+".log"), path: path, args: args, lost: lost}
	}
	for user, name := range map[string]string{"controllers": "system:kube-controller-manager", "scheduler": "system:kube-scheduler"} {
		config, err := l.pki.client(l.server(), certs.Identity{Name: name})
		if err != nil {
			return nil, err
		}
		if err := kubeconfig(l.pki.file(user+".conf"), user, config); err != nil {
			return nil, err
		}
	}
	return &control{
		etcd:        make("etcd", b.Etcd, l.etcdArgs()),
		api:         make("kube-apiserver", b.APIServer, l.apiServerArgs()),
		controllers: make("kube-controller-manager", b.ControllerManager, l.controllersArgs()),
		scheduler:   make("kube-scheduler", b.Scheduler, l.schedulerArgs()),
	}, nil
}

func (l layout) etcdArgs() []string {
	peer := fmt.Sprintf("https://%s:%d", l.slot.private(), etcdPeerPort)
	return []string{
		"--name=test", "--data-dir=" + filepath.Join(l.dir, "etcd"),
		"--listen-client-urls=" + l.etcdURL(), "--advertise-client-urls=" + l.etcdURL(),
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=test=" + peer,
		"--cert-file=" + l.pki.file("etcd.crt"), "--key-file=" + l.pki.file("etcd.key"),
		"--client-cert-auth", "--trusted-ca-file=" + l.pki.file("etcd-ca.crt"),
		"--peer-cert-file=" + l.pki.file("etcd.crt"), "--peer-key-file=" + l.pki.file("etcd.key"),
		"--peer-client-cert-auth", "--peer-trusted-ca-file=" + l.pki.file("etcd-ca.crt"),
		"--unsafe-no-fsync", // what a power cut would lose is thrown away anyway
		"--log-level=warn",
	}
}

// ranges are the service addresses, IPv4 first.
func (l layout) ranges() string {
	if l.dual {
		return l.slot.services().String() + "," + l.slot.services6().String()
	}
	return l.slot.services().String()
}

func (l layout) apiServerArgs() []string {
	seconds := func(flag string) string {
		return fmt.Sprintf("--default-%s-toleration-seconds=%d", flag, int(l.eviction.Seconds()))
	}
	return []string{
		"--bind-address=" + l.address.String(), "--advertise-address=" + l.address.String(), fmt.Sprintf("--secure-port=%d", apiPort),
		"--tls-cert-file=" + l.pki.file("apiserver.crt"), "--tls-private-key-file=" + l.pki.file("apiserver.key"),
		"--client-ca-file=" + l.pki.file("ca.crt"), "--cert-dir=" + l.pki.dir,
		"--etcd-servers=" + l.etcdURL(), "--etcd-cafile=" + l.pki.file("etcd-ca.crt"),
		"--etcd-certfile=" + l.pki.file("apiserver-etcd-client.crt"), "--etcd-keyfile=" + l.pki.file("apiserver-etcd-client.key"),
		"--kubelet-client-certificate=" + l.pki.file("apiserver-kubelet-client.crt"), "--kubelet-client-key=" + l.pki.file("apiserver-kubelet-client.key"),
		"--kubelet-certificate-authority=" + l.pki.file("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--requestheader-client-ca-file=" + l.pki.file("front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + l.pki.file("front-proxy-client.crt"), "--proxy-client-key-file=" + l.pki.file("front-proxy-client.key"),
		"--service-account-issuer=https://kubernetes.default.svc." + Domain,
		"--service-account-key-file=" + l.pki.file("service-account.key"), "--service-account-signing-key-file=" + l.pki.file("service-account.key"),
		"--service-cluster-ip-range=" + l.ranges(),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		seconds("not-ready"), seconds("unreachable"),
		"--profiling=false", "--v=1",
	}
}

func (l layout) controllersArgs() []string {
	conf := l.pki.file("controllers.conf")
	return []string{
		"--kubeconfig=" + conf, "--authentication-kubeconfig=" + conf, "--authorization-kubeconfig=" + conf,
		"--bind-address=" + l.slot.private().String(), fmt.Sprintf("--secure-port=%d", controllersPort), "--cert-dir=" + l.pki.dir,
		"--root-ca-file=" + l.pki.file("ca.crt"), "--service-account-private-key-file=" + l.pki.file("service-account.key"),
		"--cluster-signing-cert-file=" + l.pki.file("ca.crt"), "--cluster-signing-key-file=" + l.pki.file("ca.key"),
		"--use-service-account-credentials=true", "--leader-elect=false", "--allocate-node-cidrs=false",
		// Networks are real from the start: without a cloud the route controllers have nothing to do, and cost.
		"--controllers=*,-node-route-controller,-cloud-node-lifecycle-controller,-service-lb-controller",
		"--node-monitor-grace-period=" + l.nodeGrace.String(), "--node-monitor-period=2s",
		"--kube-api-qps=200", "--kube-api-burst=400", "--profiling=false", "--v=1",
	}
}

func (l layout) schedulerArgs() []string {
	return []string{
		"--kubeconfig=" + l.pki.file("scheduler.conf"), "--leader-elect=false", "--secure-port=0",
		"--kube-api-qps=200", "--kube-api-burst=400", "--profiling=false", "--v=1",
	}
}

// readyTimeout is generous: a machine with two cores may be doing other things.
const readyTimeout = 2 * time.Minute

// start starts everything and waits until it works.
func (c *control) start(ctx context.Context, admin *rest.Config) error {
	if err := c.etcd.start(); err != nil {
		return err
	}
	if err := c.api.start(); err != nil { // it waits for etcd by itself
		return err
	}
	if err := c.ready(ctx, admin); err != nil {
		return err
	}
	if err := c.controllers.start(); err != nil {
		return err
	}
	return c.scheduler.start()
}

// ready waits until the API server says that it is.
func (c *control) ready(ctx context.Context, admin *rest.Config) error {
	client, err := rest.HTTPClientFor(admin)
	if err != nil {
		return fmt.Errorf("a client of the API server: %w", err)
	}
	defer client.CloseIdleConnections()
	var last error
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		for _, p := range []*program{c.etcd, c.api} {
			if err := p.ended(); err != nil {
				return false, err
			}
		}
		last = probe(ctx, client, admin.Host+"/readyz")
		return last == nil, nil
	})
	if err != nil && ctx.Err() == nil && wait.Interrupted(err) {
		return fmt.Errorf("the API server was not ready after %s (last: %w); its log %s ends:\n%s", readyTimeout, last, c.api.log, c.api.tail())
	}
	return err
}

func probe(ctx context.Context, client *http.Client, at string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return fmt.Errorf("asking %s: %w", at, err)
	}
	answer, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("asking whether it is ready: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", at, strings.ToLower(answer.Status))
	}
	return nil
}

// stop ends all processes at once; the cluster's data is discarded.
func (c *control) stop() {
	for _, p := range []*program{c.scheduler, c.controllers, c.api, c.etcd} {
		p.stop(0)
	}
}

// direct goes round proxies: the cluster is on this machine.
func direct(*http.Request) (*url.URL, error) { return nil, nil }
