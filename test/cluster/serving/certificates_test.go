package serving

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"net"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pilotmesh/pilot/test/cluster/operator"
)

// callee is the server that API servers call, as one sees it that trusts what the configuration of a webhook says.
type callee struct {
	*user
	address string
}

// callee returns the server of the webhooks.
func (u *user) callee() *callee {
	u.Helper()
	s, err := u.C.Client().CoreV1().Services("istio-system").Get(u.Context(), "istiod", metav1.GetOptions{})
	u.Must(err)
	return &callee{u, net.JoinHostPort(s.Spec.ClusterIP, "443")}
}

// roots returns the roots in the configuration of the injecting webhook.
func (c *callee) roots() string {
	c.Helper()
	return c.Kubectl("get", "mutatingwebhookconfiguration/istio-sidecar-injector", "-o", "jsonpath={.webhooks[0].clientConfig.caBundle}")
}

// certificate connects as an API server does, and returns the certificate that the server shows.
func (c *callee) certificate() *x509.Certificate {
	c.Helper()
	bundle, err := base64.StdEncoding.DecodeString(c.roots())
	c.Must(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	ctx, cancel := context.WithTimeout(c.Context(), operator.Patience)
	defer cancel()
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: pool, ServerName: "istiod.istio-system.svc", MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(ctx, "tcp", c.address)
	if err != nil {
		c.Fatalf("an API server that calls the webhook now gets: %v", err)
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
}

// answers lets the API server call both webhooks, which must answer.
func (u *user) answers(namespace string) {
	u.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), operator.Patience)
	defer cancel()
	pod, err := u.Tried(ctx, "run", "probe", "-n", namespace, "--image=none", "--dry-run=server", "-o", "jsonpath={.spec.initContainers[*].name} {.spec.containers[*].name}")
	if err != nil || !strings.Contains(pod, "istio-proxy") {
		u.Errorf("a pod gets no proxy: %v %s", err, pod)
	}
	if out, err := u.Applied(operator.Invalid(namespace)); err == nil || !strings.Contains(out, `admission webhook "validation.istio.io" denied`) {
		u.Errorf("an object that is invalid: %v\n%s", err, out)
	}
}

// TestShortCertificates: the certificate that API servers see lives for 20 seconds, and the root of the mesh for 80. API servers call the webhooks all the
// time: before and after certificates and roots have expired and were replaced, and after the roots were taken out of a configuration. The
// replica never restarts.
func TestShortCertificates(t *testing.T) {
	u := on(t)
	u.Namespace("shop", "istio-injection=enabled")
	u.Done("install", "-f", u.Values, "--set", "env.DEFAULT_WORKLOAD_CERT_TTL=20s,env.MAX_WORKLOAD_CERT_TTL=20s", "--set", "env.CITADEL_SELF_SIGNED_CA_CERT_TTL=80s",
		"--set", "env.CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL=1s")
	t.Cleanup(func() { u.Run("uninstall", "--crds") })
	u.Until("the root of the webhooks", u.Rooted("istio-sidecar-injector"))
	u.FailsClosed("istio-istio-system")
	u.keepsRoots("istio-sidecar-injector")
	const replica = `jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[*].restartCount}{end}`
	running := u.Kubectl("get", "pods", "-n", "istio-system", "-o", replica)
	server := u.callee()
	first, roots, start := server.certificate(), server.roots(), time.Now()
	shown, bundles := map[string]bool{}, map[string]bool{}
	u.Until("a certificate of another root, when the first root is trusted no more", func() bool {
		is := server.certificate()
		shown[is.SerialNumber.String()], bundles[server.roots()] = true, true
		u.answers("shop")
		return time.Now().After(first.NotAfter) && is.CheckSignatureFrom(rootOf(u, roots)) != nil && !strings.Contains(decoded(u, server.roots()), decoded(u, roots))
	})
	t.Logf("%d certificates and %d sets of roots in %v", len(shown), len(bundles), time.Since(start).Round(time.Second))
	if len(shown) < 4 || len(bundles) < 3 {
		t.Errorf("%d certificates and %d sets of roots were seen", len(shown), len(bundles))
	}
	if now := u.Kubectl("get", "pods", "-n", "istio-system", "-o", replica); now != running {
		t.Errorf("the replica has changed: %s, before %s", now, running)
	}
	if is := u.Policies("istio-istio-system"); is != "Fail Ignore" {
		t.Errorf("the failurePolicies are %s", is)
	}
	u.Deploy("shop")
	for _, p := range u.Pods("shop") {
		if !p.Injected {
			t.Errorf("the pod %s has no proxy", p.Name)
		}
	}
}

// decoded returns roots as the API server has them, as PEM.
func decoded(u *user, roots string) string {
	u.Helper()
	text, err := base64.StdEncoding.DecodeString(roots)
	u.Must(err)
	return string(text)
}

// rootOf returns the first of roots as the API server has them.
func rootOf(u *user, roots string) *x509.Certificate {
	u.Helper()
	block, _ := pem.Decode([]byte(decoded(u, roots)))
	c, err := x509.ParseCertificate(block.Bytes)
	u.Must(err)
	return c
}
