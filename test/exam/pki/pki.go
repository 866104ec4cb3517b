// Package pki makes the exam's key material: two certificate authorities, leaves, and tokens, fresh for every run.
//
// Values are immutable once made and may be shared between goroutines; the package starts none.
package pki

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pilotmesh/pilot/test/exam/casefile"
	"github.com/pilotmesh/pilot/test/kit/certs"
)

// Spiffe is the mesh identity of a service account.
func Spiffe(trustDomain, ns, sa string) certs.Identity {
	return certs.Identity{URIs: []string{fmt.Sprintf("spiffe://%s/ns/%s/sa/%s", trustDomain, ns, sa)}}
}

// Site is the identity of a server with these names.
func Site(names ...string) certs.Identity { return certs.Identity{Name: names[0], Hosts: names} }

// Material is all the key material of a run.
type Material struct {
	Mesh, Public *certs.Authority
	exam, other  *rsa.PrivateKey
}

// New makes the key material of a run.
func New() (*Material, error) {
	p := &Material{}
	var err error
	if p.Mesh, err = certs.NewAuthority("exam mesh"); err != nil {
		return nil, err
	}
	if p.Public, err = certs.NewAuthority("exam public"); err != nil {
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
	files := map[string]string{"mesh-ca.pem": p.Mesh.Pair().Cert, "public-ca.pem": p.Public.Pair().Cert}
	for _, l := range []struct {
		name string
		ca   *certs.Authority
		id   certs.Identity
	}{
		{"client", p.Mesh, Spiffe("cluster.local", "shop", "client")},
		{"gw", p.Public, Site("*.exam.com", "exam.com")},
		{"gw2", p.Public, Site("*.two.com")},
	} {
		kp, err := l.ca.Issue(l.id)
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
