// Package pki makes the exam's key material: two certificate authorities, leaves, and tokens, fresh for every run.
//
// Values are immutable once made and may be shared between goroutines; the package starts none.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/test/exam/casefile"
)

// Authority is a certificate authority of the exam.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	PEM  string
}

// Pair is a certificate and its key in PEM.
type Pair struct{ Cert, Key string }

// NewAuthority makes a self-signed authority.
func NewAuthority(name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: name, Organization: []string{"exam"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(240 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &Authority{cert: cert, key: key, PEM: pemOf("CERTIFICATE", der)}, err
}

// Issue signs a leaf for client and server use; a SAN with "://" is a URI.
func (a *Authority) Issue(sans ...string) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	t := &x509.Certificate{
		SerialNumber: serial(), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(200 * time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	for _, s := range sans {
		if !strings.Contains(s, "://") {
			t.DNSNames = append(t.DNSNames, s)
			continue
		}
		u, err := url.Parse(s)
		if err != nil {
			return Pair{}, err
		}
		t.URIs = append(t.URIs, u)
	}
	if len(t.URIs) == 0 {
		t.Subject = pkix.Name{CommonName: sans[0], Organization: []string{"exam"}}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return Pair{}, err
	}
	kd, err := x509.MarshalPKCS8PrivateKey(key)
	return Pair{pemOf("CERTIFICATE", der), pemOf("PRIVATE KEY", kd)}, err
}

func serial() *big.Int {
	n, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	return n
}

func pemOf(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// Spiffe is the mesh identity of a service account.
func Spiffe(trustDomain, ns, sa string) string {
	return fmt.Sprintf("spiffe://%s/ns/%s/sa/%s", trustDomain, ns, sa)
}

// Material is all the key material of a run.
type Material struct {
	Mesh, Public *Authority
	exam, other  *rsa.PrivateKey
}

// New makes the key material of a run.
func New() (*Material, error) {
	p := &Material{}
	var err error
	if p.Mesh, err = NewAuthority("exam mesh"); err != nil {
		return nil, err
	}
	if p.Public, err = NewAuthority("exam public"); err != nil {
		return nil, err
	}
	if p.exam, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		return nil, err
	}
	p.other, err = rsa.GenerateKey(rand.Reader, 2048)
	return p, err
}

// WriteFiles puts what proxies see as /etc/exam into dir.
func (p *Material) WriteFiles(dir string) error {
	files := map[string]string{"mesh-ca.pem": p.Mesh.PEM, "public-ca.pem": p.Public.PEM}
	for _, l := range []struct {
		name string
		ca   *Authority
		sans []string
	}{
		{"client", p.Mesh, []string{Spiffe("cluster.local", "shop", "client")}},
		{"gw", p.Public, []string{"*.exam.com", "exam.com"}},
		{"gw2", p.Public, []string{"*.two.com"}},
	} {
		kp, err := l.ca.Issue(l.sans...)
		if err != nil {
			return err
		}
		files[l.name+".pem"], files[l.name+".key"] = kp.Cert, kp.Key
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for n, s := range files {
		if err := os.WriteFile(filepath.Join(dir, n), []byte(s), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// JWKS is the exam key as a JSON Web Key Set.
func (p *Material) JWKS() string {
	return fmt.Sprintf(`{"keys":[{"kty":"RSA","use":"sig","alg":"RS256","kid":"exam","n":"%s","e":"AQAB"}]}`, b64(p.exam.N.Bytes()))
}

// Token mints the RS256 token a request asks for.
func (p *Material) Token(j *casefile.JWT) (string, error) {
	key, kid := p.exam, "exam"
	if j.Key == "other" {
		key = p.other
	}
	now := time.Now()
	claims := map[string]any{"iss": j.Iss, "sub": j.Sub, "iat": now.Add(-2 * time.Hour).Unix(), "exp": now.Add(time.Hour).Unix()}
	if j.Expired {
		claims["exp"] = now.Add(-time.Hour).Unix()
	}
	switch len(j.Aud) {
	case 0:
	case 1:
		claims["aud"] = j.Aud[0]
	default:
		claims["aud"] = []string(j.Aud)
	}
	for _, k := range []string{"iss", "sub"} {
		if claims[k] == "" {
			delete(claims, k)
		}
	}
	for k, v := range j.Claims {
		claims[k] = v
	}
	h, _ := json.Marshal(map[string]string{"alg": "RS256", "typ": "JWT", "kid": kid})
	body, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	signed := b64(h) + "." + b64(body)
	sum := sha256.Sum256([]byte(signed))
	sig, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	return signed + "." + b64(sig), err
}
