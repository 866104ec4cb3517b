package proof

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// loads are the steady callers of TestRollingUpdate: their arguments, by the name of their container. All follow the
// service, each in a way of its own: with a connection for every request, with connections that are in use while a server is asked to end, and with
// connections that are kept.
var loads = map[string]string{
	"fresh": `--qps=100, --workers=4, --fresh, "http://echo"`,
	"slow":  `--qps=8, --workers=8, --fresh, "http://echo/delay/900ms"`,
	"kept":  `--qps=50, --workers=2, "http://echo"`,
}

// TestRollingUpdate: while a Deployment behind a ClusterIP is rolled twice, and until the last old pod is gone, no request
// of a steady load from a pod is lost.
func TestRollingUpdate(t *testing.T) {
	s := on(t)
	s.kubectl("apply", "-f", sample("echo"))
	s.kubectl("rollout", "status", "deployment/echo", "--timeout=90s")
	// That pods are ready is known before the service leads to them: the test begins when it does.
	ask := s.asker()
	s.until("the service to lead to both pods", func(context.Context) error {
		out, err := ask("--count=20", "--fresh", "http://echo")
		if err != nil || strings.Count(out, "answered") != 2 {
			return unmet(err, "want answers of both pods:\n%s", out)
		}
		return nil
	})
	s.startLoads()
	for _, version := range []string{"v2", "v3"} {
		old := strings.Fields(s.kubectl("get", "pods", "-l", "app=echo", "-o", "name"))
		s.kubectl("set", "env", "deployment/echo", "ROLLED="+version)
		s.kubectl("rollout", "status", "deployment/echo", "--timeout=120s")
		// Only when it is gone can no request have been lost on an old pod; and by then new pods have had their share.
		s.until("the old pods to be gone", func(ctx context.Context) error {
			now, err := s.api.CoreV1().Pods(s.namespace).List(ctx, meta.ListOptions{LabelSelector: "app=echo"})
			if err != nil {
				return err
			}
			for _, p := range now.Items {
				if slices.Contains(old, "pod/"+p.Name) {
					return fmt.Errorf("%s is there", p.Name)
				}
			}
			return nil
		})
	}
	s.endLoads()
}

// startLoads runs the loads in a pod.
func (s *stage) startLoads() {
	s.Helper()
	yaml := "apiVersion: v1\nkind: Pod\nmetadata: {name: load}\nspec:\n  restartPolicy: Never\n  containers:\n"
	for _, name := range slices.Sorted(maps.Keys(loads)) {
		yaml += fmt.Sprintf("  - {name: %s, image: \"pilot.test/workload:v1\", args: [call, --duration=10m, -o=json, %s]}\n", name, loads[name])
	}
	s.apply(yaml)
	s.ready("load")
}

// endLoads interrupts the loads and reads their counts.
func (s *stage) endLoads() {
	s.Helper()
	for name := range loads {
		// It may say that it was killed: it dies with process 1. Whether that ended is seen below.
		_, _ = s.try(s.Context(), "", "exec", "load", "-c", name, "--", "kill", "-INT", "1")
	}
	for name := range loads {
		s.status("load", name, name+" to end", containerEnded)
		// The first line; the second is an error if there were failures.
		text := s.kubectl("logs", "load", "-c", name)
		var sum struct {
			Requests, Failures int
			Answers, Errors    map[string]int
		}
		if err := json.NewDecoder(strings.NewReader(text)).Decode(&sum); err != nil {
			s.Errorf("%s: %v:\n%s", name, err, text)
			continue
		}
		generations := map[string]bool{}
		for pod := range sum.Answers {
			generations[pod[:strings.LastIndexByte(pod, '-')]] = true
		}
		// A connection that is kept may miss one pod of a generation.
		if sum.Failures > 0 || len(generations) < 3 || name == "fresh" && len(sum.Answers) < 6 {
			s.Errorf("%s: %d of %d requests failed: %v; answers by %v, want three generations of two pods", name, sum.Failures, sum.Requests, sum.Errors, sum.Answers)
		}
		s.Logf("%s: %d requests", name, sum.Requests)
	}
}
