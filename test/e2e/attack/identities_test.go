package attack

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/pilotmesh/pilot/test/kit/certs"
)

// What identities begin with.
const (
	own     = "spiffe://cluster.local/ns/"
	admin   = own + "ops/sa/admin"
	villain = own + "evil/sa/evil"
)

// identities are the certificates of attackers by name.
type identities struct {
	mesh *certs.Authority
	all  map[string]tls.Certificate
}

// newIdentities makes certificates of the authority in the state folder of the control plane, and of a stranger.
func newIdentities(dir string) (*identities, error) {
	text, err := os.ReadFile(filepath.Join(dir, "ca.json"))
	if err != nil {
		return nil, err
	}
	var kept map[string]string
	if err := json.Unmarshal(text, &kept); err != nil {
		return nil, err
	}
	i := &identities{all: map[string]tls.Certificate{}}
	if i.mesh, err = (certs.Pair{Cert: kept["ca-cert.pem"], Key: kept["ca-key.pem"]}).Authority(); err != nil {
		return nil, err
	}
	stranger, err := certs.NewAuthority("a stranger")
	if err != nil {
		return nil, err
	}
	if err := i.issue(stranger, "stranger", admin); err != nil {
		return nil, err
	}
	for name, id := range map[string]string{
		"cli": own + "front/sa/cli", "admin": admin, "evil": villain, "alias": "spiffe://old.td/ns/ops/sa/admin", "foreign": "spiffe://other.td/ns/ops/sa/admin",
		"lookalike": admin + "/", "prefix": admin + "2", "nested": own + "evil/sa/x/ns/ops/sa/admin", "domain": "spiffe://cluster.local.evil/ns/ops/sa/admin",
		"capitals": "spiffe://CLUSTER.LOCAL/ns/ops/sa/admin", "scheme": "https://cluster.local/ns/ops/sa/admin",
	} {
		if err := i.issue(i.mesh, name, id); err != nil {
			return nil, err
		}
	}
	return i, i.odd()
}

// odd makes certificates of the mesh that have something odd.
func (i *identities) odd() error {
	for name, change := range map[string]func(*x509.Certificate){
		"expired": func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(-72*time.Hour), time.Now().Add(-24*time.Hour)
		},
		"future": func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(24*time.Hour), time.Now().Add(72*time.Hour)
		},
		"named":        func(c *x509.Certificate) { c.URIs, c.Subject.CommonName = nil, admin },
		"hosts":        func(c *x509.Certificate) { c.URIs, c.DNSNames = nil, []string{"ops.sa.admin"} },
		"trust domain": func(c *x509.Certificate) { c.URIs, c.DNSNames = nil, []string{"cluster.local"} },
		"server":       func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} },
		"no usage":     func(c *x509.Certificate) { c.ExtKeyUsage = nil },
	} {
		if err := i.issue(i.mesh, name, admin, change); err != nil {
			return err
		}
	}
	evilFirst := []string{villain, admin}
	if err := i.issueTo(i.mesh, "two", certs.Identity{URIs: evilFirst}); err != nil {
		return err
	}
	if err := i.issueTo(i.mesh, "two turned", certs.Identity{URIs: []string{admin, villain}}); err != nil {
		return err
	}
	return i.byLeaf()
}

func (i *identities) issue(by *certs.Authority, name, id string, changes ...func(*x509.Certificate)) error {
	return i.issueTo(by, name, certs.Identity{URIs: []string{id}}, changes...)
}

func (i *identities) issueTo(by *certs.Authority, name string, id certs.Identity, changes ...func(*x509.Certificate)) error {
	pair, err := by.Issue(id, changes...)
	if err != nil {
		return err
	}
	i.all[name], err = pair.TLS()
	return err
}

// byLeaf makes a certificate that the certificate of a workload has signed.
func (i *identities) byLeaf() error {
	leaf := i.all["evil"]
	c := &x509.Certificate{
		SerialNumber: leaf.Leaf.SerialNumber, URIs: i.all["admin"].Leaf.URIs, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	key := i.all["admin"].PrivateKey.(crypto.Signer)
	der, err := x509.CreateCertificate(rand.Reader, c, leaf.Leaf, key.Public(), leaf.PrivateKey)
	if err != nil {
		return fmt.Errorf("signing with the certificate of a workload: %w", err)
	}
	i.all["by a workload"] = tls.Certificate{Certificate: [][]byte{der, leaf.Certificate[0]}, PrivateKey: key}
	return nil
}

// config are settings of TLS for a client with a certificate, "" for none. Who the server is does not matter to an attacker.
func (i *identities) config(name string, alpn []string) *tls.Config {
	c := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, NextProtos: alpn} //nolint:gosec // see above
	if name != "" {
		own, ok := i.all[name]
		if !ok {
			panic("there is no certificate " + name)
		}
		// not Certificates: of those, only what the server's list of authorities names is shown
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }
	}
	return c
}

// issuerURL is the issuer of tokens, and otherURL another one.
const issuerURL, otherURL = "https://issuer.test", "https://two.test"

// issuer makes tokens: with the keys of two issuers, and with an unknown key.
type issuer struct{ one, two, evil *rsa.PrivateKey }

func newIssuer() (*issuer, error) {
	i := &issuer{}
	for _, k := range []**rsa.PrivateKey{&i.one, &i.two, &i.evil} {
		var err error
		if *k, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
			return nil, fmt.Errorf("making a key for tokens: %w", err)
		}
	}
	return i, nil
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// jwk is a key as an object of a key set.
func jwk(k *rsa.PrivateKey) object {
	return object{"kty": "RSA", "kid": "a", "n": encode(k.N.Bytes()), "e": "AQAB"}
}

// keySet is a key set with one key.
func keySet(k *rsa.PrivateKey) string { return asJSON(object{"keys": []any{jwk(k)}}) }

// asJSON is a value of this package as JSON.
func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // made of what JSON has
	}
	return string(text)
}

// claims of a good token, with changes; a nil value removes a claim.
func claims(changes object) object {
	all := object{"iss": issuerURL, "sub": "user", "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(all, changes)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	return all
}

// token is one with claims beyond the usual ones, signed by the first issuer's key.
func (i *issuer) token(changes object) string {
	return signed(i.one, object{"alg": "RS256", "typ": "JWT", "kid": "a"}, asJSON(claims(changes)))
}

// second is a good token of the other issuer.
func (i *issuer) second() string {
	return signed(i.two, object{"alg": "RS256", "kid": "a"}, asJSON(claims(object{"iss": otherURL})))
}

// forged is a token signed by an unknown key.
func (i *issuer) forged(changes object) string {
	return signed(i.evil, object{"alg": "RS256", "kid": "a"}, asJSON(claims(changes)))
}

func signed(k *rsa.PrivateKey, head object, payload string) string {
	text := encode([]byte(asJSON(head))) + "." + encode([]byte(payload))
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, k, crypto.SHA256, sum[:])
	if err != nil {
		panic(err) // a key of 2048 bits signs every hash
	}
	return text + "." + encode(signature)
}

// unsigned is a token with a header as given, and a signature of HMAC by a secret; none if that is nil.
func unsigned(head object, secret []byte) string {
	text := encode([]byte(asJSON(head))) + "." + encode([]byte(asJSON(claims(nil))))
	if secret == nil {
		return text + "."
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(text))
	return text + "." + encode(mac.Sum(nil))
}
