package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/pilotmesh/pilot/test/demo/tour"
	"github.com/pilotmesh/pilot/test/envoy"
	"github.com/pilotmesh/pilot/test/kit/certs"
	"github.com/pilotmesh/pilot/test/testbed"
)

// workload is one running copy of a service, as samples/bookstore/config/services.yaml has it.
type workload struct {
	service, version string
	address          string // where its sidecar listens
	port             int    // of the application, and of its sidecar
	calls            string // services and where the sidecar listens for them
}

func (w workload) name() string { return w.service + "-" + w.version }

// bookstore are the workloads. The first is what customers see.
func bookstore() []workload {
	return []workload{
		{"shop", "v1", "127.1.0.1", 9011, "catalog:9020,reviews:9030"},
		{"catalog", "v1", "127.1.0.2", 9021, ""},
		{"reviews", "v1", "127.1.0.3", 9031, ""},
		{"reviews", "v2", "127.1.0.4", 9032, ""},
		{"reviews", "v3", "127.1.0.5", 9033, "ratings:9040"},
		{"ratings", "v1", "127.1.0.6", 9041, ""},
	}
}

// usualHTTP is where pilotctl asks by itself.
const usualHTTP = "127.0.0.1:8080"

// stage is everything the demo runs.
type stage struct {
	*tour.Screen
	tour      *tour.Tour
	root, dir string
	offset    int          // of the sample's ports
	lock      net.Listener // says that they are taken
	envoy     string
	discovery *testbed.Discovery
	authority *certs.Authority // of the gateway's certificates
	apps      []*testbed.Program
	agents    []*testbed.Agent
	seen      string    // snapshot of the files
	looked    time.Time // when it was taken
	missing   bool      // the control plane
}

// open starts all parts. If it fails, close stops the parts that it has started.
func (s *stage) open(ctx context.Context) error {
	for _, name := range []string{"pilot-discovery", "pilot-agent", "pilotctl", "bookstore"} {
		if _, err := os.Stat(s.bin(name)); err != nil {
			return fmt.Errorf("bin/%s is not built: run `make demo`, which builds it", name)
		}
	}
	var version string
	var err error
	if s.envoy, version, err = envoy.Find(ctx, s.root); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", "bookstore-"); err != nil {
		return err
	}
	s.Line(s.In(tour.Bold, "A bookstore: four services, one of them in three versions, and a sidecar beside each workload"))
	s.Picture()
	for _, part := range []struct {
		what  string
		start func(context.Context) error
	}{
		{"the control plane, pilot-discovery, serves a copy of samples/bookstore", s.control},
		{"six workloads", s.workloads},
		{"six sidecars: pilot-agent, each with an Envoy " + version, s.sidecars},
		{"a gateway, which serves the shop over HTTPS", s.ingress},
		{"the first customer", s.welcome},
	} {
		if err := s.Step(part.what, func() error { return part.start(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) bin(name string) string { return filepath.Join(s.root, "bin", name) }

// control copies the sample and starts the control plane on the copy.
func (s *stage) control(ctx context.Context) (err error) {
	if err = s.takePorts(); err != nil {
		return err
	}
	if s.discovery, err = testbed.NewDiscovery(s.bin("pilot-discovery"), s.dir); err != nil {
		return err
	}
	s.discovery.TLSOnly()
	if bindable(usualHTTP) == nil {
		s.discovery.HTTP = usualHTTP
	}
	if err := os.Symlink(s.bin("pilotctl"), filepath.Join(s.dir, "pilotctl")); err != nil {
		return err
	}
	for from, to := range map[string]string{"config": s.discovery.ConfigDir, "try": filepath.Join(s.dir, "try")} {
		if err := s.copy(filepath.Join(s.root, "samples", "bookstore", from), to); err != nil {
			return err
		}
	}
	if err := s.credentials(); err != nil {
		return err
	}
	s.discovery.Args = []string{"--credentialsDir=" + s.secrets()}
	return s.discovery.Start(ctx)
}

// samplePort matches the ports of the sample.
var samplePort = regexp.MustCompile(`\b90[1-4]\d\b`)

// shift moves the sample's ports to where they are free.
func (s *stage) shift(text string) string {
	return samplePort.ReplaceAllStringFunc(text, func(port string) string {
		n, _ := strconv.Atoi(port)
		return strconv.Itoa(n + s.offset)
	})
}

func (s *stage) copy(from, to string) error {
	files, err := filepath.Glob(filepath.Join(from, "*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no sample in %s: %w", from, errors.Join(err, os.ErrNotExist))
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(f)), []byte(s.shift(string(text))), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// takePorts finds how far the sample's ports have to be moved because of what else runs on this machine, and keeps
// other demos from taking the same ones.
func (s *stage) takePorts() (err error) {
	for _, s.offset = range []int{0, 10000, 20000, 1000, 11000} {
		// A sidecar could share its port with another demo's without an error, so there is one port that cannot be shared.
		if s.lock, err = net.Listen("tcp", testbed.Loopback(9000+s.offset)); err != nil {
			continue
		}
		err = bindable(testbed.Loopback(ingressPort + s.offset))
		for _, w := range bookstore() {
			port := strconv.Itoa(w.port + s.offset)
			err = errors.Join(err, bindable("127.0.0.1:"+port), bindable(w.address+":"+port))
			for _, call := range regexp.MustCompile(`\d{4,}`).FindAllString(s.shift(w.calls), -1) {
				err = errors.Join(err, bindable("127.0.0.1:"+call))
			}
		}
		if err == nil {
			return nil
		}
		s.lock.Close()
	}
	return fmt.Errorf("the bookstore finds no ports: %w; stop what listens there (ss -tlnp shows it; other demos, maybe), "+
		"and note that this needs Linux, where all of 127.0.0.0/8 is this machine", err)
}

func bindable(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return l.Close()
}

// workloads starts the applications.
func (s *stage) workloads(ctx context.Context) error {
	for _, w := range bookstore() {
		address := testbed.Loopback(w.port + s.offset)
		app, err := testbed.StartProgram(w.name(), s.dir, s.bin("bookstore"), "-role="+w.service, "-version="+w.version,
			"-listen="+address, "-calls="+s.shift(w.calls))
		if err != nil {
			return err
		}
		s.apps = append(s.apps, app)
		if err := app.AwaitAnswer(ctx, "http://"+address+"/served"); err != nil {
			return err
		}
	}
	return nil
}

// sidecars starts an agent for each workload, and waits until all are ready. Each has a token of its service account, gets a certificate
// for it, and calls the control plane over TLS.
func (s *stage) sidecars(ctx context.Context) error {
	for _, w := range bookstore() {
		args, env, err := s.discovery.Certified(ctx, s.bin("pilotctl"), s.dir, "bookstore", w.service)
		if err != nil {
			return err
		}
		a, err := testbed.StartAgent(testbed.AgentOptions{
			Binary: s.bin("pilot-agent"), Envoy: s.envoy, Args: append(args, "--terminationDrainDuration=0s"), Env: env,
		}, s.dir, testbed.Node{Name: w.name(), Namespace: "bookstore", IP: w.address, Discovery: s.discovery.Secure})
		if err != nil {
			return err
		}
		s.agents = append(s.agents, a)
	}
	for _, a := range s.agents {
		if err := a.AwaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// close stops everything that was started, in the order in which requests are answered longest.
func (s *stage) close() {
	if s.tour != nil {
		s.tour.Stop()
	}
	var ending sync.WaitGroup
	for _, a := range s.agents {
		ending.Go(func() { a.End(syscall.SIGTERM) })
	}
	ending.Wait()
	for _, app := range s.apps {
		app.Stop()
	}
	if s.discovery != nil {
		s.discovery.Stop()
	}
	if s.lock != nil {
		s.lock.Close()
	}
	if s.dir != "" {
		os.RemoveAll(s.dir)
	}
}
