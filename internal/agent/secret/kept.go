package secret

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pilotmesh/pilot/internal/agent/disk"
)

// The files in which a machine keeps its certificate, as Istio names them. rootsFile has the roots of the authority, which also vouch for the
// control plane where settings name the file. wholeFile has all of them, so that a machine that loses power while they are written keeps
// its identity.
const (
	chainFile, keyFile, rootsFile = "cert-chain.pem", "key.pem", "root-cert.pem"
	wholeFile                     = "identity.pem"
)

// bundleFile has all roots that the workload trusts: the roots of the authority and the anchors. They vouch for workloads only.
const bundleFile = "trust-bundle.pem"

func keptNames() []string { return []string{wholeFile, keyFile, chainFile, rootsFile, bundleFile} }

// KeptFiles returns the paths of certificate, key and the authority's roots in a folder.
func KeptFiles(dir string) (certificate, key, roots string) {
	return filepath.Join(dir, chainFile), filepath.Join(dir, keyFile), filepath.Join(dir, rootsFile)
}

// BundleFile returns the path of the file in a folder with all roots that the workload trusts.
func BundleFile(dir string) string { return filepath.Join(dir, bundleFile) }

// together is the largest difference between the times of files that an agent has written together.
const together = time.Minute

// separateRoots takes the anchors out of the roots file that an earlier version of the agent has written: it wrote them beside the roots of the
// authority, where they vouched for the control plane, too. That version wrote no bundle. A roots file that was put there
// later stays.
func (i *Issued) separateRoots() {
	if i.o.Output == "" {
		return
	}
	whole, roots := filepath.Join(i.o.Output, wholeFile), filepath.Join(i.o.Output, rootsFile)
	if _, err := os.Lstat(BundleFile(i.o.Output)); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	one, err := os.Stat(whole)
	if err != nil {
		return
	}
	other, err := os.Stat(roots)
	if err != nil || other.ModTime().Sub(one.ModTime()).Abs() > together {
		return
	}
	identity, err := disk.Read(whole)
	if err != nil {
		return
	}
	mixed, err := disk.Read(roots)
	if err != nil {
		return
	}
	own, anchors := 0, 0
	var kept []byte
	for _, b := range certificates(mixed) {
		if text := pem.EncodeToMemory(b); bytes.Contains(identity, text) {
			own, kept = own+1, append(kept, text...)
		} else {
			anchors++
		}
	}
	if own == 0 || anchors == 0 {
		return
	}
	err = disk.ReplaceAll(i.o.Output, []disk.File{{Name: rootsFile, Content: kept, Public: true}, {Name: bundleFile, Content: mixed, Public: true}})
	i.o.Log.Warn("roots that are meant for Envoy vouched for the control plane, too; they are in a file of their own now", "file", roots, "roots", anchors, "now", BundleFile(i.o.Output), "error", err)
}

// certificates returns the certificates of a text in PEM.
func certificates(text []byte) (list []*pem.Block) {
	for {
		var b *pem.Block
		if b, text = pem.Decode(text); b == nil {
			return list
		}
		if b.Type == certificateBlock {
			list = append(list, &pem.Block{Type: b.Type, Bytes: b.Bytes})
		}
	}
}

// restore loads the certificate that an earlier agent has written, if it is still good. The authority is asked nevertheless: it may have
// other roots by now.
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

// readKept returns the newest certificate that is kept in a folder and still good: from wholeFile, or from the three
// files of Istio, which another program may have written.
func (i *Issued) readKept(dir string, now time.Time) (*held, error) {
	one, oneErr := disk.Read(filepath.Join(dir, wholeFile))
	certificate, key, roots := KeptFiles(dir)
	var three []byte
	var threeErr error
	for _, path := range []string{key, certificate, roots} {
		text, err := disk.Read(path)
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

// write writes certificate, key and roots to the output folder: all files, or none if there is no space for them. Run tries again later if it fails.
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
	if err == nil {
		err = disk.ReplaceAll(i.o.Output, []disk.File{
			{Name: wholeFile, Content: slices.Concat(key, chain, h.roots)}, {Name: keyFile, Content: key}, {Name: chainFile, Content: chain, Public: true},
			{Name: rootsFile, Content: h.roots, Public: true}, {Name: bundleFile, Content: i.bundle(h), Public: true},
		})
	}
	if err != nil && !i.unwritten {
		i.o.Log.Warn("certificates cannot be written to the folder OUTPUT_CERTS, which has those from before; this is tried again every minute", "error", err)
	}
	i.unwritten = err != nil
}
