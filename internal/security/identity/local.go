package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/pilotmesh/pilot/internal/run/statefile"
)

// Local tokens are tokens that pilotctl issues with a key in the state folder of the control plane.
const (
	// localIssuer is the issuer that they name.
	localIssuer = "pilot-state-folder"
	// Audience is the audience of tokens for the control plane unless its settings say otherwise.
	Audience = "istio-ca"

	tokenKeyFile = "token-key.pem"
	keyBlock     = "PRIVATE KEY"
	localMeans   = "local token"
)

// LocalKey is the key of local tokens.
type LocalKey struct {
	key *ecdsa.PrivateKey
	id  string
}

// OpenLocalKey returns the key in a state folder, and an error if there is none.
func OpenLocalKey(dir statefile.Dir) (*LocalKey, error) {
	content, err := dir.Read(tokenKeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s does not exist, so no control plane that accepts local tokens has its state in %s; "+
			"name its folder with --stateDir, or make a key there with pilotctl token create --new", dir.Path(tokenKeyFile), dir)
	}
	if err != nil {
		return nil, fmt.Errorf("the key of tokens: %w", err)
	}
	return readLocalKey(dir, content)
}

// LoadLocalKey returns the key in a state folder, and creates it if there is none.
func LoadLocalKey(dir statefile.Dir) (*LocalKey, error) {
	content, err := dir.Create(tokenKeyFile, newTokenKey)
	if err != nil {
		return nil, fmt.Errorf("the key of tokens: %w", err)
	}
	return readLocalKey(dir, content)
}

func readLocalKey(dir statefile.Dir, content []byte) (*LocalKey, error) {
	k, err := parseTokenKey(content)
	if err != nil {
		return nil, fmt.Errorf("the key of tokens in %s: %w; remove the file, and issue new tokens", dir.Path(tokenKeyFile), err)
	}
	return k, nil
}

func newTokenKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der}), nil
}

func parseTokenKey(content []byte) (*LocalKey, error) {
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, errors.New("it is no PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(*ecdsa.PrivateKey)
	if err != nil || !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("it is no ECDSA key of the curve P-256")
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, errors.New("its public key cannot be encoded")
	}
	sum := sha256.Sum256(der)
	return &LocalKey{key: key, id: base64.RawURLEncoding.EncodeToString(sum[:12])}, nil
}

// Issue returns a token for a service account.
func (k *LocalKey) Issue(namespace, account string, audiences []string, now time.Time, valid time.Duration) (string, error) {
	if err := (Identity{"any", namespace, account}).Check(); err != nil {
		return "", err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: k.key, KeyID: k.id}}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return "", fmt.Errorf("the key of tokens: %w", err)
	}
	return jwt.Signed(signer).Claims(jwt.Claims{
		Issuer: localIssuer, Subject: Subject(namespace, account), Audience: audiences,
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(valid)),
	}).Serialize()
}

// public returns the public key.
func (k *LocalKey) public() jose.JSONWebKey {
	return jose.JSONWebKey{Key: &k.key.PublicKey, KeyID: k.id, Algorithm: string(jose.ES256), Use: "sig"}
}

// LocalTokens returns the issuer of local tokens. It reads the key when a token comes, so that the file may be replaced, which makes
// all tokens invalid.
func LocalTokens(dir statefile.Dir, audiences []string, trustDomain func() string, now func() time.Time) Issuer {
	return Issuer{
		Name: localIssuer, Audiences: audiences, Means: localMeans, TrustDomain: trustDomain, Now: now,
		Keys: func(_ context.Context, _ string, fresh bool) ([]jose.JSONWebKey, error) {
			content, err := dir.Read(tokenKeyFile)
			if errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("%s does not exist; issue a token with pilotctl token create and the same --stateDir", dir.Path(tokenKeyFile))
			}
			if err != nil {
				return nil, err
			}
			k, err := parseTokenKey(content)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", dir.Path(tokenKeyFile), err)
			}
			if fresh {
				return nil, errors.New("it was signed with another key than the one in this control plane's state folder; issue one with pilotctl token create and the same --stateDir")
			}
			return []jose.JSONWebKey{k.public()}, nil
		},
	}
}
