package proxies

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/cluster/mesh"
)

// denyExport returns a policy that denies a path which no customer asks for. more is appended to its rule.
func denyExport(more string) string {
	return `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: export, namespace: ` + mesh.Namespace + `}
spec:
  selector: {matchLabels: {app: reviews}}
  action: DENY
  rules:
  - to: [{operation: {paths: [/export]}}]
` + more
}

// TestRefusedPolicyAfterRestart: the last edit of a DENY policy is refused, and then all control planes end. The next one has no memory but the
// ConfigMaps of the cluster: also a proxy that starts afterwards obeys the last good version, which denies less than the substitute of a
// refused policy would.
func TestRefusedPolicyAfterRestart(t *testing.T) {
	s := on(t)
	s.onlyBy("v1")
	s.apply(denyExport(""))
	t.Cleanup(func() {
		if _, err := s.Kubectl(context.Background(), "", "delete", "authorizationpolicy", "export", "-n", mesh.Namespace); err != nil {
			t.Error(err)
		}
	})
	s.until("the proxies of reviews to have the policy", s.denies)
	s.until("the ConfigMaps to have the policy", func(ctx context.Context) error {
		data, err := s.Kubectl(ctx, "", "get", "configmaps", "-n", mesh.ControlNamespace, "-o", `jsonpath={range .items[*]}{.metadata.name}={.binaryData.policies\.gz}{"\n"}{end}`)
		if err == nil && !holdsPolicies(data) {
			err = errors.New("none has any")
		}
		return err
	})
	s.apply(denyExport("    when: [{key: request.headers, values: [x]}]\n")) // the key has no name of a header
	s.until("the edit to be refused", func(ctx context.Context) error {
		page, err := s.Get(ctx, "/debug/problemz")
		if err == nil && !strings.Contains(page, "request.headers") {
			err = fmt.Errorf("no problem names it: %.300s", page)
		}
		return err
	})
	s.kubectl("delete", "pods", "-n", mesh.ControlNamespace, "-l", "app=istiod", "--grace-period=0", "--force")
	s.kubectl("rollout", "status", "-n", mesh.ControlNamespace, "deployment/istiod", "--timeout", patience.String())
	s.must(s.restart(t.Context(), "reviews-v1", "reviews-v2", "reviews-v3"))
	s.until("new proxies of reviews to have the policy", s.denies)
	s.onlyBy("v1")
	s.noneFailed()
}

// holdsPolicies reports whether a line NAME=CONTENT of a ConfigMap for kept policies has content.
func holdsPolicies(lines string) bool {
	for line := range strings.Lines(lines) {
		name, content, _ := strings.Cut(strings.TrimSpace(line), "=")
		if strings.HasPrefix(name, "pilot-policies-") && content != "" {
			return true
		}
	}
	return false
}

// denies returns an error while a proxy of reviews does not have the rule about the path of denyExport.
func (s *stage) denies(ctx context.Context) error {
	pods, err := s.Pods(ctx, "reviews")
	for _, p := range pods {
		var page string
		if page, err = s.Admin(ctx, p.Name, "config_dump?resource=dynamic_listeners"); err != nil {
			break
		}
		if !strings.Contains(page, `"/export"`) {
			return fmt.Errorf("%s has no such rule", p.Name)
		}
	}
	return err
}
