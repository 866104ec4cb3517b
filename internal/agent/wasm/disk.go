package wasm

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	files "github.com/pilotmesh/pilot/internal/agent/disk"
)

const (
	// maxTotal is the total size of the modules that are kept, in bytes.
	maxTotal = 1 << 30
	// maxEntries is the largest number of references in the index. If there are more, all are forgotten: they only save fetches.
	maxEntries = 1000
	// maxIndex is the size of the largest index, in bytes.
	maxIndex = 1 << 20
	// indexFile is the name of the index, and suffix the end of the names of modules.
	indexFile = "index.json"
	suffix    = ".wasm"
	temporary = "fetching-"
)

// entry is the module that a reference led to.
type entry struct {
	SHA256 string `json:"sha256"`
	// Version is the version of the configuration that requested the module last.
	Version string `json:"version,omitempty"`
}

// key is the key of a reference in the index. It is a hash, because a URL may have credentials.
func key(kind, of string) string {
	sum := sha256.Sum256([]byte(kind + " " + of))
	return hex.EncodeToString(sum[:])
}

func urlKey(m Module) string        { return key("url", m.URL) }
func imageKey(digest string) string { return key("image", strings.TrimPrefix(digest, "sha256:")) }

// load reads the index, and removes the unfinished files of an earlier agent.
func (c *Cache) load() {
	c.index = map[string]entry{}
	files.Sweep(c.o.Dir, indexFile)
	left, err := filepath.Glob(filepath.Join(c.o.Dir, temporary+"*"))
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}
	path := filepath.Join(c.o.Dir, indexFile)
	info, statErr := os.Lstat(path)
	if errors.Is(statErr, fs.ErrNotExist) && err == nil {
		return
	}
	if err = errors.Join(err, statErr); err == nil && (!info.Mode().IsRegular() || info.Size() > maxIndex) {
		err = fmt.Errorf("%s is too large or not a regular file", path)
	}
	if err == nil {
		var text []byte
		if text, err = os.ReadFile(path); err == nil {
			err = json.Unmarshal(text, &c.index)
		}
	}
	if err != nil || c.index == nil {
		c.index = map[string]entry{}
		c.o.Log.Warn("the index of Wasm modules is not used; modules are fetched again", "error", err)
	}
	for k, e := range c.index {
		if b, err := hex.DecodeString(e.SHA256); err != nil || len(b) != sha256.Size {
			delete(c.index, k)
		}
	}
}

// path is the path of the module with a checksum.
func (c *Cache) path(sum string) string { return filepath.Join(c.o.Dir, sum+suffix) }

// lookup returns the path of a module in the cache; empty if it must be fetched.
func (c *Cache) lookup(r reference, m Module) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.SHA256 != "" && r.web != nil {
		return c.whole(m.SHA256)
	}
	if digest := wanted(r, m); digest != "" {
		return c.whole(c.index[imageKey(digest)].SHA256)
	}
	e := c.index[urlKey(m)]
	always := m.Policy == Always || m.Policy == Usual && r.moving()
	if always && (m.Version == "" || m.Version != e.Version) {
		return ""
	}
	return c.whole(e.SHA256)
}

// earlier returns the path of the module that the same URL led to earlier, if it may still be used.
func (c *Cache) earlier(r reference, m Module) string {
	if m.SHA256 != "" || wanted(r, m) != "" {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.whole(c.index[urlKey(m)].SHA256)
}

// wanted is the digest that the manifest of an image must have; empty for any.
func wanted(r reference, m Module) string {
	if d, ok := r.image.(name.Digest); ok {
		return strings.TrimPrefix(d.DigestStr(), "sha256:")
	}
	if r.image != nil {
		return m.SHA256
	}
	return ""
}

// whole returns the path of the module with a checksum, and notes that it is used; empty if the cache has no such module. It removes a
// damaged file. It is called with the lock held.
func (c *Cache) whole(sum string) string {
	if b, err := hex.DecodeString(sum); err != nil || len(b) != sha256.Size {
		return ""
	}
	path := c.path(sum)
	if !c.checked[sum] {
		if got, err := sumOf(path, c.maxModule); err != nil || got != sum {
			if !errors.Is(err, fs.ErrNotExist) {
				c.o.Log.Warn("a Wasm module on disk is damaged; it is fetched again", "file", path, "error", err)
				err = os.Remove(path)
				c.o.Log.Debug("removing it", "error", err)
			}
			return ""
		}
		c.checked[sum] = true
	}
	now := time.Now()
	if err := os.Chtimes(path, now, now); err != nil {
		delete(c.checked, sum)
		return ""
	}
	return path
}

// sumOf returns the checksum of a module in a file.
func sumOf(path string, max int64) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", permanent{errors.New("it is not a regular file")}
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	return store(io.Discard, file, max)
}

// checkFile checks a module that is on the host.
func (c *Cache) checkFile(path, sum string) error {
	got, err := sumOf(path, c.maxModule)
	if err != nil {
		return err
	}
	return checkSum(got, sum)
}

// Holds reports whether a path in the directory of the cache is the path of an undamaged module. It is true for all other paths.
func (c *Cache) Holds(path string) bool {
	if filepath.Dir(path) != c.o.Dir {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.whole(strings.TrimSuffix(filepath.Base(path), suffix)) != ""
}

// keep makes a file that was fetched the module with a checksum, and notes under which keys it is found.
func (c *Cache) keep(file *os.File, sum, version string, keys ...string) (string, error) {
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.makeRoom(info.Size(), sum); err != nil {
		return "", err
	}
	path := c.path(sum)
	if err := os.Rename(file.Name(), path); err != nil {
		return "", permanent{err}
	}
	c.checked[sum] = true
	c.note(sum, version, keys...)
	return path, nil
}

// note notes under which keys a module is found. It is called with the lock held.
func (c *Cache) note(sum, version string, keys ...string) {
	if len(c.index)+len(keys) > maxEntries {
		c.index = map[string]entry{}
	}
	for _, k := range keys {
		c.index[k] = entry{sum, version}
	}
	c.saveIndex()
}

func (c *Cache) saveIndex() {
	text, err := json.Marshal(c.index)
	if err == nil {
		err = files.Replace(filepath.Join(c.o.Dir, indexFile), text)
	}
	if err != nil {
		c.o.Log.Warn("the index of Wasm modules cannot be stored; after a restart, modules are fetched again", "error", err)
	}
}

// stored is a file of the cache.
type stored struct {
	sum  string
	size int64
	used time.Time
	// needed says that Envoy needs the module.
	needed bool
}

// files are the modules, in the order of their last use, the oldest first.
func (c *Cache) files() (list []stored, err error) {
	all, err := os.ReadDir(c.o.Dir)
	if err != nil {
		return nil, err
	}
	var needed []string
	if c.o.InUse != nil {
		needed = c.o.InUse()
	}
	for _, f := range all {
		sum, ok := strings.CutSuffix(f.Name(), suffix)
		info, err := f.Info()
		if ok && err == nil {
			list = append(list, stored{sum, info.Size(), info.ModTime(), slices.Contains(needed, c.path(sum))})
		}
	}
	slices.SortFunc(list, func(a, b stored) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.sum, b.sum)) })
	return list, nil
}

// makeRoom removes unneeded modules until another one has room. It is called with the lock held.
func (c *Cache) makeRoom(size int64, sum string) error {
	list, err := c.files()
	if err != nil {
		return permanent{err}
	}
	total := size
	for _, f := range list {
		total += f.size
	}
	for _, f := range list {
		if total <= c.maxTotal {
			return nil
		}
		if f.sum == sum || !f.needed && c.remove(f.sum) {
			total -= f.size
		}
	}
	if total > c.maxTotal {
		return permanent{fmt.Errorf("there is no room for it: Envoy needs the %d modules that are at hand, and all may have %d bytes; use fewer modules or smaller ones", len(list), c.maxTotal)}
	}
	return nil
}

// remove removes a module, and the references to it. It is called with the lock held.
func (c *Cache) remove(sum string) bool {
	if err := os.Remove(c.path(sum)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.o.Log.Warn("a Wasm module that is not needed any more cannot be removed", "error", err)
		return false
	}
	delete(c.checked, sum)
	for k, e := range c.index {
		if e.SHA256 == sum {
			delete(c.index, k)
		}
	}
	return true
}

// purge removes modules that were not needed for the time Options.Expiry.
func (c *Cache) purge(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list, err := c.files()
	if err != nil {
		c.o.Log.Warn("the directory of Wasm modules cannot be read", "error", err)
	}
	removed := 0
	for _, f := range list {
		switch {
		case f.needed:
			if err := os.Chtimes(c.path(f.sum), now, now); err != nil {
				c.o.Log.Debug("noting that a Wasm module is needed", "error", err)
			}
		case now.Sub(f.used) > c.o.Expiry && c.remove(f.sum):
			removed++
		}
	}
	if removed > 0 {
		c.o.Log.Info("removed Wasm modules that no filter needs any more", "modules", removed)
		c.saveIndex()
	}
}
