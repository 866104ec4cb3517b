package ca

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pilotmesh/pilot/internal/filewatch"
)

// Folder is a folder into which an authority is plugged, such as a mounted Secret. Its files have Istio's names, or those of Secrets
// of the type kubernetes.io/tls.
type Folder string

// layout are the names of the files of an authority.
type layout struct{ cert, key, chain, roots, crl string }

func layouts() []layout {
	return []layout{
		{"ca-cert.pem", "ca-key.pem", "cert-chain.pem", "root-cert.pem", "ca-crl.pem"},
		{"tls.crt", "tls.key", "", "ca.crt", "ca-crl.pem"},
	}
}

// Exists reports whether the folder has the key of an authority.
func (f Folder) Exists() bool {
	for _, l := range layouts() {
		if _, err := os.Stat(f.path(l.key)); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

func (f Folder) path(name string) string { return filepath.Join(string(f), name) }

// paths returns the paths of all files of both layouts.
func (f Folder) paths() (list []string) {
	for _, l := range layouts() {
		for _, name := range []string{l.cert, l.key, l.chain, l.roots, l.crl} {
			if name != "" {
				list = append(list, f.path(name))
			}
		}
	}
	return list
}

// Read reads the files. Their content may belong to different versions if they are being replaced.
func (f Folder) Read() (Material, error) {
	for _, l := range layouts() {
		if _, err := os.Stat(f.path(l.key)); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return f.read(l)
	}
	return Material{}, fmt.Errorf("%s has neither ca-key.pem nor tls.key", f)
}

func (f Folder) read(l layout) (m Material, err error) {
	for _, one := range []struct {
		name     string
		into     *[]byte
		required bool
	}{{l.cert, &m.Cert, true}, {l.key, &m.Key, true}, {l.chain, &m.Chain, false}, {l.roots, &m.Roots, true}, {l.crl, &m.CRL, false}} {
		if one.name == "" {
			continue
		}
		if *one.into, err = filewatch.Read(f.path(one.name)); err != nil && (one.required || !errors.Is(err, fs.ErrNotExist)) {
			return Material{}, err
		}
	}
	return m, nil
}

// ServingFiles are files with the certificate that the control plane shows to its clients, its key, and the roots of their certificates
// beside those of the mesh. The first two are set together.
type ServingFiles struct{ Cert, Key, Roots string }

func (f ServingFiles) paths() (list []string) {
	for _, p := range []string{f.Cert, f.Key, f.Roots} {
		if p != "" {
			list = append(list, p)
		}
	}
	return list
}

// read returns the certificate, nil if the files are not set.
func (f ServingFiles) read() (*tls.Certificate, error) {
	if f.Cert == "" {
		return nil, nil //nolint:nilnil // there is none, which is no error
	}
	cert, err := filewatch.Read(f.Cert)
	if err != nil {
		return nil, err
	}
	key, err := filewatch.Read(f.Key)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %s", f.Cert, f.Key, strings.TrimPrefix(err.Error(), "tls: "))
	}
	return &pair, nil
}
