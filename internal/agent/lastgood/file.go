package lastgood

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/renameio/v2"
	"google.golang.org/protobuf/encoding/protodelim"
)

// A file is a line of JSON, the header; a DeltaDiscoveryResponse for each type, each after its size; and the SHA-256 of all that.

// format is the version of the format. A file of another one is not used: the control plane sends everything again.
const format = 1

// maxHeader is the size of the largest header, in bytes.
const maxHeader = 4 << 10

type header struct {
	Format int       `json:"lastKnownGoodFormat"`
	Node   string    `json:"node"`
	Saved  time.Time `json:"saved"`
	Types  int       `json:"types"`
	// Complete are the types with all resources in the file, and Changes is the number of the last change that is in the file. Agents that
	// did not write changes apart have written neither.
	Complete []string `json:"complete"`
	Changes  *uint64  `json:"changes"`
}

// read reads the file of a proxy. If there is none, nothing is returned.
func read(path, node string, limit int64) (h *header, list []*discoveryv3.DeltaDiscoveryResponse, err error) {
	text, err := content(path, limit)
	if err != nil || text == nil {
		return nil, nil, err
	}
	if h, list, err = parse(text, node); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return h, list, nil
}

// content returns the content of a file that no other user can write; nil if the file does not exist.
func content(path string, limit int64) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe does not block, and is refused
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case info.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("%s can be written by other users (mode %#o), who could make Envoy do anything", path, info.Mode().Perm())
	case info.Size() > limit:
		return nil, fmt.Errorf("%s has %d bytes, and the most is %d", path, info.Size(), limit)
	}
	text, err := io.ReadAll(io.LimitReader(file, limit))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return text, nil
}

// parse reads the content of the file of a proxy.
func parse(text []byte, node string) (h *header, list []*discoveryv3.DeltaDiscoveryResponse, err error) {
	end := len(text) - sha256.Size
	if end < 0 {
		return nil, nil, errors.New("it is cut off")
	}
	line, body, ok := bytes.Cut(text[:end], []byte("\n"))
	h = &header{}
	if !ok || len(line) > maxHeader || json.Unmarshal(line, h) != nil {
		return nil, nil, errors.New("it is no configuration of a proxy")
	}
	if sum := sha256.Sum256(text[:end]); !bytes.Equal(sum[:], text[end:]) {
		return nil, nil, errors.New("its checksum is wrong: it is damaged")
	}
	if h.Format != format {
		return nil, nil, fmt.Errorf("it has format %d, and this agent reads %d", h.Format, format)
	}
	if h.Node != node {
		return nil, nil, fmt.Errorf("it is of the proxy %.200q, and this one is %q", h.Node, node)
	}
	in := bufio.NewReader(bytes.NewReader(body))
	for range h.Types {
		r := &discoveryv3.DeltaDiscoveryResponse{}
		if err := (protodelim.UnmarshalOptions{MaxSize: int64(len(body))}).UnmarshalFrom(in, r); err != nil {
			return nil, nil, fmt.Errorf("it cannot be read: %w", err)
		}
		list = append(list, r)
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		return nil, nil, errors.New("there is more in it than its header says")
	}
	return h, list, nil
}

// write replaces the file.
func write(path string, h header, limit int64, list []*discoveryv3.DeltaDiscoveryResponse) error {
	// Only the owner can read the file. After a crash of the machine it is this one or the one before.
	file, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)))
	if err != nil {
		return err
	}
	if err := fill(file, h, limit, list); err != nil {
		return errors.Join(err, file.Cleanup())
	}
	if err := file.CloseAtomicallyReplace(); err != nil {
		return errors.Join(err, file.Cleanup())
	}
	return nil
}

// fill writes the content of a file.
func fill(file io.Writer, h header, limit int64, list []*discoveryv3.DeltaDiscoveryResponse) error {
	line, err := json.Marshal(h)
	if err != nil {
		return err
	}
	buffer := bufio.NewWriter(file)
	out := &summed{to: buffer, sum: sha256.New(), left: limit - sha256.Size}
	if _, err := out.Write(append(line, '\n')); err != nil {
		return err
	}
	for _, r := range list {
		if _, err := protodelim.MarshalTo(out, r); err != nil {
			return err
		}
	}
	if _, err := buffer.Write(out.sum.Sum(nil)); err != nil {
		return err
	}
	return buffer.Flush()
}

// summed writes at most a number of bytes, and sums them.
type summed struct {
	to   io.Writer
	sum  hash.Hash
	left int64
}

// Write implements io.Writer.
func (s *summed) Write(b []byte) (int, error) {
	if s.left -= int64(len(b)); s.left < 0 {
		return 0, errors.New("the configuration is larger than the largest file that is written")
	}
	s.sum.Write(b)
	return s.to.Write(b)
}
