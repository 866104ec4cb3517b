package proxies

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	security "istio.io/api/security/v1alpha1"
	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pilotmesh/pilot/internal/security/identity"
	"github.com/pilotmesh/pilot/test/cluster/mesh"
)

// account is a service account.
type account struct{ namespace, name string }

// id is the SPIFFE ID of an account.
func (a account) id() string { return "spiffe://cluster.local/ns/" + a.namespace + "/sa/" + a.name }

// sidecarAccount is the account of the bookstore's sidecars.
func sidecarAccount() account { return account{mesh.Namespace, "default"} }

// roots are the root certificates of the ConfigMap that the control plane writes into each namespace.
func (s *stage) roots(ctx context.Context, namespace string) (string, error) {
	return s.Kubectl(ctx, "", "get", "configmap", "-n", namespace, "istio-ca-root-cert", "-o", `jsonpath={.data.root-cert\.pem}`)
}

// TestMutualTLS: sidecars have certificates of their accounts and use them between each other; two control planes share one root, which each
// namespace gets, also one that is made later.
func TestMutualTLS(t *testing.T) {
	s := on(t)
	s.onlyBy("v1")
	pod, err := s.Pod(t.Context(), "shop")
	s.must(err)
	page, err := s.Admin(t.Context(), pod, "certs")
	s.must(err)
	if !strings.Contains(page, `"uri": "`+sidecarAccount().id()+`"`) {
		t.Errorf("the Envoy of %s has no certificate of its account: %s", pod, page)
	}
	for of, match := range map[string]string{"reviews": `^listener\..*ssl\.handshake$`, "shop": `^cluster\.outbound\|9030\|v1\|.*ssl\.handshake$`} {
		pods, err := s.version(t.Context(), "v1")
		if of == "shop" {
			pods, err = s.Pods(t.Context(), of)
		}
		s.must(err)
		for _, p := range pods {
			stats, err := s.Stats(t.Context(), p.Name, match)
			s.must(err)
			if sum := total(stats); sum == 0 {
				t.Errorf("the Envoy of %s has shaken no hands: %v", p.Name, stats)
			}
		}
	}
	secret := func() string {
		return s.kubectl("get", "secret", "-n", mesh.ControlNamespace, "istio-ca-secret", "-o", `jsonpath={.type} {.data}`)
	}
	before, want := secret(), ""
	s.replicas(2)
	t.Cleanup(s.alone)
	s.kubectl("create", "namespace", "later")
	t.Cleanup(func() {
		_, err := s.Kubectl(context.Background(), "", "delete", "namespace", "later", "--wait=false")
		if err != nil {
			t.Error(err)
		}
	})
	if want, err = s.roots(t.Context(), mesh.Namespace); err != nil || !strings.HasPrefix(want, "-----BEGIN CERTIFICATE-----\n") {
		t.Fatalf("roots %q: %v", want, err)
	}
	s.until("the roots in a new namespace", func(ctx context.Context) error {
		if got, err := s.roots(ctx, "later"); err != nil || got != want {
			return errors.Join(err, fmt.Errorf("the roots are %q, want %q", got, want))
		}
		return nil
	})
	if now := secret(); now != before || !strings.HasPrefix(now, "istio.io/ca-root ") {
		t.Errorf("a second replica changed the Secret of the root, or it is of another type: %.40s", now)
	}
	s.noneFailed()
}

// caller asks the certificate authority for certificates.
type caller struct {
	*stage
	conn *grpc.ClientConn
	cert *x509.Certificate // the last one
}

// caller connects to the control plane.
func (s *stage) caller() *caller {
	s.Helper()
	roots, err := s.roots(s.Context(), mesh.Namespace)
	s.must(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(roots))
	ip := s.kubectl("get", "service", "-n", mesh.ControlNamespace, "istiod", "-o", "jsonpath={.spec.clusterIP}")
	conn, err := grpc.NewClient(ip+":15012", grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: pool, ServerName: "istiod." + mesh.ControlNamespace + ".svc", MinVersion: tls.VersionTLS12,
	})))
	s.must(err)
	s.Cleanup(func() { _ = conn.Close() })
	return &caller{stage: s, conn: conn}
}

// token returns a token of an account, bound to a pod unless that is nil.
func (c *caller) token(of account, audience string, pod *core.Pod) string {
	c.Helper()
	request := &authentication.TokenRequest{}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	if pod != nil {
		request.Spec.BoundObjectRef = &authentication.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}
	}
	got, err := c.Cluster.Client().CoreV1().ServiceAccounts(of.namespace).CreateToken(c.Context(), of.name, request, meta.CreateOptions{})
	c.must(err)
	return got.Status.Token
}

// ask returns the SPIFFE ID of the certificate that a request has got. The request itself claims to be an administrator's.
func (c *caller) ask(token, impersonated string) (string, error) {
	c.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	c.must(err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "admin"}, URIs: []*url.URL{{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/kube-system/sa/admin"}},
	}, key)
	c.must(err)
	about := map[string]any{"ClusterID": "Kubernetes"}
	if impersonated != "" {
		about["ImpersonatedIdentity"] = impersonated
	}
	fields, err := structpb.NewStruct(about)
	c.must(err)
	ctx := metadata.AppendToOutgoingContext(c.Context(), "authorization", "Bearer "+token)
	got, err := security.NewIstioCertificateServiceClient(c.conn).CreateCertificate(ctx, &security.IstioCertificateRequest{
		Csr: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})), ValidityDuration: 3600, Metadata: fields,
	}, grpc.WaitForReady(true))
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode([]byte(got.GetCertChain()[0]))
	cert, err := x509.ParseCertificate(block.Bytes)
	c.must(err)
	c.cert = cert
	if len(cert.URIs) != 1 || cert.Subject.CommonName != "" || len(cert.DNSNames) > 0 {
		c.Errorf("a certificate for more than the caller's own identity: %v, %v, %v", cert.URIs, cert.Subject, cert.DNSNames)
	}
	return cert.URIs[0].String(), nil
}

// TestCallers: the API server says whose tokens are, and what a request says of itself does not count.
func TestCallers(t *testing.T) {
	s := on(t)
	c := s.caller()
	s.kubectl("create", "serviceaccount", "-n", mesh.Namespace, "gone")
	gone := c.token(account{mesh.Namespace, "gone"}, "istio-ca", nil)
	s.kubectl("delete", "serviceaccount", "-n", mesh.Namespace, "gone")
	own := c.token(sidecarAccount(), "istio-ca", nil)
	broken := own[:len(own)-4] + "AAAA"
	for _, of := range []struct {
		what, token, impersonated, want string
		code                            codes.Code
	}{
		{"a token of the mesh", own, "", sidecarAccount().id(), codes.OK},
		{"a token for the API server", c.token(sidecarAccount(), "", nil), "", "", codes.Unauthenticated},
		{"a token for somebody else", c.token(sidecarAccount(), "bank", nil), "", "", codes.Unauthenticated},
		{"a token with another signature", broken, "", "", codes.Unauthenticated},
		{"a token of an account that is gone", gone, "", "", codes.Unauthenticated},
		{"an identity of another workload", own, account{mesh.Namespace, "shop"}.id(), "", codes.PermissionDenied},
	} {
		if got, err := c.ask(of.token, of.impersonated); got != of.want || status.Code(err) != of.code {
			t.Errorf("%s: %q and %v, want %q and %v", of.what, got, err, of.want, of.code)
		}
	}
	log := s.kubectl("logs", "-n", mesh.ControlNamespace, "deployment/istiod")
	for _, token := range []string{own, gone, broken} {
		if strings.Contains(log, token[len(token)-40:]) {
			t.Error("the log of the control plane has a token")
		}
	}
	s.noneFailed()
}

// TestCertificatesNameWorkloads: the certificate of a pod has the name of its Deployment, for the metrics of servers when it asks with its
// token. One for a token that is bound to no pod has no name, whatever the request says.
func TestCertificatesNameWorkloads(t *testing.T) {
	s := on(t)
	c := s.caller()
	name, err := s.Pod(t.Context(), "shop")
	s.must(err)
	pod, err := s.Cluster.Client().CoreV1().Pods(mesh.Namespace).Get(t.Context(), name, meta.GetOptions{})
	s.must(err)
	for what, token := range map[string]string{"bound": c.token(sidecarAccount(), "istio-ca", pod), "unbound": c.token(sidecarAccount(), "istio-ca", nil)} {
		_, err := c.ask(token, "")
		s.must(err)
		caller, err := identity.Certificates{TrustDomains: func() []string { return []string{"cluster.local"} }, Now: time.Now}.Authenticate(t.Context(), identity.Credentials{Certificate: c.cert})
		s.must(err)
		workload, rest, _ := strings.Cut(caller.About, "/")
		if right := workload != "" && strings.HasPrefix(name, workload+"-") && strings.HasSuffix(rest, "/Kubernetes"); right != (what == "bound") {
			t.Errorf("the certificate for a token of the pod %s, %s, says %q", name, what, caller.About)
		}
	}
	s.noneFailed()
}

// pinned is a pod with an account of its own, on a node.
const pinned = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: %[1]s, namespace: nodes}
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: nodes}
spec:
  nodeName: %[2]s
  serviceAccountName: %[1]s
  terminationGracePeriodSeconds: 0
  containers:
  - {name: ratings, image: "pilot.test/bookstore:v1", args: [-role=ratings, -version=v1, "-listen=127.0.0.1:9041"]}
---
`

// agentOfNode starts the pods agent and near on one node, and far on another, and a control plane that trusts the account of the first. It
// returns a function that finds these pods.
func (s *stage) agentOfNode() func(name string) *core.Pod {
	s.Helper()
	nodes := strings.Fields(s.kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"))
	if len(nodes) != 2 {
		s.Fatalf("nodes %q, want two", nodes)
	}
	text := fmt.Sprintf(pinned, "agent", nodes[0]) + fmt.Sprintf(pinned, "near", nodes[0]) + fmt.Sprintf(pinned, "far", nodes[1])
	s.kubectl("create", "namespace", "nodes")
	trust := func(ctx context.Context, value string) error {
		_, err := s.Kubectl(ctx, "", "set", "env", "-n", mesh.ControlNamespace, "deployment/istiod", "CA_TRUSTED_NODE_ACCOUNTS"+value)
		_, done := s.Kubectl(ctx, "", "rollout", "status", "-n", mesh.ControlNamespace, "deployment/istiod", "--timeout", patience.String())
		return errors.Join(err, done)
	}
	s.Cleanup(func() {
		_, err := s.Kubectl(context.Background(), "", "delete", "namespace", "nodes", "--wait=false")
		if err = errors.Join(err, trust(context.Background(), "-")); err != nil {
			s.Error(err)
		}
	})
	_, err := s.Kubectl(s.Context(), text, "apply", "-f", "-")
	s.must(errors.Join(err, trust(s.Context(), "=nodes/agent")))
	s.kubectl("wait", "--for=condition=Ready", "pod", "agent", "near", "far", "-n", "nodes", "--timeout", patience.String())
	return func(name string) *core.Pod {
		p, err := s.Cluster.Client().CoreV1().Pods("nodes").Get(s.Context(), name, meta.GetOptions{})
		s.must(err)
		return p
	}
}

// TestImpersonation: the agent of a node may have the certificates of pods of its node, and of no others.
func TestImpersonation(t *testing.T) {
	s := on(t)
	pod := s.agentOfNode()
	of := func(name string) account { return account{"nodes", name} }
	c := s.caller()
	agent := c.token(of("agent"), "istio-ca", pod("agent"))
	for _, q := range []struct {
		what, token, impersonated, want string
		code                            codes.Code
	}{
		{"a pod of the same node", agent, of("near").id(), of("near").id(), codes.OK},
		{"a pod of another node", agent, of("far").id(), "", codes.PermissionDenied},
		{"an account without pods", agent, of("nobody").id(), "", codes.PermissionDenied},
		{"another trust domain", agent, strings.Replace(of("near").id(), "cluster.local", "other", 1), "", codes.PermissionDenied},
		{"by a token that is bound to no pod", c.token(of("agent"), "istio-ca", nil), of("near").id(), "", codes.PermissionDenied},
		{"by an account that is not trusted", c.token(of("near"), "istio-ca", pod("near")), of("agent").id(), "", codes.PermissionDenied},
		{"nobody else", agent, "", of("agent").id(), codes.OK},
	} {
		if got, err := c.ask(q.token, q.impersonated); got != q.want || status.Code(err) != q.code {
			t.Errorf("%s: %q and %v, want %q and %v", q.what, got, err, q.want, q.code)
		}
	}
	s.noneFailed()
}

func total(stats map[string]int64) (sum int64) {
	for _, n := range stats {
		sum += n
	}
	return sum
}
