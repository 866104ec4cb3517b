package proof

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pilotmesh/pilot/test/podrunner"
)

// TestToken: a projected token is accepted by TokenReview for its audience and no other, and names the pod; the default
// one speaks for the pod at the API server.
func TestToken(t *testing.T) {
	s := on(t)
	s.apply(holder("holder", ""))
	pod := s.ready("holder")
	token := s.kubectl("exec", "holder", "--", "cat", "/token/token")
	user := s.review(token, "mesh").User
	if user.Username != "system:serviceaccount:"+s.namespace+":default" || fmt.Sprint(user.Extra["authentication.kubernetes.io/pod-uid"]) != fmt.Sprintf("[%s]", pod.UID) {
		t.Errorf("the token was reviewed as %+v", user)
	}
	if s.review(token, "https://elsewhere").Authenticated {
		t.Error("the token is accepted for an audience that it was not made for")
	}
	out := s.kubectl("exec", "holder", "--", "sh", "-c", "cd /var/run/secrets/kubernetes.io/serviceaccount; ls; cat namespace")
	if !strings.Contains(out, "ca.crt") || !strings.Contains(out, "token") || !strings.HasSuffix(strings.TrimSpace(out), s.namespace) {
		t.Errorf("the service account's folder: %q", out)
	}
	// kubectl finds the API server by the environment of every pod, and by its own name; it believes the certificate of both.
	for name, args := range map[string]string{
		"inside":  "[auth, whoami]",
		"by-name": "[auth, whoami, --server=https://kubernetes.default.svc, --certificate-authority=$(D)/ca.crt, --kubeconfig=/dev/null, --token=$(TOKEN)]",
	} {
		s.apply(fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: registry.k8s.io/kubectl
    args: %s
    env: [{name: D, value: /var/run/secrets/kubernetes.io/serviceaccount}, {name: TOKEN, value: %q}]
`, name, args, s.kubectl("create", "token", "default")))
		s.status(name, "main", name+" to end", containerEnded)
		if out := s.kubectl("logs", name); !strings.Contains(out, user.Username) {
			t.Errorf("kubectl in the pod %s: %q", name, out)
		}
	}
}

// holder is a pod with a token for the audience mesh at /token/token.
func holder(name, node string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  nodeName: %q
  containers:
  - {name: main, image: busybox, command: [sleep, infinity], volumeMounts: [{name: t, mountPath: /token}]}
  volumes:
  - {name: t, projected: {sources: [{serviceAccountToken: {path: token, audience: mesh, expirationSeconds: 600}}]}}
`, name, node)
}

// review asks the API server whose a token is.
func (s *stage) review(token, audience string) authentication.TokenReviewStatus {
	s.Helper()
	review := &authentication.TokenReview{Spec: authentication.TokenReviewSpec{Token: token, Audiences: []string{audience}}}
	review, err := s.api.AuthenticationV1().TokenReviews().Create(s.Context(), review, meta.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return review.Status
}

// TestTokenRotation: a token is replaced in the pod's volume before it ends, by one exchange, again and again, and every one
// is accepted. The shortest life that the API server gives is ten minutes; a node that renews sooner shows it in seconds.
func TestTokenRotation(t *testing.T) {
	s := on(t)
	node, err := s.c.AddNode(func(o *podrunner.Options) { o.RenewTokens = time.Second })
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.c.RemoveNode(context.Background(), node.Name); err != nil {
			t.Error(err)
		}
	}()
	s.apply(holder("holder", node.Name))
	s.ready("holder")
	seen, exchanges := map[string]bool{}, map[string]bool{}
	s.until("three tokens one after the other", func(ctx context.Context) error {
		out, err := s.try(ctx, "", "exec", "holder", "--", "sh", "-c", "d=$(readlink /token/..data); echo $d; cat /token/$d/token")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		folder, token, _ := strings.Cut(out, "\n")
		if status := s.review(token, "mesh"); !status.Authenticated {
			t.Errorf("a token is not accepted: %s", status.Error)
		}
		if seen[token], exchanges[folder] = true, true; len(seen) < 3 {
			return fmt.Errorf("%d so far", len(seen))
		}
		return nil
	})
	if len(exchanges) < 3 {
		t.Errorf("%d tokens in %d folders: each wants an exchange of its own", len(seen), len(exchanges))
	}
	if c := s.status("holder", "main", "the container", func(core.ContainerStatus) bool { return true }); c.RestartCount > 0 {
		t.Errorf("the container restarted %d times", c.RestartCount)
	}
}
