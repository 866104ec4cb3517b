package lastgood

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// commitLimit is how long Commit waits for the disk.
const commitLimit = time.Second

// Commit returns when the changes of guarded types that Envoy has acknowledged are on disk. If they cannot be written, or the disk takes longer
// than commitLimit, it returns, too, and State says so: a disk that is full or hangs ends no data plane.
func (s *Store) Commit() {
	s.mu.Lock()
	nothing := len(s.changes) == 0
	s.mu.Unlock()
	if nothing {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), commitLimit)
	defer cancel()
	select {
	case s.committing <- struct{}{}:
	case <-ctx.Done():
		s.late()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { <-s.committing }()
		s.commit()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		s.late()
	}
}

// commit writes the changes. If it cannot, none is added any more until the whole configuration is written, which is tried at once.
func (s *Store) commit() {
	s.mu.Lock()
	list := s.changes
	s.changes = nil
	s.mu.Unlock()
	err := s.journal.add(list, maxSize)
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problem(err)
	s.based, s.changes = false, nil
	s.touch()
	signal(s.urgent)
}

// late notes that the disk takes too long.
func (s *Store) late() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problem(fmt.Errorf("%s: the disk has not taken a change within %v", s.journal.path, commitLimit))
	s.touch() // the next file says whether it is well again
}

// journal is the file with the changes of guarded types behind the file of the whole configuration: a line of JSON, its header, and the changes
// in their order. Each has a number, which is larger than those before it, so that a journal fits to an older and to a newer file.
type journal struct {
	path, node string

	mu   sync.Mutex
	file *os.File // nil if nothing was added since it was emptied
	size int64    // up to where it is good
	last uint64   // the number of the last change
}

// journalHeader begins a journal.
type journalHeader struct {
	Format int    `json:"lastKnownGoodChanges"`
	Node   string `json:"node"`
}

// change is a change with its number.
type change struct {
	number   uint64
	response *discoveryv3.DeltaDiscoveryResponse
}

// frameHead is the size of the head of a change, its length and its checksum, in bytes.
const frameHead = 8

// frame returns a change as it is in the file.
func frame(body []byte) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, frameHead+len(body)), uint32(len(body)))
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	return append(b, body...)
}

// unframe returns the first change of a text and the rest; false if it was not written to its end, or is damaged.
func unframe(text []byte) (body, rest []byte, ok bool) {
	if len(text) < frameHead {
		return nil, nil, false
	}
	n := int(binary.BigEndian.Uint32(text))
	if n > len(text)-frameHead {
		return nil, nil, false
	}
	body = text[frameHead : frameHead+n]
	sum := binary.BigEndian.Uint32(text[4:])
	return body, text[frameHead+n:], sum == crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli))
}

// read reads the changes. A change that was not written to its end was not acknowledged either, and ends them.
func (j *journal) read(limit int64) (list []change, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	text, err := content(j.path, limit)
	if err != nil || text == nil {
		return nil, err
	}
	line, rest, ok := bytes.Cut(text, []byte("\n"))
	var h journalHeader
	if !ok || len(line) > maxHeader || json.Unmarshal(line, &h) != nil || h.Format != format || h.Node != j.node {
		return nil, fmt.Errorf("%s has no changes of this proxy", j.path)
	}
	for {
		j.size = int64(len(text) - len(rest))
		body, after, ok := unframe(rest)
		r := &discoveryv3.DeltaDiscoveryResponse{}
		if !ok || proto.Unmarshal(body, r) != nil {
			return list, nil
		}
		number, err := strconv.ParseUint(r.GetNonce(), 10, 64)
		if err != nil || number <= j.last {
			return list, nil
		}
		list, j.last, rest = append(list, change{number, r}), number, after
	}
}

// add adds changes, and returns when they are on the disk. After an error the file is as it was.
func (j *journal) add(list []*discoveryv3.DeltaDiscoveryResponse, limit int64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	var text []byte
	last := j.last
	for _, r := range list {
		body, err := proto.Marshal(r)
		if err != nil {
			return err
		}
		text = append(text, frame(body)...)
		if last, err = strconv.ParseUint(r.GetNonce(), 10, 64); err != nil {
			return err
		}
	}
	if j.size+int64(len(text)) > limit {
		return fmt.Errorf("%s would be larger than %d bytes", j.path, limit)
	}
	err := j.open()
	if err == nil {
		_, err = j.file.Write(text)
	}
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		if j.file != nil {
			err = errors.Join(err, j.file.Truncate(j.size))
		}
		return err
	}
	j.size, j.last = j.size+int64(len(text)), last
	return nil
}

// open opens the file to add to it, and begins one if there is none. It is called with the lock held.
func (j *journal) open() error {
	if j.file != nil {
		return nil
	}
	file, err := os.OpenFile(j.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	err = file.Truncate(j.size) // a change that was not written to its end
	if err == nil && j.size == 0 {
		var line []byte
		if line, err = json.Marshal(journalHeader{format, j.node}); err == nil {
			_, err = file.Write(append(line, '\n'))
		}
		if err == nil {
			err = syncFolder(filepath.Dir(j.path))
		}
		j.size = int64(len(line) + 1)
	}
	if err != nil {
		j.size = 0
		return errors.Join(err, file.Close())
	}
	j.file = file
	return nil
}

// syncFolder makes the disk keep the names of the files in a folder.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// emptyThrough removes the changes if there is none with a larger number.
func (j *journal) emptyThrough(number uint64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.last > number || j.last == 0 && j.file == nil {
		return nil
	}
	return j.remove()
}

// empty removes the changes.
func (j *journal) empty() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.remove()
}

// remove removes the file. It is called with the lock held.
func (j *journal) remove() error {
	var err error
	if j.file != nil {
		err = j.file.Close()
	}
	j.file, j.size, j.last = nil, 0, 0
	if gone := os.Remove(j.path); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		return errors.Join(err, gone)
	}
	return err
}
