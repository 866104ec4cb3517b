package kubesource

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pilotmesh/pilot/internal/controller/cluster"
	"github.com/pilotmesh/pilot/internal/security/ca"
	"github.com/pilotmesh/pilot/internal/security/identity"
	"github.com/pilotmesh/pilot/test/cluster/binaries"
	"github.com/pilotmesh/pilot/test/cluster/clustertest"
	"github.com/pilotmesh/pilot/test/kit/certs"
)

// signerName is the signer that manifests/signer.yaml names.
const signerName = "example.com/mesh"

var reviews = identity.Identity{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "reviews"}

func (p *place) key() *ecdsa.PrivateKey {
	p.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p.must(err)
	return key
}

// csr is a request of a workload for its certificate.
func (p *place) csr(key crypto.Signer) string {
	p.Helper()
	uri, err := url.Parse(reviews.String())
	p.must(err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{URIs: []*url.URL{uri}}, key)
	p.must(err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// TestSigner has a certificate signed by a signer of the cluster, with the rights of manifests/signer.yaml and without them.
func TestSigner(t *testing.T) {
	p := on(t)
	root := clustertest.StartSigner(t, p.api, signerName)
	trusted, errs := ca.NewTrusted([]*meshconfig.MeshConfig_CertificateData{{
		CertificateData: &meshconfig.MeshConfig_CertificateData_Pem{Pem: root}, CertSigners: []string{signerName},
	}}, nil)
	p.must(errors.Join(errs...))
	requests, err := cluster.NewSigningRequests(p.account())
	p.must(err)
	r := ca.Registrar{Requests: requests, Signer: signerName, Domain: "example.com", Roots: trusted.Of, Now: time.Now}
	key := p.key()
	issue := func() ([]string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return r.Sign(ctx, p.csr(key), key.Public(), ca.Subject{Identity: reviews}, time.Hour, "")
	}
	if _, err := issue(); err == nil || !strings.Contains(err.Error(), "apply manifests/signer.yaml") {
		t.Errorf("without the right: %v", err)
	}
	dir, err := binaries.Root()
	p.must(err)
	rules, err := os.ReadFile(filepath.Join(dir, "manifests", "signer.yaml"))
	p.must(err)
	p.kubectl(strings.ReplaceAll(string(rules), "istio-system", p.namespace), "apply", "-f", "-")
	var chain []string
	p.until("the rights to hold", func() bool { chain, err = issue(); return err == nil })
	if len(chain) != 2 || chain[1] != root {
		t.Fatalf("the answer is %q", chain)
	}
	block, _ := pem.Decode([]byte(chain[0]))
	leaf, err := x509.ParseCertificate(block.Bytes)
	p.must(err)
	if len(leaf.URIs) != 1 || leaf.URIs[0].String() != reviews.String() || !key.PublicKey.Equal(leaf.PublicKey) {
		t.Errorf("the certificate is of %v", leaf.URIs)
	}
	left, err := p.api.CertificatesV1().CertificateSigningRequests().List(t.Context(), meta.ListOptions{FieldSelector: "spec.signerName=" + signerName})
	p.must(err)
	if len(left.Items) > 0 {
		t.Errorf("%d requests are left in the cluster", len(left.Items))
	}
}

// TestPluggedSecret reads an authority from the Secret cacerts, and follows it.
func TestPluggedSecret(t *testing.T) {
	p := on(t)
	secret, err := cluster.NewPluggedSecret(p.account(), p.namespace, "cacerts")
	p.must(err)
	if _, err := secret.Files(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no Secret: %v", err)
	}
	other, err := cluster.NewPluggedSecret(p.account(), p.namespace, "of-others")
	p.must(err)
	if _, err := other.Files(t.Context()); err == nil || !strings.Contains(err.Error(), "may not get secrets") {
		t.Errorf("a Secret of others: %v", err)
	}
	authority, err := certs.NewAuthority("plugged")
	p.must(err)
	cert, private := authority.Pair().Cert, authority.Pair().Key
	_, err = p.api.CoreV1().Secrets(p.namespace).Create(t.Context(), &core.Secret{
		ObjectMeta: meta.ObjectMeta{Name: "cacerts"},
		StringData: map[string]string{"ca-cert.pem": cert, "ca-key.pem": private, "root-cert.pem": cert, "cert-chain.pem": cert},
	}, meta.CreateOptions{})
	p.must(err)
	k := ca.NewKeeper(ca.Settings{
		Folder: ca.Folder(t.TempDir()), Plug: secret, Limits: ca.Limits{Default: time.Hour, Max: time.Hour}, Names: []string{"localhost"},
		Log: slog.New(slog.DiscardHandler), Now: time.Now,
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	defer func() {
		cancel()
		p.must(<-done)
	}()
	select {
	case <-k.Ready():
	case err := <-done:
		done <- nil
		t.Fatal(err)
	}
	if got := string(k.Authority().Roots()); got != cert {
		t.Errorf("the roots are %s, want those of the Secret", got)
	}
}

// TestRootsInNamespaces: each namespace gets the roots of the mesh, and the revocations as long as there are any.
func TestRootsInNamespaces(t *testing.T) {
	p := on(t)
	w, err := cluster.NewRoots(p.account())
	p.must(err)
	var revoked atomic.Value
	revoked.Store("")
	w.Log = slog.New(slog.DiscardHandler)
	w.Namespaces = func(context.Context) ([]string, error) { return []string{p.namespace}, nil }
	w.PEM, w.Revoked = func() []byte { return []byte("roots") }, func() []byte { return []byte(revoked.Load().(string)) }
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { w.Run(ctx) })
	defer done.Wait()
	defer cancel()
	has := func(name, key, want string) func() bool {
		return func() bool {
			m, err := p.api.CoreV1().ConfigMaps(p.namespace).Get(t.Context(), name, meta.GetOptions{})
			return err == nil && m.Data[key] == want
		}
	}
	p.until("the roots", has(cluster.RootsMap, "root-cert.pem", "roots"))
	if _, err := p.api.CoreV1().ConfigMaps(p.namespace).Get(t.Context(), cluster.RevokedMap, meta.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("although nothing is revoked, there is a list: %v", err)
	}
	revoked.Store("list")
	p.until("the list", has(cluster.RevokedMap, "ca-crl.pem", "list"))
	revoked.Store("")
	p.until("the end of the list", has(cluster.RevokedMap, "ca-crl.pem", ""))
}
