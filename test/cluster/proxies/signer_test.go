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
	_, err = dialer.DialContext(ctx, "tcp", net.JoinHostPort(pods[0].Status.PodIP, "9030"))
	if shown == nil {
		return "", err
	}
	return shown.Issuer.CommonName, nil
}

// TestSigner moves a running mesh from the authority of the control plane to a signer of the cluster, as manifests/signer.yaml tells, and
// back. No request is lost on the way.
func TestSigner(t *testing.T) {
	s := on(t)
	s.busy(1, "")
	root := clustertest.StartSigner(t, s.Cluster.Client(), signerName)
	dir, err := binaries.Root()
	s.must(err)
	rules, err := os.ReadFile(filepath.Join(dir, "manifests", "signer.yaml"))
	s.must(err)
	s.apply(string(rules))
	s.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: " + mesh.ControlNamespace + "}\ndata:\n  mesh: |\n    caCertificates:\n" +
		"    - certSigners: [" + signerName + "]\n      pem: |\n        " + strings.ReplaceAll(strings.TrimSpace(root), "\n", "\n        ") + "\n")
	s.until("the root of the signer in the namespace of the bookstore", func(ctx context.Context) error {
		roots, err := s.roots(ctx, mesh.Namespace)
		if err == nil && !strings.Contains(roots, strings.TrimSpace(root)) {
			err = errors.New("it is missing")
		}
		return err
	})
	environment := []string{"set", "env", "deployment/istiod"}
	t.Cleanup(func() {
		ctx := context.Background()
		err := s.rollOut(ctx, mesh.ControlNamespace, append(environment, "EXTERNAL_CA-", "K8S_SIGNER-")...)
		if err = errors.Join(err, s.rollOut(ctx, mesh.Namespace, "rollout", "restart", "deployment")); err != nil {
			t.Error(err)
		}
		if _, err := s.Kubectl(ctx, "", "delete", "configmap", "-n", mesh.ControlNamespace, "istio"); err != nil {
			t.Error(err)
		}
	})
	if before, err := s.issuer(t.Context()); err != nil || before == signerName {
		t.Fatalf("before, the certificate is issued by %q: %v", before, err)
	}
	s.must(s.rollOut(t.Context(), mesh.ControlNamespace, append(environment, "EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API", "K8S_SIGNER="+signerName)...))
	s.must(s.rollOut(t.Context(), mesh.Namespace, "rollout", "restart", "deployment"))
	s.until("a certificate of the signer", func(ctx context.Context) error {
		is, err := s.issuer(ctx)
		if err == nil && is != signerName {
			err = fmt.Errorf("it is issued by %q", is)
		}
		return err
	})
	left := s.kubectl("get", "certificatesigningrequests", "-o", "name")
	if left != "" {
		t.Errorf("requests are left behind: %s", left)
	}
	s.onlyBy("v1")
	s.noneFailed()
}
