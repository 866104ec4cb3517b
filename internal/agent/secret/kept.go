package secret

import (
	"crypto"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/renameio/v2"
)

// The files in which a machine keeps its certificate, as Istio names them. wholeFile has all of them, so that a machine that loses power
// while they are written does not lose its identity.
const (
	chainFile, keyFile, rootsFile = "cert-chain.pem", "key.pem", "root-cert.pem"
	wholeFile                     = "identity.pem"
)

// KeptFiles returns the paths of certificate, key and roots in a folder.
func KeptFiles(dir string) (certificate, key, roots string) {
	return filepath.Join(dir, chainFile), filepath.Join(dir, keyFile), filepath.Join(dir, rootsFile)
}

// restore takes in what an earlier agent has written, if it is still good. The authority is asked all the same: it may have other roots by
// now.
func (i *Issued) restore(now time.Time) {
	for _, dir := range []string{i.o.Output, i.o.Provided} {
		if dir == "" {
			continue
		}
		h, err := i.readKept(dir, now)
		switch {
		case err == nil:
			i.held.Store(h)
			i.o.Log.Info("the certificate of the workload is kept", "folder", dir, "valid_until", h.pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
			return
		case !errors.Is(err, fs.ErrNotExist):
			i.o.Log.Warn("the certificate that is kept cannot be used; another one is asked for", "folder", dir, "error", err)
		}
	}
}

// readKept returns the newest certificate that is kept in a folder and still good: from the file that has everything, or from the three
// files of Istio, which somebody else may have written.
func (i *Issued) readKept(dir string, now time.Time) (*held, error) {
	one, oneErr := os.ReadFile(filepath.Join(dir, wholeFile))
	certificate, key, roots := KeptFiles(dir)
	var three []byte
	var threeErr error
	for _, path := range []string{key, certificate, roots} {
		text, err := os.ReadFile(path)
		threeErr = errors.Join(threeErr, err)
		three = append(append(three, text...), '\n')
	}
	var newest *held
	if oneErr == nil {
		newest, oneErr = i.parseKept(one, now)
	}
	if threeErr == nil {
		var other *held
		if other, threeErr = i.parseKept(three, now); threeErr == nil && (newest == nil || other.pair.Leaf.NotBefore.After(newest.pair.Leaf.NotBefore)) {
			newest = other
		}
	}
	switch {
	case newest != nil:
		return newest, nil
	case errors.Is(threeErr, fs.ErrNotExist):
		return nil, oneErr
	}
	return nil, threeErr
}

// parseKept checks a key, its certificate and the roots as if the authority had just answered them.
func (i *Issued) parseKept(text []byte, now time.Time) (*held, error) {
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, err
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key cannot sign")
	}
	var answer []string
	for _, der := range pair.Certificate {
		answer = append(answer, string(encode(der)))
	}
	h, err := i.check(answer, signer, now)
	if err != nil {
		return nil, err
	}
	h.restored = true
	return h, nil
}

func encode(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der})
}

// write writes what is held to the output folder. Each file is written whole.
func (i *Issued) write(h *held) {
	if i.o.Output == "" || h == nil {
		return
	}
	key, err := i.encodeKey(h.pair.PrivateKey.(crypto.Signer)) //nolint:forcetypeassert // newKey made it
	var chain []byte
	for _, der := range h.pair.Certificate {
		chain = append(chain, encode(der)...)
	}
	err = errors.Join(err, os.MkdirAll(i.o.Output, 0o700))
	for _, f := range []struct {
		name    string
		content []byte
	}{{wholeFile, slices.Concat(key, chain, h.roots)}, {keyFile, key}, {chainFile, chain}, {rootsFile, i.bundle(h)}} {
		if err == nil {
			err = renameio.WriteFile(filepath.Join(i.o.Output, f.name), f.content, 0o600, renameio.WithTempDir(i.o.Output))
		}
	}
	if err != nil {
		i.o.Log.Warn("certificates cannot be written to the folder OUTPUT_CERTS", "error", err)
	}
}
