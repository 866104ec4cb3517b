// Package environment is where a case takes place: two network namespaces, a control plane, an Envoy that takes its
// configuration from it, and requests through that Envoy. FORMAT.md draws it.
//
// Run owns everything: each of its workers, a goroutine, has an environment of its own and runs cases in it one after the other.
// Inside each namespace a child process of ours holds servers, clients and Envoy, and takes orders over its stdin. All
// processes end with the runner, however that ends; namespaces and folders that a killed run left are replaced by the
// next one with the same id.
package environment

import (
	"context"
	"fmt"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/pilotmesh/pilot/test/exam/backend"
	"github.com/pilotmesh/pilot/test/exam/pki"
	"github.com/pilotmesh/pilot/test/kit/process"
)

// environment is the two network namespaces of FORMAT.md with a child process in each, shared by all cases of a worker.
type environment struct {
	name  string // pilot-exam-N or pilot-exam-N.J
	base  int    // first loopback port of this environment
	dir   string
	keys  *pki.Material
	lock  *os.File
	wl    *peer
	net   *peer
	sds   *sdsServer
	jwks  string // URL of the key set
	stops []func()
}

// peer is the runner's end of a child process.
type peer struct {
	*rpc.Client
	process *process.Process
	stdin   io.Closer
	broken  bool
}

// ChildCommand is the first argument by which the runner starts itself inside a namespace.
const ChildCommand = "_child"

const envoyUID = 1337

func newEnvironment(id, worker int, keys *pki.Material) (env *environment, err error) {
	env = &environment{name: fmt.Sprintf("pilot-exam-%d", id), base: 21000 + id*160 + worker*20, keys: keys}
	if worker > 0 {
		env.name += fmt.Sprintf(".%d", worker)
	}
	defer func() {
		if err != nil {
			env.close()
		}
	}()
	if env.lock, err = os.OpenFile("/run/"+env.name+".lock", os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return env, err
	}
	if err := syscall.Flock(int(env.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		env.lock.Close()
		env.lock = nil
		return env, fmt.Errorf("another run uses %s: choose another -id", env.name)
	}
	// In /run whatever TMPDIR is: Envoy's user must get there, and a socket's path must be short. What a killed run left
	// is ours to remove, the lock says.
	env.dir = filepath.Join("/run", env.name)
	os.RemoveAll(env.dir)
	if err := os.MkdirAll(env.dir, 0o755); err != nil {
		return env, err
	}
	if err := keys.WriteFiles(filepath.Join(env.dir, "pki")); err != nil {
		return env, err
	}
	if err := env.namespaces(); err != nil {
		return env, err
	}
	return env, env.children()
}

func (env *environment) ns(which string) string { return env.name + "-" + which }

// namespaces makes both namespaces and the wire between them, over the remains of a killed run if need be.
func (env *environment) namespaces() error {
	env.removeNamespaces()
	wl, nt := env.ns("wl"), env.ns("net")
	if err := os.MkdirAll("/etc/exam", 0o755); err != nil {
		return err
	}
	for _, n := range []string{wl, nt} {
		// `ip netns exec` shows these files as /etc/resolv.conf and /etc/exam
		etc := filepath.Join("/etc/netns", n)
		if err := os.MkdirAll(etc, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(etc, "resolv.conf"), []byte("nameserver 10.77.0.53\noptions timeout:1 attempts:2\n"), 0o644); err != nil {
			return err
		}
		if err := copyFiles(filepath.Join(env.dir, "pki"), filepath.Join(etc, "exam")); err != nil {
			return err
		}
	}
	cmds := fmt.Sprintf(`netns add %[1]s
netns add %[2]s
link add eth0 netns %[1]s type veth peer name eth0 netns %[2]s`, wl, nt)
	for _, n := range []struct{ ns, v4, v6 string }{{wl, "10.76.0.2/24", "fd76::2/64"}, {nt, "10.76.0.1/24", "fd76::1/64"}} {
		cmds += fmt.Sprintf(`
-n %[1]s link set lo up
-n %[1]s addr add %[2]s dev eth0
-n %[1]s addr add %[3]s dev eth0 nodad
-n %[1]s link set eth0 up`, n.ns, n.v4, n.v6)
	}
	cmds += fmt.Sprintf(`
-n %[1]s route add default via 10.76.0.1
-n %[1]s -6 route add default via fd76::1`, wl)
	for _, r := range []string{"10.77.0.0/16", "10.78.0.0/16", "10.99.0.0/16"} {
		cmds += fmt.Sprintf("\n-n %s route add local %s dev lo", nt, r)
	}
	cmds += fmt.Sprintf("\n-n %s -6 route add local fd77::/64 dev lo", nt)
	for _, c := range strings.Split(cmds, "\n") {
		if out, err := exec.Command("ip", strings.Fields(c)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", c, err, out)
		}
	}
	return nil
}

func copyFiles(from, to string) error {
	es, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, e := range es {
		b, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, e.Name()), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (env *environment) removeNamespaces() {
	for _, n := range []string{env.ns("wl"), env.ns("net")} {
		if _, err := os.Stat("/run/netns/" + n); err == nil {
			_ = exec.Command("ip", "netns", "del", n).Run() // the next run says so if it is still there
		}
		os.RemoveAll("/etc/netns/" + n)
	}
}

// children starts the process of each namespace.
func (env *environment) children() error {
	member, err := env.keys.Mesh.Issue(pki.Spiffe("cluster.local", "default", "backend"))
	if err != nil {
		return err
	}
	intruder, err := env.keys.Mesh.Issue(pki.Spiffe("cluster.local", "other", "intruder"))
	if err != nil {
		return err
	}
	setup := ChildSetup{
		PKI:      &backend.Keys{Backend: member, Intruder: intruder, MeshCA: env.keys.Mesh.Pair().Cert, PublicCert: env.keys.Public.Pair()},
		PublicCA: filepath.Join(env.dir, "pki", "public-ca.pem"),
	}
	if env.wl, err = env.child(env.ns("wl"), setup); err != nil {
		return err
	}
	setup.DNS = "10.77.0.53:53"
	if env.net, err = env.child(env.ns("net"), setup); err != nil {
		return err
	}
	return env.net.call("Listen", []int{}, nil)
}

func (env *environment) child(ns string, setup ChildSetup) (*peer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("ip", "netns", "exec", ns, self, ChildCommand)
	cmd.Stderr = os.Stderr
	// its own process group: Ctrl-C reaches the runner, which stops the children in order
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started, err := process.Start(cmd)
	if err != nil {
		return nil, err
	}
	p := &peer{Client: jsonrpc.NewClient(stdio{out, in}), process: started, stdin: in}
	if err := p.call("Setup", &setup, nil); err != nil {
		p.stop()
		return nil, fmt.Errorf("namespace %s: %w", ns, err)
	}
	return p, nil
}

// call is an order to the child. One that is not answered in time breaks the peer: the environment must be made again.
func (p *peer) call(method string, args, reply any) error {
	return p.callCtx(context.Background(), method, args, reply)
}

func (p *peer) callCtx(ctx context.Context, method string, args, reply any) error {
	c := p.Go("Child."+method, args, reply, make(chan *rpc.Call, 1))
	select {
	case <-c.Done:
		if _, fromChild := c.Error.(rpc.ServerError); c.Error != nil && !fromChild {
			p.broken = true
		}
		return c.Error
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(callLimit):
		p.broken = true
		return fmt.Errorf("%s: the namespace's process does not answer", method)
	}
}

const callLimit = 2 * time.Minute

func (p *peer) stop() {
	p.stdin.Close()
	t := time.AfterFunc(3*time.Second, p.process.Kill)
	defer t.Stop()
	<-p.process.Done() // how it ended no longer matters
}

// close removes everything the environment made.
func (env *environment) close() {
	for _, p := range []*peer{env.wl, env.net} {
		if p != nil {
			p.stop()
		}
	}
	for _, f := range env.stops {
		f()
	}
	if env.lock != nil {
		env.removeNamespaces()
		env.lock.Close() // the file stays: removing it would let two runs hold one name
	}
	if env.dir != "" {
		os.RemoveAll(env.dir)
	}
}
