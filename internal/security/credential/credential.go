// Package credential defines the content of a Secret: a certificate with its key, the roots of the certificates of others, and credentials of
// registries of images. It parses the entries of Secrets, and checks all that it takes in.
//
// Invariants: A Secret is immutable, and all that is in it has been checked: certificates and revocation lists parse, and the key
// belongs to the certificate. Nothing prints a Secret: neither its String method nor any verb of fmt, nor JSON; and no error or flaw
// has a part of an entry.
//
// Goroutines: none.
package credential

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// The entries of a Secret: first of the type kubernetes.io/tls, then of generic Secrets.
const (
	TLSCertificate = "tls.crt"
	TLSKey         = "tls.key"
	TLSRoots       = "ca.crt"
	TLSRevoked     = "ca.crl"
	TLSStaple      = "tls.ocsp-staple" // has no counterpart in generic Secrets

	genericCertificate = "cert"
	genericKey         = "key"
	genericRoots       = "cacert"
	genericRevoked     = "crl"
)

// DockerConfig is the entry of a Secret of the type kubernetes.io/dockerconfigjson.
const DockerConfig = ".dockerconfigjson"

// Secret is the content of a Secret.
type Secret struct {
	chain, key []byte
	staple     []byte // OCSP response in DER form; nil for none
	roots, crl []byte
	docker     []byte
	// brokenPair, brokenRoots and brokenDocker are true if the Secret has such a part, and it cannot be used.
	brokenPair, brokenRoots, brokenDocker bool
	expires                               time.Time
	// expired is true if the certificate had expired when it was read, nameless if it is for servers and names none.
	expired, nameless bool
}

const hidden = "(a secret, not shown)"

// String returns a remark.
func (*Secret) String() string { return hidden }

// Format prints a remark for every verb.
func (*Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// MarshalText returns a remark.
func (*Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// Pair returns the certificate with its chain, and its key, as PEM; false if there is none.
func (s *Secret) Pair() (chain, key []byte, ok bool) { return s.chain, s.key, s.chain != nil }

// Staple returns the OCSP response about the certificate, in DER form; nil if there is none.
func (s *Secret) Staple() []byte { return s.staple }

// Roots returns the certificates of authorities, and their revocation lists if there are any, as PEM; false if there are none.
func (s *Secret) Roots() (roots, crl []byte, ok bool) { return s.roots, s.crl, s.roots != nil }

// Docker returns the credentials of registries, as the configuration of Docker; false if there are none.
func (s *Secret) Docker() (config []byte, ok bool) { return s.docker, s.docker != nil }

// Has reports whether the Secret has the part to which an entry belongs. No entry belongs to the part with the certificate.
func (s *Secret) Has(entry string) bool {
	switch entry {
	case DockerConfig:
		return s.docker != nil
	case TLSRoots, TLSRevoked, genericRoots, genericRevoked:
		return s.roots != nil
	}
	return s.chain != nil
}

// Expires is when the certificate expires; zero without one.
func (s *Secret) Expires() time.Time { return s.expires }

// Equal reports whether two Secrets have the same content.
func (s *Secret) Equal(o *Secret) bool {
	return s == o || s != nil && o != nil && s.brokenPair == o.brokenPair && s.brokenRoots == o.brokenRoots && s.brokenDocker == o.brokenDocker &&
		bytes.Equal(s.docker, o.docker) && bytes.Equal(s.chain, o.chain) && bytes.Equal(s.key, o.key) && bytes.Equal(s.staple, o.staple) && bytes.Equal(s.roots, o.roots) && bytes.Equal(s.crl, o.crl)
}

// Flaw is an error in entries of a Secret.
type Flaw struct {
	// Entries are the names of the entries, such as "tls.crt".
	Entries []string
	// Reason describes the error and its remedy. It has nothing of the content.
	Reason string
	// Unused is true if the part of the Secret to which the entries belong cannot be used.
	Unused bool
}

// Parse takes in the entries of a Secret. A part that cannot be used does not affect the other one.
func Parse(entries map[string][]byte) (*Secret, []Flaw) {
	s := &Secret{}
	flaws := append(append(s.parsePair(entries), s.parseRoots(entries)...), s.parseDocker(entries)...)
	if len(flaws) == 0 && s.chain == nil && s.roots == nil && s.docker == nil {
		s.brokenPair, s.brokenRoots, s.brokenDocker = true, true, true
		flaws = append(flaws, Flaw{Reason: fmt.Sprintf("it has nothing for TLS; add %s and %s, or %s, or both", TLSCertificate, TLSKey, TLSRoots), Unused: true})
	}
	return s, flaws
}

// ParseRoots takes in the entries of a ConfigMap: the certificates of authorities, and revocation lists if there are any. No other entry is
// looked at.
func ParseRoots(entries map[string]string) (*Secret, []Flaw) {
	given := map[string][]byte{}
	for _, name := range []string{genericRoots, TLSRoots, genericRevoked, TLSRevoked} {
		given[name] = []byte(entries[name])
	}
	s := &Secret{}
	flaws := s.parseRoots(given)
	if len(flaws) == 0 && s.roots == nil {
		s.brokenRoots = true
		flaws = []Flaw{{[]string{TLSRoots}, "it is missing or empty; write the certificates of the authorities into it", true}}
	}
	return s, flaws
}

// choose returns the names of the entries of one layout or the other.
func choose(entries map[string][]byte, generic, tls []string) []string {
	for _, name := range generic {
		if len(entries[name]) == 0 {
			return tls
		}
	}
	return generic
}

func (s *Secret) parsePair(entries map[string][]byte) []Flaw {
	names := choose(entries, []string{genericCertificate, genericKey}, []string{TLSCertificate, TLSKey})
	cert, key := entries[names[0]], entries[names[1]]
	unused := func(reason string, of ...string) []Flaw {
		s.brokenPair = true
		return []Flaw{{of, reason, true}}
	}
	switch {
	case len(cert) == 0 && len(key) == 0:
		return nil
	case len(cert) == 0:
		return unused("it is missing or empty, and its key exists; add the certificate", names[0])
	case len(key) == 0:
		return unused("it is missing or empty, and its certificate exists; add the key", names[1])
	}
	chain, leaf, err := Chain(cert)
	if err != nil {
		return unused(err.Error(), names[0])
	}
	if err := strong(leaf); err != nil {
		return unused(err.Error(), names[0])
	}
	private, err := Key(key)
	if err != nil {
		return unused(err.Error(), names[1])
	}
	if err := Match(chain, private); err != nil {
		return unused(err.Error(), names...)
	}
	s.chain, s.key, s.expires = chain, private, leaf.NotAfter
	var flaws []Flaw
	if names[0] == TLSCertificate {
		flaws = s.parseStaple(entries[TLSStaple], leaf)
	}
	expired, nameless := Expired(leaf), withoutNames(leaf)
	s.expired, s.nameless = expired != "", nameless != ""
	for _, remark := range []string{expired, nameless} {
		if remark != "" {
			flaws = append(flaws, Flaw{Entries: names[:1], Reason: remark})
		}
	}
	return flaws
}

func (s *Secret) parseRoots(entries map[string][]byte) []Flaw {
	names := append(choose(entries, []string{genericRoots}, []string{TLSRoots}), choose(entries, []string{genericRevoked}, []string{TLSRevoked})...)
	given, lists := entries[names[0]], entries[names[1]]
	unused := func(reason, of string) []Flaw {
		s.brokenRoots = true
		return []Flaw{{[]string{of}, reason, true}}
	}
	switch {
	case len(given) == 0 && len(lists) == 0:
		return nil
	case len(given) == 0:
		return unused("it is missing or empty, and a revocation list exists; add the certificates of the authorities", names[0])
	}
	roots, remark, err := Roots(given)
	if err != nil {
		return unused(err.Error(), names[0])
	}
	var crl []byte
	if len(lists) > 0 {
		if crl, err = RevocationLists(lists); err != nil {
			return unused(err.Error(), names[1])
		}
	}
	s.roots, s.crl = roots, crl
	if remark != "" {
		return []Flaw{{Entries: names[:1], Reason: remark}}
	}
	return nil
}

func (s *Secret) parseDocker(entries map[string][]byte) []Flaw {
	text := entries[DockerConfig]
	if len(text) == 0 {
		return nil
	}
	var file struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	if json.Unmarshal(text, &file) != nil || file.Auths == nil { // the error could quote the content
		s.brokenDocker = true
		return []Flaw{{[]string{DockerConfig}, "it has no credentials of registries (auths); write it with kubectl create secret docker-registry", true}}
	}
	s.docker = bytes.Clone(text)
	return nil
}

// Or returns the Secret with each part that cannot be used replaced by the same part of an older version, which may be nil. An expired
// certificate is replaced by one that has not expired, and a certificate for servers without names by one with names.
func (s *Secret) Or(last *Secret) *Secret {
	if last == nil || !s.brokenPair && !s.brokenRoots && !s.brokenDocker && !s.expired && !s.nameless {
		return s
	}
	out := *s
	better := time.Now().Before(last.expires) && (s.expired || s.nameless && !last.nameless)
	if last.chain != nil && (s.brokenPair || better) {
		out.chain, out.key, out.staple, out.expires, out.expired, out.nameless = last.chain, last.key, last.staple, last.expires, last.expired, last.nameless
	}
	if s.brokenRoots && last.roots != nil {
		out.roots, out.crl = last.roots, last.crl
	}
	if s.brokenDocker && last.docker != nil {
		out.docker = last.docker
	}
	return &out
}

// Broken reports whether the Secret has a certificate, or roots, that cannot be used.
func (s *Secret) Broken() (pair, roots bool) { return s.brokenPair, s.brokenRoots }
