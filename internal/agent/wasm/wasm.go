// Package wasm fetches WebAssembly modules for Envoy, and keeps them in a directory: from registries of images (oci://, in the formats that
// Istio accepts), from web servers (https://, http://; a module or an archive of one), or from the host itself (file://).
//
// Invariants: A file of the cache has the name of its SHA-256 checksum, which is checked when it is used for the first time, and only its
// owner can read it. Only a complete file that begins as a module and has the requested checksum enters the cache. The sizes of modules,
// archives and the directory, and the number and duration of fetches are bounded. A module that Envoy needs (Options.InUse) is never
// removed. Requests do not lead back to the host or its cloud (package safedial), and not to servers without TLS unless a URL begins with
// http:// or the operator trusts the server. Errors and the log have neither credentials nor queries of URLs, and secrets are not kept.
//
// Goroutines: one per fetch, a few at a time, for which Run waits. All methods may be called from several goroutines.
package wasm

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// maxFetches is how many modules are fetched at a time, and longest how long one may take with all attempts.
	maxFetches = 4
	longest    = 5 * time.Minute
	// DefaultWait is how long a caller waits for a module whose configuration has no timeout.
	DefaultWait = 5 * time.Second
)

// Options are the options of a cache.
type Options struct {
	// Dir is the directory with the modules. It is created.
	Dir string
	// Expiry is how long an unneeded module is kept, and Purge the interval at which expired modules are removed.
	Expiry, Purge time.Duration
	// Silence is how long a server may send nothing, and Retries the number of further attempts.
	Silence time.Duration
	Retries int
	// Insecure are the servers that need no TLS and no valid certificate, as host or host:port; "*" for all of them. Only servers listed by
	// name may have loopback addresses. Blocked are addresses that are not connected to.
	Insecure []string
	Blocked  []netip.Prefix
	// InUse returns the files that must stay; nil for none.
	InUse func() []string
	Log   *slog.Logger
}

// Module describes a requested module.
type Module struct {
	// URL is where the module is, and SHA256 the checksum of the module, or of the manifest of its image; empty for none.
	URL, SHA256 string
	// Version is the version of the configuration that wants the module.
	Version string
	// Secret is the content of the pull secret; nil for none.
	Secret []byte
	Policy Policy
}

// Policy says when a module that is in the cache is requested again.
type Policy int

const (
	// Usual is IfNotPresent, but Always for images with the tag latest.
	Usual Policy = iota
	// IfNotPresent never requests it again.
	IfNotPresent
	// Always requests it again when the version of the configuration has changed. If the server does not answer, the cached module is used.
	Always
)

// Cache fetches and keeps modules.
type Cache struct {
	o     Options
	web   *transports
	slots chan struct{} // as many as modules are fetched at a time
	// ctx ends when Run ends.
	ctx     context.Context // not a caller's context: a fetch continues when its callers stop waiting
	cancel  context.CancelFunc
	running sync.WaitGroup
	metrics metrics
	// limits of sizes and of the pause after a failure; tests set smaller ones.
	maxModule, maxTotal int64
	pause               time.Duration

	mu      sync.Mutex
	index   map[string]entry // by the hash of the reference; see key
	checked map[string]bool  // checksums of the files that are known to be whole
	flights map[string]*flight
}

// flight is a fetch that is under way.
type flight struct {
	done chan struct{}
	path string
	err  error
}

// Open returns a cache with the modules in its directory. The caller must call Run.
func Open(o Options) (*Cache, error) {
	const remedy = "set --configPath to a directory that this user can write to, with free space"
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("the directory of Wasm modules: %w; %s", err, remedy)
	}
	if err := os.Chmod(o.Dir, 0o700); err != nil { //nolint:gosec // it is a directory
		return nil, fmt.Errorf("the directory of Wasm modules: %w; %s", err, remedy)
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	o.Dir = dir
	c := &Cache{
		o: o, slots: make(chan struct{}, maxFetches), maxModule: maxModule, maxTotal: maxTotal, pause: time.Second / 2,
		checked: map[string]bool{}, flights: map[string]*flight{},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.web = newTransports(c)
	c.load()
	return c, nil
}

// Run removes unneeded modules until ctx is cancelled. Then it ends the fetches.
func (c *Cache) Run(ctx context.Context) error {
	tick := time.NewTicker(c.o.Purge)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			c.mu.Lock()
			c.cancel() // under the lock, so that no fetch begins from now on
			c.mu.Unlock()
			c.running.Wait()
			return nil
		case now := <-tick.C:
			c.purge(now)
		}
	}
}

// Get returns the path of a module in the file system. If ctx ends before the module is fetched, the fetch continues, and a later call
// returns the module. The error says what failed, where, and the remedy.
func (c *Cache) Get(ctx context.Context, m Module) (string, error) {
	m.SHA256 = strings.ToLower(strings.TrimPrefix(m.SHA256, "sha256:"))
	path, err := c.get(ctx, m)
	if err != nil {
		return "", fmt.Errorf("the Wasm module %s cannot be used: %w", shown(m.URL), err)
	}
	return path, nil
}

func (c *Cache) get(ctx context.Context, m Module) (string, error) {
	r, err := c.parse(m.URL)
	if err != nil {
		return "", err
	}
	if r.file != "" {
		return r.file, c.checkFile(r.file, m.SHA256)
	}
	if path := c.lookup(r, m); path != "" {
		c.metrics.hits.Add(1)
		return path, nil
	}
	c.metrics.misses.Add(1)
	f, err := c.begin(r, m)
	if err != nil {
		return "", err
	}
	select {
	case <-f.done:
		return f.path, f.err
	case <-ctx.Done():
		return "", errors.New("it is still being fetched; check whether " + r.host() + " answers this host quickly enough")
	}
}

// begin begins to fetch a module, unless a fetch of it is under way.
func (c *Cache) begin(r reference, m Module) (*flight, error) {
	key := fmt.Sprintf("%s %s %s %x", m.URL, m.SHA256, m.Version, sha256.Sum256(m.Secret))
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.flights[key]; f != nil {
		return f, nil
	}
	if c.ctx.Err() != nil {
		return nil, errors.New("the agent ends")
	}
	f := &flight{done: make(chan struct{})}
	c.flights[key] = f
	c.running.Go(func() {
		f.path, f.err = c.fetchInTurn(r, m)
		c.mu.Lock()
		delete(c.flights, key)
		c.mu.Unlock()
		close(f.done)
	})
	return f, nil
}

// fetchInTurn fetches a module when it is its turn.
func (c *Cache) fetchInTurn(r reference, m Module) (string, error) {
	ctx, cancel := context.WithTimeout(c.ctx, longest)
	defer cancel()
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return "", errors.New("too many other modules are being fetched")
	}
	began := time.Now()
	path, err := c.fetch(ctx, r, m)
	c.metrics.fetched(err)
	if err == nil {
		c.o.Log.Info("a Wasm module is at hand", "from", shown(m.URL), "file", path, "took", time.Since(began).Round(time.Millisecond).String())
		return path, nil
	}
	if old := c.earlier(r, m); old != "" {
		c.o.Log.Warn("it cannot be found out whether a Wasm module has changed; the one that is at hand is used", "from", shown(m.URL), "error", err)
		return old, nil
	}
	return "", err
}
