package proxies

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/cluster/mesh"
	"github.com/pilotmesh/pilot/test/demo/tour"
)

// TestAPIServerOutage: the API server is killed and started again. Requests continue, and an edit made as soon as it is back arrives.
func TestAPIServerOutage(t *testing.T) {
	s := on(t)
	s.onlyBy("v1")
	s.Cluster.KillAPIServer()
	const unreachable = "cannot reach the API server"
	problem := func(ctx context.Context) (bool, error) {
		problems, err := s.Problems(ctx)
		return strings.Contains(strings.Join(problems, "\n"), unreachable), err
	}
	s.until("the control plane to miss the API server", func(ctx context.Context) error {
		if missed, err := problem(ctx); err != nil || !missed {
			return errors.Join(err, errors.New("no problem"))
		}
		return nil
	})
	s.onlyBy("v1")
	s.must(s.Cluster.StartAPIServer(t.Context()))
	s.edit(tour.Weights{0, 100, 0})
	s.onlyBy("v2")
	s.until("the problem to end", func(ctx context.Context) error {
		if missed, err := problem(ctx); err != nil || missed {
			return errors.Join(err, errors.New("there is a problem"))
		}
		return nil
	})
	s.noneFailed()
}

// changed matches the statistics of Envoy that grow when a cluster or a listener is added, replaced or removed.
const changed = `cluster_manager\.cluster_(added|modified|removed)|listener_manager\.listener_(added|modified|removed|create_success|in_place_updated)`

// held are the counters of all sidecars, by pod.
func (s *stage) held() map[string]map[string]int64 {
	s.Helper()
	pods, err := s.Pods(s.Context(), "")
	s.must(err)
	all := map[string]map[string]int64{}
	for _, p := range pods {
		all[p.Name], err = s.Stats(s.Context(), p.Name, changed)
		s.must(err)
		if len(all[p.Name]) < 6 {
			t := all[p.Name]
			s.Fatalf("%s has too few statistics to tell anything: %v", p.Name, t)
		}
	}
	return all
}

// restarts is how often the control plane was started again.
func (s *stage) restarts(ctx context.Context) (string, error) {
	out, err := s.Kubectl(ctx, "", "get", "pods", "-n", mesh.ControlNamespace, "-l", "app=istiod",
		"-o", "jsonpath={.items[*].status.containerStatuses[0].restartCount}")
	return strings.TrimSpace(out), err
}

// TestControlPlaneCrash: pilot-discovery is killed and started again. Requests continue, and proxies that come back are sent
// nothing that they have already: the first thing they get is the next edit.
func TestControlPlaneCrash(t *testing.T) {
	s := on(t)
	s.onlyBy("v1")
	proxies, err := s.Pods(t.Context(), "")
	s.must(err)
	before := s.held()
	count, err := s.restarts(t.Context())
	s.must(err)
	// The kernel protects the first process of a container from SIGKILL sent inside. SIGQUIT makes a Go program crash.
	s.kubectl("exec", "-n", mesh.ControlNamespace, "deployment/istiod", "--", "kill", "-QUIT", "1")
	s.until("the control plane to be started again", func(ctx context.Context) error {
		if now, err := s.restarts(ctx); err != nil || now == count {
			return errors.Join(err, fmt.Errorf("it was started again %s times", now))
		}
		_, err := s.Get(ctx, "/ready")
		return err
	})
	for _, p := range proxies {
		s.until(p.Name+" to be connected again", func(ctx context.Context) error {
			stats, err := s.Stats(ctx, p.Name, `^control_plane\.connected_state$`)
			if err == nil && stats["control_plane.connected_state"] != 1 {
				err = errors.New("it is not")
			}
			return err
		})
	}
	edited := time.Now()
	s.edit(tour.Weights{0, 100, 0})
	s.onlyBy("v2")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = s.AwaitSettled(ctx, edited)
	s.must(err)
	for pod, now := range s.held() {
		if was := before[pod]; !maps.Equal(was, now) {
			t.Errorf("the clusters or listeners of %s were sent again: before %v, now %v", pod, was, now)
		}
	}
	for typ, want := range map[string]float64{"cds": 0, "eds": 0, "lds": 0, "rds": 0, "vhds": 1} { // the edit is one virtual host of the shop
		sent, err := s.Metric(t.Context(), "pilot_xds_sent_resources_total", `type="`+typ+`"`)
		s.must(err)
		if sent != want {
			t.Errorf("the new control plane has sent %v resources of type %s, want %v", sent, typ, want)
		}
	}
	s.noneFailed()
}

// replicas sets the number of control planes and waits until they are ready.
func (s *stage) replicas(n int) {
	s.Helper()
	const deployment = "deployment/istiod"
	s.kubectl("scale", "-n", mesh.ControlNamespace, deployment, fmt.Sprintf("--replicas=%d", n))
	s.kubectl("rollout", "status", "-n", mesh.ControlNamespace, deployment, "--timeout", patience.String())
}

// alone ends all control planes but one.
func (s *stage) alone() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := s.Kubectl(ctx, "", "scale", "-n", mesh.ControlNamespace, "deployment/istiod", "--replicas=1")
	_, done := s.Kubectl(ctx, "", "rollout", "status", "-n", mesh.ControlNamespace, "deployment/istiod")
	if err = errors.Join(err, done); err != nil {
		s.Error(err)
	}
}

// leader is the name of the pod that has the lease.
func (s *stage) leader(ctx context.Context) (string, error) {
	out, err := s.Kubectl(ctx, "", "get", "lease", "-n", mesh.ControlNamespace, "pilot-discovery-leader", "-o", "jsonpath={.spec.holderIdentity}")
	return strings.TrimSpace(out), err
}

// TestLeaderKilled: there are two control planes, and the one that leads is killed. Requests continue, an edit arrives at all proxies, and the
// other one writes the status of the edited object.
func TestLeaderKilled(t *testing.T) {
	s := on(t)
	s.onlyBy("v1")
	s.replicas(2)
	t.Cleanup(s.alone)
	before := s.held()
	killed, err := s.leader(t.Context())
	s.must(err)
	s.kubectl("delete", "pod", "-n", mesh.ControlNamespace, killed, "--grace-period=0", "--force")
	s.edit(tour.Weights{0, 100, 0})
	s.onlyBy("v2")
	s.until("another leader that has written the status of the edited object", func(ctx context.Context) error {
		now, err := s.leader(ctx)
		if err != nil || now == killed {
			return errors.Join(err, fmt.Errorf("the leader is %q", now))
		}
		out, err := s.Kubectl(ctx, "", "get", "-n", mesh.Namespace, "virtualservice/reviews", "-o", "jsonpath={.metadata.generation} {.status.observedGeneration}")
		if of, seen, _ := strings.Cut(strings.TrimSpace(out), " "); err != nil || of != seen {
			return errors.Join(err, fmt.Errorf("generation %q, of which %q has a status", of, seen))
		}
		return nil
	})
	for pod, now := range s.held() {
		if was := before[pod]; !maps.Equal(was, now) {
			t.Errorf("the clusters or listeners of %s were sent again: before %v, now %v", pod, was, now)
		}
	}
	s.noneFailed()
}
