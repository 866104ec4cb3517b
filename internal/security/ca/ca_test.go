package ca

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/run/statefile"
	"github.com/pilotmesh/pilot/internal/security/identity"
)

var reviews = identity.Identity{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "reviews"}

// selfSigned is an authority of a new root.
func selfSigned(t *testing.T, valid time.Duration, rsaBits int, now time.Time) *Authority {
	t.Helper()
	cert, key, err := newRoot("cluster.local", rsaBits, valid, now)
	if err != nil {
		t.Fatal(err)
	}
	a, err := NewAuthority(Material{Cert: cert, Key: key}, now)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func request(t *testing.T, key crypto.Signer, of *x509.CertificateRequest) string {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, of, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: requestBlock, Bytes: der}))
}

func ecKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func leafOf(t *testing.T, chain []string) *x509.Certificate {
	t.Helper()
	certs, err := parseCertificates([]byte(chain[0]))
	if err != nil {
		t.Fatal(err)
	}
	return certs[0]
}

// TestOnlyTheKeyOfTheRequestCounts asks for other names, for a certificate of an authority, and for everything else that a request
// may have.
func TestOnlyTheKeyOfTheRequestCounts(t *testing.T) {
	now := time.Now()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	admin, _ := url.Parse("spiffe://cluster.local/ns/kube-system/sa/admin")
	for name, key := range map[string]crypto.Signer{"ECDSA": ecKey(t), "RSA": rsaKey} {
		for _, bits := range []int{0, 2048} {
			a := selfSigned(t, time.Hour, bits, now)
			public, err := PublicKey(request(t, key, &x509.CertificateRequest{
				Subject: pkix.Name{CommonName: "admin"}, URIs: []*url.URL{admin}, DNSNames: []string{"kubernetes"}, EmailAddresses: []string{"a@b"},
				ExtraExtensions: []pkix.Extension{{Id: []int{2, 5, 29, 19}, Value: []byte{0x30, 3, 1, 1, 0xff}}},
			}))
			if err != nil {
				t.Fatal(err)
			}
			chain, err := a.Issue(public, Subject{Identity: reviews}, time.Minute, now)
			if err != nil {
				t.Fatal(err)
			}
			leaf := leafOf(t, chain)
			if len(leaf.URIs) != 1 || leaf.URIs[0].String() != reviews.String() || len(leaf.DNSNames)+len(leaf.EmailAddresses)+len(leaf.IPAddresses) > 0 ||
				leaf.IsCA || leaf.Subject.String() != "" || leaf.KeyUsage&x509.KeyUsageCertSign != 0 {
				t.Errorf("%s: the certificate is of %v %v %v, CA %v", name, leaf.URIs, leaf.DNSNames, leaf.Subject, leaf.IsCA)
			}
			if !leaf.NotAfter.Equal(now.Add(time.Minute).Truncate(time.Second)) {
				t.Errorf("%s: it is valid until %v, want a minute", name, leaf.NotAfter)
			}
			if _, err := leaf.Verify(x509.VerifyOptions{Roots: a.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
				t.Error(name, err)
			}
			if _, err := leaf.Verify(x509.VerifyOptions{Roots: a.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
				t.Error(name, err)
			}
		}
	}
}

func TestRequestsThatCannotBeGranted(t *testing.T) {
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Skip("this Go makes no weak keys:", err)
	}
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good := request(t, ecKey(t), &x509.CertificateRequest{})
	block, _ := pem.Decode([]byte(good))
	block.Bytes[len(block.Bytes)-1] ^= 1
	for want, csr := range map[string]string{
		"no PEM":           "hello",
		"1024 bits":        request(t, weak, &x509.CertificateRequest{}),
		"neither RSA":      request(t, edwards, &x509.CertificateRequest{}),
		"curve P-224":      request(t, curve, &x509.CertificateRequest{}),
		"did not sign":     string(pem.EncodeToMemory(block)),
		"10485760 bytes":   strings.Repeat("A", 10<<20),
		"asn1":             string(pem.EncodeToMemory(&pem.Block{Type: requestBlock, Bytes: []byte("x")})),
		`"CERTIFICATE REQ`: strings.ReplaceAll(good, "CERTIFICATE REQUEST", "CERTIFICATE"),
	} {
		if _, err := PublicKey(csr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func FuzzPublicKey(f *testing.F) {
	f.Add("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n")
	f.Fuzz(func(t *testing.T, text string) {
		if key, err := PublicKey(text); err == nil && checkKey(key) != nil {
			t.Error("a key that may not be used")
		}
	})
}

func TestLimits(t *testing.T) {
	l := Limits{Default: time.Hour, Max: 24 * time.Hour}
	for seconds, want := range map[int64]time.Duration{0: time.Hour, -1: time.Hour, 60: time.Minute, 86400: 24 * time.Hour, 86401: 24 * time.Hour, 1 << 62: 24 * time.Hour} {
		if got := l.Bound(seconds); got != want {
			t.Errorf("%d s: %v, want %v", seconds, got, want)
		}
	}
	now := time.Now()
	a := selfSigned(t, time.Minute, 0, now)
	chain, err := a.Issue(&ecKey(t).PublicKey, Subject{Identity: reviews}, time.Hour, now)
	if err != nil {
		t.Fatal(err)
	}
	if leaf := leafOf(t, chain); leaf.NotAfter.After(now.Add(time.Minute)) {
		t.Error("a certificate outlives what signed it")
	}
	if _, err := a.Issue(&ecKey(t).PublicKey, Subject{Identity: reviews}, time.Hour, now.Add(time.Hour)); err == nil {
		t.Error("an authority that has expired signs")
	}
}

// plug writes an authority that a root has signed into a folder. It returns the root.
func plug(t *testing.T, dir string, root *Authority, l layout, now time.Time, roots ...*Authority) {
	t.Helper()
	key := ecKey(t)
	serial, err := serialNumber()
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "between"}, NotBefore: now.Add(-time.Minute), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, root.cert, &key.PublicKey, root.signer)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: certBlock, Bytes: der})
	var trusted []byte
	for _, r := range append(roots, root) {
		trusted = append(trusted, encode(r.cert)...)
	}
	files := map[string][]byte{l.cert: cert, l.key: pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: raw}), l.roots: trusted}
	if l.chain != "" {
		files[l.chain] = cert
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPluggedIn(t *testing.T) {
	now := time.Now()
	root, other := selfSigned(t, time.Hour, 0, now), selfSigned(t, time.Hour, 0, now)
	for _, l := range layouts() {
		folder := Folder(t.TempDir())
		if folder.Exists() {
			t.Error("an empty folder has an authority")
		}
		plug(t, string(folder), root, l, now, other)
		m, err := read(t.Context(), folder)
		if err != nil || !folder.Exists() {
			t.Fatal(err)
		}
		a, err := NewAuthority(m, now)
		if err != nil {
			t.Fatal(err)
		}
		chain, err := a.Issue(&ecKey(t).PublicKey, Subject{Identity: reviews}, time.Minute, now)
		if err != nil {
			t.Fatal(err)
		}
		// One certificate per element: the workload's, the intermediate one, the other root, and last the root that vouches for it.
		var subjects []string
		for _, text := range chain {
			certs, err := parseCertificates([]byte(text))
			if err != nil || len(certs) != 1 {
				t.Fatalf("%d certificates in an element: %v", len(certs), err)
			}
			subjects = append(subjects, certs[0].Subject.String())
		}
		want := []string{"", "CN=between", other.cert.Subject.String(), root.cert.Subject.String()}
		if fmt.Sprint(subjects) != fmt.Sprint(want) {
			t.Errorf("the chain is %q, want %q", subjects, want)
		}
		if err := os.Remove(folder.path(l.roots)); err != nil {
			t.Fatal(err)
		}
		if _, err := read(t.Context(), folder); err == nil || !strings.Contains(err.Error(), l.roots) {
			t.Errorf("an authority without roots: %v", err)
		}
	}
	if _, err := materialOf(map[string][]byte{"other": nil}); err == nil || !strings.Contains(err.Error(), "neither ca-key.pem nor tls.key") {
		t.Errorf("a Secret of something else: %v", err)
	}
}

// TestMoreRoots: roots that the mesh configuration adds are given to all workloads, and roots for one signer are not.
func TestMoreRoots(t *testing.T) {
	now := time.Now()
	root, more, signers, fetched := selfSigned(t, time.Hour, 0, now), selfSigned(t, time.Hour, 0, now), selfSigned(t, time.Hour, 0, now), selfSigned(t, time.Hour, 0, now)
	bundle := func(from string, signers ...string) *meshconfig.MeshConfig_CertificateData {
		return &meshconfig.MeshConfig_CertificateData{CertificateData: &meshconfig.MeshConfig_CertificateData_SpiffeBundleUrl{SpiffeBundleUrl: from}, CertSigners: signers}
	}
	data := func(pem string, signers ...string) *meshconfig.MeshConfig_CertificateData {
		return &meshconfig.MeshConfig_CertificateData{CertificateData: &meshconfig.MeshConfig_CertificateData_Pem{Pem: pem}, CertSigners: signers}
	}
	trusted, errs := NewTrusted([]*meshconfig.MeshConfig_CertificateData{
		data("nonsense"), data(string(more.Roots())), data(string(signers.Roots()), "a/b"), {}, data(string(root.Roots())),
		bundle("https://spire/unknown"), bundle("https://spire/known"), bundle("https://spire/known", "a/b"),
	}, func(from string) string {
		return map[string]string{"https://spire/known": string(fetched.Roots())}[from]
	})
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "caCertificates[0].pem") {
		t.Errorf("what cannot be read is told as %v", errs)
	}
	chain, err := root.Issue(&ecKey(t).PublicKey, Subject{Identity: reviews}, time.Minute, now, trusted.Of("")...)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{string(more.Roots()), string(fetched.Roots()), string(root.Roots())}; !slices.Equal(chain[1:], want) {
		t.Errorf("the roots are %q, want %q", chain[1:], want)
	}
	if got := trusted.All(); len(got) != 4 {
		t.Errorf("%d roots are trusted at all, want 4", len(got))
	}
}

func TestBadAuthorities(t *testing.T) {
	now := time.Now()
	root, other := selfSigned(t, time.Hour, 0, now), selfSigned(t, time.Hour, 0, now)
	dir := t.TempDir()
	plug(t, dir, root, layouts()[0], now)
	good, err := read(t.Context(), Folder(dir))
	if err != nil {
		t.Fatal(err)
	}
	plug(t, dir, root, layouts()[0], now)
	second, err := read(t.Context(), Folder(dir))
	if err != nil {
		t.Fatal(err)
	}
	leafKey := ecKey(t)
	chain, err := root.Issue(&leafKey.PublicKey, Subject{Identity: reviews}, time.Minute, now)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(leafKey)
	if err != nil {
		t.Fatal(err)
	}
	leafPEM := pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: raw})
	for want, m := range map[string]Material{
		"match":                    {Cert: good.Cert, Key: second.Key, Chain: good.Chain, Roots: good.Roots},
		"no root vouches":          {Cert: good.Cert, Key: good.Key, Chain: good.Chain, Roots: other.Roots()},
		"not belong to a":          {Cert: []byte(chain[0]), Key: leafPEM, Roots: good.Roots},
		"find any PEM":             {},
		"there is no PEM certific": {Cert: good.Cert, Key: good.Key, Roots: []byte("x")},
		"revocation":               {Cert: good.Cert, Key: good.Key, Roots: good.Roots, CRL: good.Key},
	} {
		_, err := NewAuthority(m, now)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if err != nil && len(m.Key) > 0 && strings.Contains(err.Error(), strings.Split(string(m.Key), "\n")[1]) {
			t.Error("the error quotes the key")
		}
	}
	if _, err := NewAuthority(good, now.Add(2*time.Hour)); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("an authority that has expired: %v", err)
	}
	a, err := NewAuthority(good, now)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := a.signer.(*ecdsa.PrivateKey).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{fmt.Sprintf("%v %+v %#v", a, a, a), fmt.Sprintf("%v %+v", *a, *a)} {
		if strings.Contains(text, new(big.Int).SetBytes(secret).String()) {
			t.Errorf("the key shows in %.100s", text)
		}
	}
}

// TestRotation changes the root of a mesh whose members renew their certificates at half time, in steps of a second: at each moment
// every proxy trusts the certificate of every other.
func TestRotation(t *testing.T) {
	s := Roots{Organization: "cluster.local", Valid: 200 * time.Second, Grace: 50, Spread: 20 * time.Second}
	begin := time.Now().Truncate(time.Second)
	kept, err := s.First(begin)
	if err != nil {
		t.Fatal(err)
	}
	type member struct {
		leaf  *x509.Certificate
		roots *x509.CertPool
		renew time.Time
	}
	members := make([]member, 7)
	signers := map[string]bool{}
	for now := begin; now.Before(begin.Add(600 * time.Second)); now = now.Add(time.Second) {
		// Kept survives a round trip through its stored form.
		if kept, err = parseKept(kept.Data()); err != nil {
			t.Fatal(err)
		}
		next, _, again, err := s.Step(kept, now)
		if err != nil || !again.After(now) {
			t.Fatal(again, err)
		}
		kept = next
		a, err := NewAuthority(kept.Material(), now)
		if err != nil {
			t.Fatal(err)
		}
		signers[a.cert.Subject.SerialNumber] = true
		if len(a.roots) > 2 {
			t.Fatalf("%d roots", len(a.roots))
		}
		for i := range members {
			if now.Before(members[i].renew) {
				continue
			}
			chain, err := a.Issue(&ecKey(t).PublicKey, Subject{Identity: reviews}, 20*time.Second, now)
			if err != nil {
				t.Fatal(err)
			}
			roots := x509.NewCertPool()
			for _, text := range chain[1:] {
				roots.AppendCertsFromPEM([]byte(text))
			}
			leaf := leafOf(t, chain)
			members[i] = member{leaf, roots, now.Add(leaf.NotAfter.Sub(now)/2 - time.Duration(i)*time.Second/10)}
		}
		for i, a := range members {
			for j, b := range members {
				if _, err := a.leaf.Verify(x509.VerifyOptions{Roots: b.roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
					t.Fatalf("after %v member %d refuses %d: %v", now.Sub(begin), j, i, err)
				}
			}
		}
	}
	if len(signers) < 4 {
		t.Errorf("%d roots have signed in ten minutes, want more", len(signers))
	}
}

// TestFile: all users of a state folder get the same authority from it, and only the owner may read its files.
func TestFile(t *testing.T) {
	dir := statefile.Dir(filepath.Join(t.TempDir(), "new", "state"))
	s := Roots{Organization: "cluster.local", Valid: time.Hour, Grace: 20, Spread: time.Minute}
	results := make(chan string, 8)
	for range cap(results) {
		go func() {
			kept, err := File{dir}.Update(t.Context(), func(data map[string][]byte, _ error) (map[string][]byte, error) {
				if data != nil {
					return nil, nil
				}
				k, err := s.First(time.Now())
				return k.Data(), err
			})
			results <- fmt.Sprint(string(kept[keptCert]), err)
		}()
	}
	first := <-results
	for range cap(results) - 1 {
		if got := <-results; got != first {
			t.Fatalf("two roots were made:\n%s\n%s", first, got)
		}
	}
	for name, mode := range map[string]os.FileMode{keptFile: 0o600, rootsFile: 0o644} {
		info, err := os.Stat(dir.Path(name))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s has the mode %v, want %v: %v", name, info.Mode(), mode, err)
		}
	}
	public, err := os.ReadFile(dir.Path(rootsFile))
	if err != nil || bytes.Contains(public, []byte("PRIVATE")) || !bytes.Contains(public, []byte("BEGIN CERTIFICATE")) {
		t.Errorf("the public file has %s: %v", public, err)
	}
	if err := os.Chmod(dir.Path(keptFile), 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := (File{dir}).Update(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "other users") {
		t.Errorf("a key that others can read: %v", err)
	}
}
