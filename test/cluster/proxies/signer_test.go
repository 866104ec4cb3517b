package proxies

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/test/cluster/binaries"
	"github.com/pilotmesh/pilot/test/cluster/clustertest"
	"github.com/pilotmesh/pilot/test/cluster/mesh"
)

// signerName is the signer that manifests/signer.yaml names.
const signerName = "example.com/mesh"

// apply applies manifests.
func (s *stage) apply(text string) {
	s.Helper()
	_, err := s.Kubectl(s.Context(), text, "apply", "-f", "-")
	s.must(err)
}

// rollOut restarts deployments, one pod after another, and waits until all are ready.
func (s *stage) rollOut(ctx context.Context, namespace string, change ...string) error {
	if _, err := s.Kubectl(ctx, "", append(change, "-n", namespace)...); err != nil {
		return err
	}
	names, err := s.Kubectl(ctx, "", "get", "deployments", "-n", namespace, "-o", "name")
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(names) {
		if _, err := s.Kubectl(ctx, "", "rollout", "status", name, "-n", namespace, "--timeout", patience.String()); err != nil {
			return err
		}
	}
	return nil
}

// restart replaces the pods of deployments of the mesh, one deployment after the other. If all of one Service are replaced at once, Kubernetes' controller of
// endpoint slices may log "informer cache is out of date" and write them late, and requests are lost on pods that are gone.
func (s *stage) restart(ctx context.Context, deployments ...string) error {
	for _, name := range deployments {
		if err := s.rollOut(ctx, mesh.Namespace, "rollout", "restart", "deployment/"+name); err != nil {
			return err
		}
	}
	return nil
}

// everything are the deployments of the mesh.
func everything() []string {
	return []string{"shop", "catalog", "reviews-v1", "reviews-v2", "reviews-v3", "ratings"}
}

// issuer is the issuer of the certificate by which the sidecar of a pod of reviews v1 is known to its callers.
func (s *stage) issuer(ctx context.Context) (string, error) {
	pods, err := s.version(ctx, "v1")
	if err != nil || len(pods) != 1 {
		return "", errors.Join(err, fmt.Errorf("%d pods", len(pods)))
	}
	var shown *x509.Certificate
	dialer := tls.Dialer{Config: &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // the test looks at the certificate itself, and has none to show
		NextProtos:         []string{"istio"},
		VerifyConnection: func(c tls.ConnectionState) error {
			shown = c.PeerCertificates[0]
			return errors.New("seen enough")
		},
	}}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = dialer.DialContext(ctx, "tcp", net.JoinHostPort(pods[0].Status.PodIP, "9031"))
	if shown == nil {
		return "", err
	}
	return shown.Issuer.CommonName, nil
}

// issued waits until there is one pod of reviews v1, whose certificate has the right issuer.
func (s *stage) issued(right func(by string) bool) {
	s.Helper()
	s.until("a certificate of the right issuer", func(ctx context.Context) error {
		by, err := s.issuer(ctx)
		if err == nil && !right(by) {
			err = fmt.Errorf("it is issued by %q", by)
		}
		return err
	})
}

// TestSigner moves a running mesh from the authority of the control plane to a signer of the cluster, as manifests/signer.yaml describes, and back.
// No request is lost on the way.
func TestSigner(t *testing.T) {
	s := on(t)
	s.busy(1, "")
	root := clustertest.StartSigner(t, s.Cluster.Client(), signerName)
	dir, err := binaries.Root()
	s.must(err)
	rules, err := os.ReadFile(filepath.Join(dir, "manifests", "signer.yaml"))
	s.must(err)
	s.apply(string(rules))
	// Both roots are trusted for as long as there are certificates of both, with either signer.
	own, err := s.roots(t.Context(), mesh.Namespace)
	s.must(err)
	both := strings.ReplaceAll(strings.TrimSpace(own)+"\n"+strings.TrimSpace(root), "\n", "\n        ")
	s.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: " + mesh.ControlNamespace + "}\ndata:\n  mesh: |\n" +
		"    caCertificates:\n    - pem: |\n        " + both + "\n")
	s.until("the roots in the mesh configuration", func(ctx context.Context) error {
		page, err := s.Get(ctx, "/debug/mesh")
		if err == nil && !strings.Contains(page, "caCertificates") {
			err = errors.New("they are missing")
		}
		return err
	})
	s.must(s.restart(t.Context(), everything()...))
	environment := []string{"set", "env", "deployment/istiod"}
	t.Cleanup(func() {
		ctx := context.Background()
		err := s.rollOut(ctx, mesh.ControlNamespace, append(environment, "EXTERNAL_CA-", "K8S_SIGNER-")...)
		if err = errors.Join(err, s.restart(ctx, everything()...)); err != nil {
			t.Error(err)
		}
		if _, err := s.Kubectl(ctx, "", "delete", "configmap", "-n", mesh.ControlNamespace, "istio"); err != nil {
			t.Error(err)
		}
	})
	s.issued(func(by string) bool { return by != signerName })
	s.must(s.rollOut(t.Context(), mesh.ControlNamespace, append(environment, "EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API", "K8S_SIGNER="+signerName)...))
	s.must(s.restart(t.Context(), everything()...))
	s.issued(func(by string) bool { return by == signerName })
	left := s.kubectl("get", "certificatesigningrequests", "-o", "name")
	if left != "" {
		t.Errorf("requests are left behind: %s", left)
	}
	s.onlyBy("v1")
	s.noneFailed()
}
