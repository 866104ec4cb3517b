// Package kubesource tests the source for Kubernetes clusters against a real API server: which objects and changes it passes on and which it drops,
// and how it lives through faults. The source has the account of manifests/rbac.yaml, and no right beyond. The package holds tests only; they share
// one control plane without nodes and do not run side by side, because some of them stop the API server.
package kubesource

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/api"
	source "github.com/pilotmesh/pilot/internal/source"
	kubesource "github.com/pilotmesh/pilot/internal/source/kube"
	"github.com/pilotmesh/pilot/test/cluster"
	"github.com/pilotmesh/pilot/test/cluster/clustertest"
	"github.com/pilotmesh/pilot/test/cluster/mesh"
)

var shared clustertest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m, cluster.Options{})) }

// patience is for what takes a moment on an idle machine.
const patience = 60 * time.Second

// place is the cluster as tests see it, and a namespace of the test's own.
type place struct {
	*testing.T
	c         *cluster.Cluster
	api       kubernetes.Interface
	namespace string
}

func on(t *testing.T) *place {
	t.Helper()
	c := shared.For(t)
	p := &place{T: t, c: c, api: c.Client()}
	p.namespace = p.newNamespace(strings.ToLower(t.Name()), nil)
	return p
}

// newNamespace makes a namespace that is removed at the end of the test.
func (p *place) newNamespace(prefix string, labels map[string]string) string {
	p.Helper()
	made, err := p.api.CoreV1().Namespaces().Create(p.Context(),
		&core.Namespace{ObjectMeta: meta.ObjectMeta{GenerateName: prefix + "-", Labels: labels}}, meta.CreateOptions{})
	p.must(err)
	p.Cleanup(func() {
		_ = p.api.CoreV1().Namespaces().Delete(context.Background(), made.Name, meta.DeleteOptions{})
	})
	// Pods are refused until a controller has made the service account that they run as.
	p.kubectl("", "wait", "--for=create", "--namespace", made.Name, "serviceaccount/default", "--timeout", patience.String())
	return made.Name
}

func (p *place) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *place) kubectl(input string, args ...string) {
	p.Helper()
	p.tell(input, args...)
}

// output returns what kubectl prints.
func (p *place) output(args ...string) string {
	p.Helper()
	return p.tell("", args...)
}

func (p *place) tell(input string, args ...string) string {
	p.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience) // also for what cleans up after a test
	defer cancel()
	cmd := exec.CommandContext(ctx, p.c.Kubectl(), append([]string{"--kubeconfig", p.c.Kubeconfig(), "--namespace", p.namespace}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.Fatalf("kubectl %s: %v\n%s\n%s", strings.Join(args, " "), err, out, input)
	}
	return string(out)
}

// until waits for a condition of the cluster.
func (p *place) until(what string, ok func() bool) {
	p.Helper()
	limit := time.After(patience)
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for !ok() {
		select {
		case <-again.C:
		case <-limit:
			p.Fatalf("waiting for: %s", what)
		}
	}
}

// apply writes objects as YAML.
func (p *place) apply(yaml string) {
	p.Helper()
	p.kubectl(yaml, "apply", "-f", "-")
}

// definitions applies the definitions of Istio's kinds.
func (p *place) definitions() {
	p.Helper()
	file, err := mesh.Definitions(p.Context())
	p.must(err)
	p.kubectl("", "apply", "--server-side", "--force-conflicts", "-f", file)
	p.kubectl("", "wait", "--for=condition=Established", "crd/serviceentries.networking.istio.io", "crd/virtualservices.networking.istio.io")
}

// sink is the state that batches lead to. It checks the rules that all batches follow.
type sink struct {
	*place
	source   *kubesource.Source
	mu       sync.Mutex
	news     chan struct{}
	state    map[api.Key]source.Event
	problems map[api.Problem]bool
	mesh     []string // trust domains
	networks int
	synced   bool
	batches  []source.Batch
}

// Apply implements source.Sink.
func (s *sink) Apply(b source.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, e := range b.Events {
		_, known := s.state[e.Key]
		switch {
		case i > 0 && b.Events[i-1].Key.Compare(e.Key) >= 0:
			s.Errorf("events out of order: %v, %v", b.Events[i-1].Key, e.Key)
		case e.Removed() && !known:
			s.Errorf("%v was removed and never there", e.Key)
		case !e.Removed() && e.Added == known:
			s.Errorf("%v: added %v, known before %v", e.Key, e.Added, known)
		}
		if e.Removed() {
			delete(s.state, e.Key)
		} else {
			s.state[e.Key] = e
		}
	}
	for _, p := range b.Problems {
		if s.problems[p.Problem] == !p.Gone {
			s.Errorf("problem reported twice: %v, gone %v", p.Problem, p.Gone)
		}
		if s.problems[p.Problem] = !p.Gone; p.Gone {
			delete(s.problems, p.Problem)
		}
	}
	if b.Mesh != nil {
		s.mesh = append(s.mesh, b.Mesh.GetTrustDomain())
	}
	if b.Networks != nil {
		s.networks = len(b.Networks.GetNetworks())
	}
	if s.synced && !b.Synced {
		s.Error("Synced became false")
	}
	s.synced = b.Synced
	s.batches = append(s.batches, b)
	close(s.news)
	s.news = make(chan struct{})
}

// until waits for a condition of the state.
func (s *sink) until(what string, ok func() bool) {
	s.Helper()
	limit := time.After(patience)
	for {
		s.mu.Lock()
		done, news := ok(), s.news
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-news:
		case <-limit:
			s.mu.Lock()
			defer s.mu.Unlock()
			var about []string
			for k := range s.state {
				if !strings.HasPrefix(k.Namespace, "kube-") {
					about = append(about, k.String())
				}
			}
			slices.Sort(about)
			s.Fatalf("waiting for %s: synced %v, mesh %v, %d objects %v; problems %v", what, s.synced, s.mesh, len(s.state), about, s.problems)
		}
	}
}

func (s *sink) has(key api.Key) func() bool {
	return func() bool { _, ok := s.state[key]; return ok }
}

func (s *sink) lacks(key api.Key) func() bool {
	return func() bool { _, ok := s.state[key]; return !ok }
}

// problem reports whether there is a problem with a text.
func (s *sink) problem(text string) func() bool {
	return func() bool {
		for p := range s.problems {
			if strings.Contains(p.String(), text) {
				return true
			}
		}
		return false
	}
}

// now reports whether a condition of the state is true at the moment.
func (s *sink) now(ok func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ok()
}

// at returns the last event of an object.
func (s *sink) at(key api.Key) source.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state[key]
}

// trust returns the trust domain of the last mesh configuration.
func (s *sink) trust() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mesh) == 0 {
		return ""
	}
	return s.mesh[len(s.mesh)-1]
}

func not(f func() bool) func() bool { return func() bool { return !f() } }

// events returns the number of events of an object so far.
func (s *sink) events(key api.Key) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, b := range s.batches {
		for _, e := range b.Events {
			if e.Key == key {
				n++
			}
		}
	}
	return n
}

const clusterID = "c1"

// registry is the key of an object of the service registry.
func (p *place) registry(kind, name string) api.Key {
	return api.Key{Kind: kind, Namespace: p.namespace, Name: name, Cluster: clusterID}
}

func (p *place) config(kind, name string) api.Key {
	return api.Key{Kind: kind, Namespace: p.namespace, Name: name}
}

// start runs a source until the end of the test.
func (p *place) start(o kubesource.Options) *sink {
	p.Helper()
	s := p.run(o)
	s.until("everything is listed", func() bool { return s.synced })
	return s
}

// run is start without waiting.
func (p *place) run(o kubesource.Options) *sink {
	p.Helper()
	s := &sink{place: p, news: make(chan struct{}), state: map[api.Key]source.Event{}, problems: map[api.Problem]bool{}}
	if o.Config == nil {
		o.Config = p.account()
	}
	if o.Namespace == "" {
		o.Namespace = p.namespace
	}
	o.Cluster = clusterID
	o.Log = slog.New(slog.NewTextHandler(p.Output(), nil))
	src, err := kubesource.New(o)
	p.must(err)
	s.source = src
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- src.Run(ctx, s) }()
	p.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				p.Errorf("Run: %v", err)
			}
		case <-time.After(patience):
			p.Error("Run does not end")
		}
	})
	return s
}

// account makes the account of the control plane in the test's namespace, with the permissions of manifests/rbac.yaml, and
// returns its credentials. more are names of ConfigMaps that the account may read beside the usual one.
func (p *place) account(more ...string) *rest.Config {
	p.Helper()
	text, err := mesh.Permissions(p.namespace)
	p.must(err)
	const maps = "resourceNames: [istio]"
	if !strings.Contains(text, maps) {
		p.Fatalf("the permissions do not name the ConfigMap:\n%s", text)
	}
	text = strings.Replace(text, maps, "resourceNames: ["+strings.Join(append([]string{"istio"}, more...), ", ")+"]", 1)
	p.apply(text)
	p.Cleanup(func() { p.kubectl(text, "delete", "--ignore-not-found", "-f", "-") })
	config, err := mesh.As(p.Context(), p.c, p.namespace)
	p.must(err)
	return config
}

// as returns the configuration of a user with the permissions of a ClusterRole.
func (p *place) as(user, role string) *rest.Config {
	p.Helper()
	c := p.c.Config()
	c.Impersonate = rest.ImpersonationConfig{UserName: user}
	p.apply(fmt.Sprintf(`apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[1]s}]
---
%[2]s`, user, role))
	return c
}
