package wasm

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// maxModule is the size of the largest module, and of the largest archive, in bytes.
const maxModule = 256 << 20

// moduleFile is the name of the module in an image.
const moduleFile = "plugin.wasm"

// The first bytes of files. In a module, the version of the format (core) follows magic.
const (
	magic     = "\x00asm"
	core      = "\x01\x00\x00\x00"
	gzipMagic = "\x1f\x8b"
	tarMagic  = "ustar"
	tarAt     = 257
)

// tooLargeError is the error for a module or an archive that is too large.
type tooLargeError int64

// Error implements error.
func (e tooLargeError) Error() string { return fmt.Sprintf("it has more than %d bytes", int64(e)) }

// limited reads at most a number of bytes; more are an error.
type limited struct {
	from io.Reader
	left int64
	of   int64
}

func limit(from io.Reader, n int64) *limited { return &limited{from, n, n} }

// Read implements io.Reader.
func (l *limited) Read(b []byte) (int, error) {
	if int64(len(b)) > l.left+1 {
		b = b[:l.left+1]
	}
	n, err := l.from.Read(b)
	if l.left -= int64(n); l.left < 0 {
		return 0, permanent{tooLargeError(l.of)}
	}
	return n, err
}

// open finds the module in what a server sent: the module itself, or an archive of it. Neither may have more than max bytes, unpacked.
func open(from io.Reader, max int64) (io.Reader, error) {
	in := bufio.NewReaderSize(limit(from, max), 4<<10)
	if begins(in, gzipMagic) {
		unzipped, err := gzip.NewReader(in)
		if err != nil {
			return nil, damaged(err)
		}
		in = bufio.NewReaderSize(limit(unzipped, max), 4<<10)
	}
	head, err := in.Peek(tarAt + len(tarMagic))
	if err == nil && string(head[tarAt:]) == tarMagic {
		return find(in, func(name string) bool { return strings.HasSuffix(name, ".wasm") }, "*.wasm")
	}
	return in, nil
}

func begins(in *bufio.Reader, with string) bool {
	head, err := in.Peek(len(with))
	return err == nil && string(head) == with
}

// openLayer finds the module in a layer of an image, which is a compressed archive.
func openLayer(from io.Reader, max int64) (io.Reader, error) {
	in, err := gzip.NewReader(limit(from, max))
	if err != nil {
		return nil, damaged(err)
	}
	return find(limit(in, max), func(name string) bool { return name == moduleFile }, moduleFile)
}

// find returns the content of a file in an archive.
func find(in io.Reader, is func(name string) bool, what string) (io.Reader, error) {
	archive := tar.NewReader(in)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil, permanent{fmt.Errorf("there is no file %s in the archive", what)}
		}
		if err != nil {
			return nil, damaged(err)
		}
		if h.Typeflag == tar.TypeReg && is(path.Base(h.Name)) {
			return archive, nil
		}
	}
}

// damaged returns the error for a damaged archive. It does not change an error of the reader below: another attempt may succeed.
func damaged(err error) error {
	if errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, tar.ErrHeader) {
		return permanent{errors.New("the archive is damaged")}
	}
	return err
}

// store copies a module. It returns its checksum, in hexadecimal.
func store(to io.Writer, from io.Reader, max int64) (sum string, err error) {
	in := limit(from, max)
	head := make([]byte, len(magic)+len(core))
	n, err := io.ReadFull(in, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", err
	}
	if err := checkHead(head[:n]); err != nil {
		return "", err
	}
	hash := sha256.New()
	hash.Write(head)
	if _, err := to.Write(head); err != nil {
		return "", err
	}
	if _, err := io.Copy(io.MultiWriter(to, hash), in); err != nil {
		return "", damaged(err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// checkHead checks that a module begins here.
func checkHead(head []byte) error {
	switch {
	case !bytes.HasPrefix(head, []byte(magic)):
		return permanent{errors.New("it is not a WebAssembly module: it does not begin as one")}
	case string(head[len(magic):]) != core:
		return permanent{errors.New("it is no module of WebAssembly 1.0: Envoy runs modules of the proxy-wasm ABI, but no components")}
	}
	return nil
}
