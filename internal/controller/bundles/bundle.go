package bundles

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

const (
	// maxBundle is the size of the largest bundle, in bytes, and maxRoots the number of roots in one.
	maxBundle = 1 << 20
	maxRoots  = 100
)

// The bounds of the time between two fetches that the author of a bundle asks for.
const (
	shortestRefresh = 10 * time.Second
	longestRefresh  = 24 * time.Hour
)

// certificateUse is the use of keys of a bundle that are roots of certificates. Others, such as keys of tokens, are left out.
const certificateUse = "x509-svid"

// bundle is a SPIFFE bundle, as far as it matters here.
type bundle struct {
	// Hint is the time between two fetches that the author asks for, in seconds. It may be of any type: a bundle is not refused because of it.
	Hint any   `json:"spiffe_refresh_hint,omitempty"`
	Keys []key `json:"keys"`
}

type key struct {
	Use string   `json:"use"`
	X5C []string `json:"x5c"`
}

// answer has the roots of a bundle, as PEM, and the time between two fetches that its author asks for, within bounds; 0 if there is none.
type answer struct {
	roots   string
	refresh time.Duration
}

// parse reads a bundle. It refuses the whole bundle if one of its roots cannot be used. Errors contain nothing of it.
func parse(body []byte) (answer, error) {
	var b bundle
	if json.Unmarshal(body, &b) != nil { // the error could quote the answer
		return answer{}, errors.New("the answer is no SPIFFE bundle: it is no JSON with a list of keys")
	}
	roots, err := b.roots()
	if err != nil {
		return answer{}, err
	}
	return answer{roots, b.refresh()}, nil
}

// refresh returns the time between two fetches that the author asks for, within bounds; 0 if there is none.
func (b bundle) refresh() time.Duration {
	seconds, ok := b.Hint.(float64)
	if !ok || seconds <= 0 {
		return 0
	}
	within := min(max(seconds, shortestRefresh.Seconds()), longestRefresh.Seconds())
	return time.Duration(within * float64(time.Second))
}

// roots returns the roots as PEM.
func (b bundle) roots() (string, error) {
	var roots bytes.Buffer
	count := 0
	for i, key := range b.Keys {
		if key.Use != certificateUse {
			continue
		}
		if count++; count > maxRoots {
			return "", fmt.Errorf("the bundle has more than %d roots", maxRoots)
		}
		if len(key.X5C) != 1 {
			return "", fmt.Errorf("keys[%d].x5c of the bundle has %d certificates; it must have the one of the root", i, len(key.X5C))
		}
		der, err := root(key.X5C[0])
		if err != nil {
			return "", fmt.Errorf("keys[%d].x5c of the bundle: %w", i, err)
		}
		if err := pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
			return "", fmt.Errorf("keys[%d].x5c of the bundle: %w", i, err)
		}
	}
	if count == 0 {
		return "", fmt.Errorf("the bundle has no root: no key has the use %s", certificateUse)
	}
	return roots.String(), nil
}

// root returns the certificate of an authority in base64 as DER.
func root(text string) ([]byte, error) {
	der, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.New("it is no base64")
	}
	c, err := x509.ParseCertificate(der)
	switch {
	case err != nil:
		return nil, errors.New("it is no certificate")
	case !c.BasicConstraintsValid || !c.IsCA:
		return nil, errors.New("its certificate is not one of an authority")
	}
	return c.Raw, nil
}
