package ca

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Kept is the stored form of a self-signed authority: a file in the state folder, or a Secret of a cluster.
//
// Its root is changed in three steps. First the next root is made and trusted, and the old one continues to sign. When
// every proxy has had time to learn it (Roots.Spread), it signs, and the old one stays trusted. When everything that
// the old one has signed has expired, it goes.
type Kept struct {
	// Cert and Key are the signing certificate and its key.
	Cert, Key []byte
	// NextCert and NextKey sign once every proxy has had time to learn the new root, counted from Introduced; empty for none.
	NextCert, NextKey []byte
	Introduced        time.Time
	// Former is a root that signed before, and is trusted until FormerUntil; empty for none.
	Former      []byte
	FormerUntil time.Time
}

// Names of the stored data, as in the Secret of Istio's self-signed authority. The name for a change of the root is Pilot's own.
const (
	keptCert     = "ca-cert.pem"
	keptKey      = "ca-key.pem"
	keptRoots    = "root-cert.pem"
	keptRotation = "rotation.json"
)

// rotation is the part of Kept that exists only while a root is being changed.
type rotation struct {
	NextCert    string    `json:"nextCert,omitempty"`
	NextKey     string    `json:"nextKey,omitempty"`
	Introduced  time.Time `json:"introduced,omitzero"`
	Former      string    `json:"former,omitempty"`
	FormerUntil time.Time `json:"formerUntil,omitzero"`
}

// Data returns the stored data, by name.
func (k Kept) Data() map[string][]byte {
	data := map[string][]byte{keptCert: k.Cert, keptKey: k.Key, keptRoots: k.roots()}
	r := rotation{string(k.NextCert), string(k.NextKey), k.Introduced, string(k.Former), k.FormerUntil}
	if r != (rotation{}) {
		data[keptRotation], _ = json.Marshal(r) // texts and times are always encoded
	}
	return data
}

// parseKept is the inverse of Data. Data of Istio's own Secret is accepted, too.
func parseKept(data map[string][]byte) (Kept, error) {
	k := Kept{Cert: data[keptCert], Key: data[keptKey]}
	if len(k.Cert) == 0 || len(k.Key) == 0 {
		return Kept{}, fmt.Errorf("%s or %s is missing", keptCert, keptKey)
	}
	var r rotation
	if text := data[keptRotation]; len(text) > 0 {
		if err := json.Unmarshal(text, &r); err != nil {
			return Kept{}, errors.New(keptRotation + " is no JSON")
		}
	}
	k.NextCert, k.NextKey, k.Introduced = []byte(r.NextCert), []byte(r.NextKey), r.Introduced
	k.Former, k.FormerUntil = []byte(r.Former), r.FormerUntil
	return k, nil
}

// roots returns all roots that are trusted.
func (k Kept) roots() []byte { return bytes.Join([][]byte{k.Former, k.NextCert, k.Cert}, nil) }

// Material returns the certificates and the key of the present authority.
func (k Kept) Material() Material { return Material{Cert: k.Cert, Key: k.Key, Roots: k.roots()} }

// Roots are the settings of self-signed roots.
type Roots struct {
	// Organization is the organization in their names. RSABits is the size of their keys; 0 for ECDSA keys.
	Organization string
	RSABits      int
	// Valid is how long a root is valid, and Grace is which part of that, in percent, is left when the next one is made.
	Valid time.Duration
	Grace int
	// Spread is how long it takes until every proxy has renewed its certificate, and knows all roots.
	Spread time.Duration
}

// First makes the first root.
func (s Roots) First(now time.Time) (Kept, error) {
	cert, key, err := newRoot(s.Organization, s.RSABits, s.Valid, now)
	return Kept{Cert: cert, Key: key}, err
}

// Step takes the steps that are due at a time. It returns the state to store, whether it has changed, and when to look again.
func (s Roots) Step(k Kept, now time.Time) (next Kept, changed bool, again time.Time, err error) {
	for {
		next, due, err := s.one(k, now)
		if err != nil || due.After(now) {
			return k, changed, due, err
		}
		k, changed = next, true
	}
}

// one takes one step if one is due, and otherwise returns when the next one is.
func (s Roots) one(k Kept, now time.Time) (next Kept, due time.Time, err error) {
	certs, err := parseCertificates(k.Cert)
	if err != nil {
		return k, now.Add(time.Hour), fmt.Errorf("%s: %w", keptCert, err)
	}
	root := certs[0]
	next = k
	switch {
	case len(k.Former) > 0:
		due = k.FormerUntil
		next.Former, next.FormerUntil = nil, time.Time{}
		return next, due, nil
	case len(k.NextCert) == 0:
		due = root.NotAfter.Add(-root.NotAfter.Sub(root.NotBefore) * time.Duration(s.Grace) / 100)
		if due.After(now) {
			return k, due, nil
		}
		next.NextCert, next.NextKey, err = newRoot(s.Organization, s.RSABits, s.Valid, now)
		next.Introduced = now
		return next, now, err
	}
	// What the old root signs must not expire with it before it is renewed, so the next one signs when a third of the rest is left,
	// even if that is early.
	due = k.Introduced.Add(min(s.Spread, root.NotAfter.Sub(k.Introduced)*2/3))
	next = Kept{Cert: k.NextCert, Key: k.NextKey, Former: k.Cert, FormerUntil: now.Add(s.Spread)}
	if next.FormerUntil.After(root.NotAfter) {
		next.FormerUntil = root.NotAfter
	}
	return next, due, nil
}
