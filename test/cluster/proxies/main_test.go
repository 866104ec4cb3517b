// Package proxies tests the whole product on a Kubernetes cluster: pilot-discovery and a bookstore as pods, with a real Envoy
// under pilot-agent in each of the bookstore's pods, while pods, the API server and the control plane come and go.
//
// It holds tests only. They share one cluster and one mesh, which each test leaves as it found them, and do not run side by side.
package proxies

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/pilotmesh/pilot/test/cluster"
	"github.com/pilotmesh/pilot/test/cluster/clustertest"
	"github.com/pilotmesh/pilot/test/cluster/mesh"
	"github.com/pilotmesh/pilot/test/demo/tour"
	"github.com/pilotmesh/pilot/test/testbed"
)

var (
	shared clustertest.Shared
	// installed is the mesh of the cluster, once a test has asked for it.
	installed *mesh.Mesh
)

func TestMain(m *testing.M) { os.Exit(shared.Main(m, cluster.Options{Nodes: 2}, mesh.Images)) }

// patience is for what takes a moment on an idle machine.
const patience = 2 * time.Minute

// stage is the mesh as one test sees it, and the requests of its customers.
type stage struct {
	*testing.T
	*mesh.Mesh
	load *testbed.Load
	// total and failures count the customers' requests; first is why one failed first.
	total, failures int
	first           error
}

// on starts customers of the bookstore, whose reviews are all of v1.
func on(t *testing.T) *stage {
	t.Helper()
	c := shared.For(t)
	if installed == nil {
		m, err := mesh.New(c)
		if err = errors.Join(err, m.StartControl(t.Context())); err != nil {
			t.Fatal(err)
		}
		if err := m.StartBookstore(t.Context()); err != nil {
			t.Fatal(err)
		}
		installed = m
	}
	s := &stage{T: t, Mesh: installed}
	s.edit(tour.Weights{100})
	t.Cleanup(s.explain)
	client := testbed.NewClient()
	t.Cleanup(client.CloseIdleConnections)
	s.until("the shop to be open", func(ctx context.Context) error {
		version, err := tour.Visit(ctx, client, s.Shop())
		if err == nil && version != "v1" {
			err = fmt.Errorf("reviews are of %s", version)
		}
		return err
	})
	s.load = testbed.StartAsking(t.Context(), 4, 50, func(ctx context.Context, client *http.Client) (string, error) {
		return tour.Visit(ctx, client, s.Shop())
	})
	return s
}

// explain shows the pods, and the logs of the control plane and of the proxy that customers reach, if the test has failed.
func (s *stage) explain() {
	if !s.Failed() {
		return
	}
	ctx := context.Background()
	pods, _ := s.Kubectl(ctx, "", "get", "pods", "-A", "-o", "wide")
	log, _ := s.Kubectl(ctx, "", "logs", "-n", mesh.ControlNamespace, "deployment/istiod", "--tail=40")
	shop, _ := s.Kubectl(ctx, "", "logs", "-n", mesh.Namespace, "deployment/shop", "--container=istio-proxy", "--tail=40")
	s.Logf("pods:\n%s\nthe log of the control plane:\n%s\nthe log of the shop's proxy:\n%s", pods, log, shop)
}

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *stage) kubectl(args ...string) string {
	s.Helper()
	out, err := s.Kubectl(s.Context(), "", args...)
	s.must(err)
	return out
}

// until waits for a condition.
func (s *stage) until(what string, f func(context.Context) error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last error // that says more than that the time is up
	for {
		err := f(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.Fatalf("waiting for %s: %v", what, last)
		}
	}
}

// edit changes the weights of the reviews, with kubectl.
func (s *stage) edit(w tour.Weights) {
	s.Helper()
	text, err := os.ReadFile(s.Sample("config/routes.yaml"))
	s.must(err)
	_, err = s.Kubectl(s.Context(), w.In(string(text)), "apply", "-f", "-")
	s.must(err)
}

// take counts the answers since it was called last.
func (s *stage) take() testbed.Tally {
	t := s.load.Take()
	s.count(t)
	return t
}

func (s *stage) count(t testbed.Tally) {
	s.total += t.Total()
	if s.failures += t.Failures; s.first == nil {
		s.first = t.First
	}
}

// onlyBy waits until a version answers all customers.
func (s *stage) onlyBy(version string) {
	s.Helper()
	s.take()
	sum := testbed.Tally{Answers: map[string]int{}}
	s.until("all reviews to be of "+version, func(context.Context) error {
		for v, n := range s.take().Answers {
			if sum.Answers[v] += n; v != version {
				clear(sum.Answers)
			}
		}
		if sum.Answers[version] < 50 {
			return fmt.Errorf("%d in a row", sum.Answers[version])
		}
		return nil
	})
}

// noneFailed ends the load.
func (s *stage) noneFailed() {
	s.Helper()
	s.count(s.load.Stop())
	s.Logf("%d requests", s.total)
	if s.failures > 0 || s.total == 0 {
		s.Errorf("%d of %d requests failed, the first at %v", s.failures, s.total, s.first)
	}
	s.must(s.Rejected(s.Context()))
}

// version are the pods of a version of the reviews.
func (s *stage) version(ctx context.Context, version string) ([]core.Pod, error) {
	pods, err := s.Pods(ctx, "reviews")
	var of []core.Pod
	for _, p := range pods {
		if p.Labels["version"] == version {
			of = append(of, p)
		}
	}
	return of, err
}

func ready(p *core.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == core.PodReady {
			return c.Status == core.ConditionTrue
		}
	}
	return false
}
