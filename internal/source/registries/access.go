package registries

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/run/filewatch"
)

// Access is how a reader shows who it is: secrets of the authFile, and TLS.
type Access struct {
	// Auth has the values of the authFile. They must not be logged.
	Auth map[string]string
	// TLS is nil without TLS.
	TLS *tls.Config
	// Content is the whole content of the files, to see whether they have changed.
	content string
}

// The keys of an authFile.
const (
	ConsulToken    = "consulToken"
	NacosUsername  = "nacosUsername"
	NacosPassword  = "nacosPassword"
	ZKDigest       = "zkDigest"
	EurekaUsername = "eurekaUsername"
	EurekaPassword = "eurekaPassword"
	MCPToken       = "mcpToken"
)

// files are the files with which an entry is accessed.
func (e *Entry) files() (paths []string) {
	if e.TLS != nil {
		paths = append(paths, e.TLS.CAFile, e.TLS.CertFile, e.TLS.KeyFile)
	}
	paths = append(paths, e.AuthFile)
	return slices.DeleteFunc(paths, func(p string) bool { return p == "" })
}

// access reads the files of an entry.
func (e *Entry) access() (a Access, err error) {
	var all strings.Builder
	read := func(path string) ([]byte, error) {
		b, err := filewatch.Read(path)
		fmt.Fprintf(&all, "%d %s\n", len(b), b)
		return b, err
	}
	defer func() { a.content = all.String() }()
	if e.AuthFile != "" {
		b, err := read(e.AuthFile)
		if err != nil {
			return a, fmt.Errorf("authFile: %w", err)
		}
		if a.Auth, err = parseAuth(string(b)); err != nil {
			return a, fmt.Errorf("authFile %s: %w", e.AuthFile, err)
		}
	}
	if e.TLS == nil {
		return a, nil
	}
	a.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: e.TLS.SNI, InsecureSkipVerify: e.TLS.InsecureSkipVerify} //nolint:gosec // asked for by the operator
	if e.TLS.CAFile != "" {
		b, err := read(e.TLS.CAFile)
		if err != nil {
			return a, fmt.Errorf("tls.caFile: %w", err)
		}
		a.TLS.RootCAs = x509.NewCertPool()
		if !a.TLS.RootCAs.AppendCertsFromPEM(b) {
			return a, fmt.Errorf("tls.caFile: %s has no certificate in PEM form", e.TLS.CAFile)
		}
	}
	if len(e.TLS.Names) > 0 && !e.TLS.InsecureSkipVerify {
		requireNames(a.TLS, e.TLS.Names)
	}
	if e.TLS.CertFile == "" {
		return a, nil
	}
	cert, err := read(e.TLS.CertFile)
	key, err2 := read(e.TLS.KeyFile)
	if err := errors.Join(err, err2); err != nil {
		return a, fmt.Errorf("tls.certFile and tls.keyFile: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return a, fmt.Errorf("tls.certFile and tls.keyFile: %w", err)
	}
	a.TLS.Certificates = []tls.Certificate{pair}
	return a, nil
}

// requireNames makes connections demand one of some names, DNS names or URIs, of the certificate of a server, in the place of the name by which the
// server is reached.
func requireNames(c *tls.Config, names []string) {
	roots := c.RootCAs
	c.InsecureSkipVerify = true // VerifyConnection verifies
	c.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return errors.New("the server shows no certificate")
		}
		between := x509.NewCertPool()
		for _, one := range s.PeerCertificates[1:] {
			between.AddCert(one)
		}
		leaf := s.PeerCertificates[0]
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between}); err != nil {
			return err
		}
		for _, name := range names {
			if leaf.VerifyHostname(name) == nil || slices.ContainsFunc(leaf.URIs, func(u *url.URL) bool { return u.String() == name }) {
				return nil
			}
		}
		return fmt.Errorf("the certificate of the server has none of the names %s", strings.Join(names, ", "))
	}
}

// parseAuth reads the lines KEY=VALUE of an authFile. Its errors contain no values.
func parseAuth(text string) (map[string]string, error) {
	known := []string{ConsulToken, NacosUsername, NacosPassword, ZKDigest, EurekaUsername, EurekaPassword, MCPToken}
	values := map[string]string{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		key = strings.TrimSpace(key)
		switch {
		case !ok:
			return nil, fmt.Errorf("line %d is not KEY=VALUE", n)
		case !slices.Contains(known, key):
			return nil, fmt.Errorf("line %d: the key is unknown; the keys are %s", n, strings.Join(known, ", "))
		}
		values[key] = strings.TrimSpace(value)
	}
	return values, nil
}
