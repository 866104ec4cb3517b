package proof

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestEchoSample: the sample manifest runs, and every protocol gets through by ClusterIP, LoadBalancer address and name.
func TestEchoSample(t *testing.T) {
	s := on(t)
	s.kubectl("apply", "-f", sample("echo"))
	s.kubectl("rollout", "status", "deployment/echo", "--timeout=90s")
	ask := s.asker()
	hosts := []string{"echo", "echo." + s.namespace + ".svc.cluster.local"}
	balancer := ""
	s.until("LoadBalancer addresses", func(ctx context.Context) error {
		service, err := s.api.CoreV1().Services(s.namespace).Get(ctx, "echo", meta.GetOptions{})
		if err != nil || len(service.Status.LoadBalancer.Ingress) == 0 {
			return unmet(err, "none yet")
		}
		hosts, balancer = hosts[:2], service.Status.LoadBalancer.Ingress[0].IP
		for _, i := range service.Status.LoadBalancer.Ingress {
			hosts = append(hosts, i.IP)
		}
		// Of both families, where the machine has IPv6.
		hosts = append(hosts, service.Spec.ClusterIPs...)
		return nil
	})
	for _, target := range []string{"http://HOST", "h2c://HOST:80", "https://HOST", "grpc://HOST:9090", "tcp-server-first://HOST:7001", "tcp://HOST:7002", "udp://HOST:7003"} {
		for _, host := range hosts {
			if strings.Contains(host, ":") {
				host = "[" + host + "]"
			}
			at := strings.ReplaceAll(target, "HOST", host)
			s.until(at+" from a pod", func(context.Context) error {
				out, err := ask("--count=20", "--fresh", "--timeout=2s", at)
				if err != nil || strings.Count(out, "answered") != 2 {
					return unmet(err, "want answers of both pods:\n%s", out)
				}
				return nil
			})
		}
		at := strings.ReplaceAll(target, "HOST", balancer)
		if out, err := exec.CommandContext(t.Context(), s.workload(), "call", "--count=5", "--timeout=2s", at).CombinedOutput(); err != nil {
			t.Errorf("%s from the machine: %v\n%s", at, err, out)
		}
	}
}

// TestBookstoreSample: the demo runs as Deployments, and the customer sees pages with the reviews of all versions. Deleted as
// people do it, the whole namespace ends.
func TestBookstoreSample(t *testing.T) {
	s := on(t)
	s.kubectl("apply", "-f", sample("bookstore"), "--namespace=bookstore")
	s.kubectl("wait", "--namespace=bookstore", "--for=condition=available", "deployment", "--all", "--timeout=90s")
	s.until("pages with all reviews", func(ctx context.Context) error {
		out, err := s.try(ctx, "", "logs", "deployment/customer", "--namespace=bookstore")
		// Version 1 has no names, version 2 no stars.
		for _, review := range []string{"put it down.\"\n", "  Alma, Bergen\n", "  Alma, Bergen  ★★★★☆\n"} {
			if err != nil || !strings.Contains(out, review) {
				return unmet(err, "want %q:\n%s", review, out)
			}
		}
		return nil
	})
	s.kubectl("delete", "-f", sample("bookstore"), "--namespace=bookstore", "--timeout=90s")
}

// TestStatefulSet: members find each other by name, and a name follows its pod to a new address.
func TestStatefulSet(t *testing.T) {
	s := on(t)
	s.kubectl("apply", "-f", sample("stateful"))
	s.kubectl("rollout", "status", "statefulset/members", "--timeout=90s")
	ask := s.asker()
	for i := range 3 {
		name := fmt.Sprintf("members-%d", i)
		s.until(name+" by name", func(context.Context) error {
			out, err := ask(fmt.Sprintf("http://%s.members:8080", name))
			if err != nil || !strings.Contains(out, name) {
				return unmet(err, "want an answer of %s:\n%s", name, out)
			}
			return nil
		})
	}
	before := s.ready("members-1")
	s.kubectl("delete", "pod", "members-1")
	s.until("members-1 to come back", func(ctx context.Context) error {
		p, err := s.pod(ctx, "members-1")
		if err != nil || p.UID == before.UID {
			return unmet(err, "not yet")
		}
		return nil
	})
	after := s.ready("members-1")
	s.until("its name to follow", func(context.Context) error {
		out, err := ask("-o=answers", "http://members-1.members:8080")
		if err != nil || !strings.Contains(out, after.Status.PodIP) {
			return unmet(err, "want an answer of %s (before %s):\n%s", after.Status.PodIP, before.Status.PodIP, out)
		}
		return nil
	})
}

// TestJob: a job with a native sidecar ends when its main container does, and the sidecar served it.
func TestJob(t *testing.T) {
	s := on(t)
	s.kubectl("apply", "-f", sample("job"))
	s.kubectl("wait", "--for=condition=complete", "job/questions", "--timeout=90s")
	if out := s.kubectl("logs", "job/questions", "-c", "questions"); !strings.Contains(out, "20  sidecar") {
		t.Errorf("the job's log:\n%s", out)
	}
}

// TestCapture: an init container's iptables rules redirect what the application sends.
func TestCapture(t *testing.T) {
	s := on(t)
	s.kubectl("apply", "-f", sample("capture"))
	s.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/captured", "--timeout=90s")
	out := s.kubectl("logs", "captured", "-c", "app")
	if strings.Count(out, `"name":"proxy"`) != 5 || !strings.Contains(out, `"host":"192.0.2.80"`) {
		t.Errorf("want five answers of the proxy to requests for 192.0.2.80:\n%s", out)
	}
}
