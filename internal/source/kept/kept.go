// Package kept is the memory of the last good versions of access policies, which outlives the process. If the present version of a
// policy is refused, the kept version is in force, so that a restart, or another replica, opens nothing.
//
// Versions are divided among a fixed number of parts by namespace, so that a part has a bounded size and a change writes one part. If a
// part would be too large, it leaves out versions of the namespace that has most in it, so that a namespace with many policies costs
// another one nothing.
//
// Invariants: Versions that are read are checked like documents of users, and a version that does not pass is not used. The same versions make the
// same bytes.
//
// Goroutines: none. A Book may be used by several.
package kept

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/pilotmesh/pilot/internal/api"
)

// Parts is the number of parts.
const Parts = 4

const (
	// mostPacked is the size of the largest part. A ConfigMap may have 1 MiB.
	mostPacked = 900 << 10
	// mostUnpacked is the size of the largest part before it is compressed.
	mostUnpacked = 32 << 20
)

// record is one version as it is written: one line of a part.
type record struct {
	// File is the file of the object; empty in a cluster. Generation is the version of the object in a cluster.
	File       string          `json:"file,omitempty"`
	Generation int64           `json:"generation,omitempty"`
	Object     json.RawMessage `json:"object"`
}

// Book has the versions that are to be kept.
type Book struct {
	mu       sync.Mutex
	parts    [Parts]part
	complete bool
}

type part struct {
	versions map[api.Key]*api.Object
	changed  bool
}

// partOf returns the number of the part that has the policies of a namespace.
func partOf(namespace string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(namespace))
	return int(h.Sum32() % Parts)
}

// Put keeps a version of an object. Its Position has the file and the generation.
func (b *Book) Put(o *api.Object) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := &b.parts[partOf(o.Namespace)]
	if old := p.versions[o.Key]; old != nil && old.Hash == o.Hash && old.Position.File == o.Position.File && old.Position.Generation == o.Position.Generation {
		return
	}
	if p.versions == nil {
		p.versions = map[api.Key]*api.Object{}
	}
	p.versions[o.Key], p.changed = o, true
}

// Drop forgets an object.
func (b *Book) Drop(k api.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := &b.parts[partOf(k.Namespace)]
	if _, ok := p.versions[k]; ok {
		delete(p.versions, k)
		p.changed = true
	}
}

// Complete says that every policy is known, so that a version that the book does not have is not wanted any more.
func (b *Book) Complete() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.complete = true
}

// IsComplete reports whether Complete was called.
func (b *Book) IsComplete() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.complete
}

// Changed returns the parts that have changed since Take was called for them; none before the book is complete.
func (b *Book) Changed() (list []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.parts {
		if b.complete && b.parts[i].changed {
			list = append(list, i)
		}
	}
	return list
}

// Take returns the versions of a part, in the order of their keys.
func (b *Book) Take(i int) []*api.Object {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parts[i].changed = false
	return slices.SortedFunc(maps.Values(b.parts[i].versions), func(x, y *api.Object) int { return x.Key.Compare(y.Key) })
}

// Retry makes a part count as changed, because it could not be written.
func (b *Book) Retry(i int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parts[i].changed = true
}

// Encode writes the versions of a part. left are the keys of versions without room.
func Encode(versions []*api.Object) (data []byte, left []api.Key, err error) {
	lines := make([]line, 0, len(versions))
	for _, o := range versions {
		text, err := encode(o)
		if err != nil {
			return nil, nil, fmt.Errorf("%v: %w", o.Key, err)
		}
		lines = append(lines, line{o.Key, text})
	}
	for most := mostUnpacked; ; {
		var gone []api.Key
		lines, gone = fit(lines, most)
		left = append(left, gone...)
		if data, err = pack(lines); err != nil || len(data) <= mostPacked {
			slices.SortFunc(left, api.Key.Compare)
			return data, left, err
		}
		most = size(lines) * mostPacked / len(data) * 9 / 10
	}
}

type line struct {
	key  api.Key
	text []byte
}

func size(lines []line) (n int) {
	for _, l := range lines {
		n += len(l.text)
	}
	return n
}

// fit leaves out lines until they have a size: again and again the largest of the namespace that has most.
func fit(lines []line, most int) (rest []line, left []api.Key) {
	total, of := size(lines), map[string]int{}
	largest := map[string][]line{} // by namespace, the largest last
	for _, l := range lines {
		of[l.key.Namespace] += len(l.text)
		largest[l.key.Namespace] = append(largest[l.key.Namespace], l)
	}
	gone := map[api.Key]bool{}
	for total > most {
		namespace := slices.MaxFunc(slices.Sorted(maps.Keys(of)), func(a, b string) int { return of[a] - of[b] })
		all := largest[namespace]
		if !slices.IsSortedFunc(all, bySize) {
			slices.SortFunc(all, bySize)
		}
		l := all[len(all)-1]
		largest[namespace] = all[:len(all)-1]
		of[namespace] -= len(l.text)
		total -= len(l.text)
		gone[l.key] = true
		left = append(left, l.key)
	}
	return slices.DeleteFunc(slices.Clone(lines), func(l line) bool { return gone[l.key] }), left
}

func bySize(a, b line) int { return cmp.Or(len(a.text)-len(b.text), b.key.Compare(a.key)) }

func pack(lines []line) ([]byte, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	for _, l := range lines {
		if _, err := z.Write(append(l.text, '\n')); err != nil {
			return nil, err
		}
	}
	err := z.Close()
	return out.Bytes(), err
}

// encode writes one version as the document that a user could have written.
func encode(o *api.Object) ([]byte, error) {
	kind, ok := api.FindKind(o.Kind)
	if !ok {
		return nil, errors.New("no such kind")
	}
	spec, err := protojson.Marshal(o.Spec)
	if err != nil {
		return nil, fmt.Errorf("write its spec: %w", err)
	}
	meta := map[string]any{"name": o.Name, "namespace": o.Namespace}
	if !o.Created.IsZero() {
		meta["creationTimestamp"] = o.Created.UTC().Format(time.RFC3339Nano)
	}
	if len(o.Labels) > 0 {
		meta["labels"] = o.Labels
	}
	if len(o.Annotations) > 0 {
		meta["annotations"] = o.Annotations
	}
	document, err := json.Marshal(map[string]any{
		"apiVersion": kind.Group() + "/" + kind.Versions()[0], "kind": o.Kind, "metadata": meta, "spec": json.RawMessage(spec),
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(record{o.Position.File, o.Position.Generation, document}) // which also removes the random blanks of protojson
}

// Decode reads a part. The error says what of it could not be read; the rest can be used.
func Decode(data []byte) (versions []*api.Object, err error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(z, mostUnpacked+mostPacked))
	if err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	var errs []error
	for l := range bytes.Lines(text) {
		o, err := decode(l)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		versions = append(versions, o)
	}
	return versions, errors.Join(errs...)
}

func decode(text []byte) (*api.Object, error) {
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("a version is damaged: %w", err)
	}
	docs := api.Decode("", r.Object)
	if len(docs) != 1 {
		return nil, fmt.Errorf("a version is %d documents instead of one", len(docs))
	}
	docs[0].Check()
	o := docs[0].Object
	switch {
	case o == nil && len(docs[0].Problems) > 0:
		return nil, fmt.Errorf("the version of %v cannot be used: %s", docs[0].Key, docs[0].Problems[0].Reason)
	case o == nil || !o.Key.GuardsAccess():
		return nil, fmt.Errorf("%v is no access policy", docs[0].Key)
	}
	o.Position = api.Position{File: r.File, Generation: r.Generation}
	return o, nil
}
