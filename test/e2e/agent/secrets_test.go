package agent

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pilotmesh/pilot/internal/agent/secret"
	life "github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/test/testbed"
)

func quietLog() *log.Logger { return log.New(io.Discard, "", 0) }

// TestMissingFiles: a host whose files are not there fails, and nothing else does. When they come it heals; when they
// change, Envoy follows without a restart; a file that is no certificate changes nothing.
func TestMissingFiles(t *testing.T) {
	b := newBed(t)
	v := newVault(b, "MUTUAL")
	b.serve()
	a := b.ready(options(), testbed.Node{})
	pair, roots := "file-cert:"+v.file("cert.pem")+"~"+v.file("key.pem"), "file-root:"+v.file("ca.pem")

	v.fails()
	b.secretState(a, pair, "missing", "cert.pem: no such file or directory")
	b.secretState(a, roots, "missing", "ca.pem: no such file or directory")
	b.problem(pair, "the agent of app.shop has trouble with this secret: ")
	b.problem(roots, "ca.pem: no such file or directory")
	if log := a.Log(); !strings.Contains(log, "a secret is not available; connections that need it fail") {
		b.Error("the log does not tell of the missing secret")
	}

	v.put()
	v.opens("first")
	b.secretState(a, pair, "served", "")
	b.problem(pair, "")
	b.problem(roots, "")
	if n, err := a.Sum(b.Context(), `^(cluster_manager\.cds|listener_manager\.lds)\.update_rejected$`); n != 0 || err != nil {
		b.Errorf("%d rejections, %v", n, err)
	}

	v.renew("second")
	v.put()
	v.opens("second")

	if err := os.WriteFile(v.file("key.pem"), []byte("garbage"), 0o600); err != nil {
		b.Fatal(err)
	}
	if err := os.Remove(v.file("ca.pem")); err != nil {
		b.Fatal(err)
	}
	b.secretState(a, pair, "kept", "key.pem: it has no PEM block")
	b.secretState(a, roots, "kept", "ca.pem: no such file or directory")
	b.problem(pair, "the last good one stays in use")
	v.stays("second")
	b.answers()

	v.renew("third")
	v.put()
	v.opens("third")
	b.onlyEnvoy(a)
	if log := a.Log(); strings.Contains(log, "PRIVATE KEY") {
		b.Error("the log has a key in it")
	}
}

// TestSimpleFromLinkedFiles: a rule of mode SIMPLE, whose roots are mounted as Kubernetes does it.
func TestSimpleFromLinkedFiles(t *testing.T) {
	b := newBed(t)
	v := newVault(b, "SIMPLE")
	swap := func(version string) {
		dir := v.file(version)
		if err := os.Mkdir(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "ca.pem"), []byte(v.ca.Pair().Cert), 0o600); err != nil {
			b.Fatal(err)
		}
		if err := os.Symlink(version, v.file("..data_tmp")); err != nil {
			b.Fatal(err)
		}
		if err := os.Rename(v.file("..data_tmp"), v.file("..data")); err != nil {
			b.Fatal(err)
		}
	}
	swap("..1")
	if err := os.Symlink("..data/ca.pem", v.file("ca.pem")); err != nil {
		b.Fatal(err)
	}
	b.serve()
	a := b.ready(options(), testbed.Node{})
	v.opens("nobody")
	v.renew("x")
	v.fails() // the backend's new authority is unknown: nothing is let pass unverified
	swap("..2")
	v.opens("nobody")
	b.onlyEnvoy(a)
}

// TestMountedCertificates are the workload's identity, where Istio looks for them: a rule of mode ISTIO_MUTUAL uses them.
func TestMountedCertificates(t *testing.T) {
	b := newBed(t)
	v := newVault(b, "ISTIO_MUTUAL")
	b.serve()
	o := options()
	o.Dir = b.TempDir()
	a := b.ready(o, testbed.Node{})
	v.fails()
	b.secretState(a, "default", "missing", "there is no workload certificate at ./etc/certs/cert-chain.pem")
	b.secretState(a, "ROOTCA", "missing", "there is no file with the mesh's roots at ./etc/certs/root-cert.pem")
	certs := filepath.Join(o.Dir, "etc", "certs")
	if err := os.MkdirAll(certs, 0o755); err != nil {
		b.Fatal(err)
	}
	for name, text := range map[string]string{"root-cert.pem": v.ca.Pair().Cert, "cert-chain.pem": v.pair.Cert, "key.pem": v.pair.Key} {
		if err := os.WriteFile(filepath.Join(certs, name), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	v.opens("first")
	b.onlyEnvoy(a)
}

// foreign is an SDS server in the agent's place, which can be stopped and started.
type foreign struct {
	*bed
	dir, socket string
	stop        func()
}

// foreignName is the file of its socket.
const foreignName = "other"

func newForeign(b *bed) *foreign {
	b.Helper()
	// Of its own because a socket's path must be short, and test directories are not.
	dir, err := os.MkdirTemp("", "agent-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &foreign{bed: b, dir: dir, socket: filepath.Join(dir, "var/run/secrets/workload-spiffe-uds", foreignName)}
}

// options have the agent's Envoy ask the foreign server.
func (f *foreign) options() testbed.AgentOptions {
	o := options()
	o.Dir = f.dir
	o.Env = []string{"WORKLOAD_IDENTITY_SOCKET_FILE=" + foreignName}
	return o
}

// start serves what an agent serves.
func (f *foreign) start() {
	f.Helper()
	log := slog.New(slog.DiscardHandler)
	board := secret.NewBoard(log)
	group := life.New(log, patience)
	group.Add(life.Actor{Name: "secrets", Run: board.Run})
	group.Add(life.Actor{Name: "files", Run: secret.NewFiles(board, log).Run})
	f.run(group, secret.NewServer(board).Register)
}

// run serves the registered services.
func (f *foreign) run(group *life.Group, register func(*grpc.Server)) {
	f.Helper()
	l, err := secret.Listen(f.Context(), f.socket)
	if err != nil {
		f.Fatal(err)
	}
	server := grpc.NewServer()
	register(server)
	group.Add(life.GRPC("secrets", l, server, func(context.Context) {}, 0))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- group.Run(ctx) }()
	stopped := false
	f.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			f.Error(err)
		}
	}
	f.Cleanup(f.stop)
}

// TestSecretServerAbsentLateRestarted: without a secret server, a new sidecar is ready all the same, and only the host that needs a secret fails.
// When a server comes it heals, while the server is away all hosts work, and when it is back it is followed.
func TestSecretServerAbsentLateRestarted(t *testing.T) {
	b := newBed(t)
	v := newVault(b, "MUTUAL")
	v.put()
	b.serve()
	f := newForeign(b)
	a := b.ready(f.options(), testbed.Node{})
	v.fails()

	f.start()
	v.opens("first")

	f.stop()
	v.stays("first")
	b.answers()
	b.follows()
	v.renew("second")
	v.put()
	f.start()
	v.opens("second")
	b.onlyEnvoy(a)
}

// nonsense answers each stream with something else that is no answer, and then with nothing more.
type nonsense struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer
	answers []*discoveryv3.DiscoveryResponse
	asked   chan string // the names asked for, with the number of the answer
}

func (n *nonsense) StreamSecrets(st secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	req, err := st.Recv()
	if err != nil {
		return err
	}
	for i, r := range n.answers {
		r := &discoveryv3.DiscoveryResponse{VersionInfo: fmt.Sprint(i), Nonce: fmt.Sprint(i), TypeUrl: r.TypeUrl, Resources: r.Resources}
		if err := st.Send(r); err != nil {
			return err
		}
	}
	n.asked <- req.GetResourceNames()[0]
	<-st.Context().Done()
	return nil
}

// TestSecretServerTalksNonsense: Envoy takes nothing of it, and nothing but the host that needs the secret fails.
func TestSecretServerTalksNonsense(t *testing.T) {
	const secretType = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	other, err := anypb.New(durationpb.New(1))
	if err != nil {
		t.Fatal(err)
	}
	b := newBed(t)
	v := newVault(b, "SIMPLE")
	v.put()
	b.serve()
	f := newForeign(b)
	n := &nonsense{asked: make(chan string, 100), answers: []*discoveryv3.DiscoveryResponse{
		{TypeUrl: secretType},
		{TypeUrl: "type.googleapis.com/no.such.Type"},
		{TypeUrl: secretType, Resources: []*anypb.Any{other}},
		{TypeUrl: secretType, Resources: []*anypb.Any{{TypeUrl: secretType, Value: []byte("garbage")}}},
	}}
	f.run(life.New(slog.New(slog.DiscardHandler), patience), func(g *grpc.Server) { secretv3.RegisterSecretDiscoveryServiceServer(g, n) })
	a := b.ready(f.options(), testbed.Node{})
	if got, want := <-n.asked, "file-root:"+v.file("ca.pem"); got != want {
		t.Errorf("Envoy asked for %s, want %s", got, want)
	}
	v.fails()
	f.stop()
	f.start()
	v.opens("nobody")
	b.onlyEnvoy(a)
}
