package ca

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pilotmesh/pilot/internal/run/filewatch"
)

// Plug is a place where an authority may be plugged in.
type Plug interface {
	// Files returns the files of the place, by name. It returns an error that is fs.ErrNotExist if nothing is plugged in.
	Files(ctx context.Context) (map[string][]byte, error)
}

// materialOf returns the authority in files of either layout.
func materialOf(files map[string][]byte) (m Material, err error) {
	for _, l := range layouts() {
		if _, ok := files[l.key]; !ok {
			continue
		}
		for _, name := range []string{l.cert, l.roots} {
			if _, ok := files[name]; !ok {
				return Material{}, fmt.Errorf("it has %s, and no %s", l.key, name)
			}
		}
		return Material{Cert: files[l.cert], Key: files[l.key], Chain: files[l.chain], Roots: files[l.roots], CRL: files[l.crl]}, nil
	}
	return Material{}, errors.New("it has neither ca-key.pem nor tls.key")
}

// read reads the authority that is plugged in at a place.
func read(ctx context.Context, at Plug) (Material, error) {
	files, err := at.Files(ctx)
	if err != nil {
		return Material{}, err
	}
	return materialOf(files)
}

// Folder is a folder into which an authority is plugged, such as a mounted Secret. Its files have Istio's names, or the
// names in Secrets of the type kubernetes.io/tls.
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

// Files implements Plug. The files may belong to different versions if they are being replaced.
func (f Folder) Files(context.Context) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, path := range f.paths() {
		content, err := filewatch.Read(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		default:
			files[filepath.Base(path)] = content
		}
	}
	return files, nil
}

// ServingFiles are files with the certificate that the control plane shows to its clients, its key, and the roots of
// their certificates besides the roots of the mesh. The first two are set together.
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
