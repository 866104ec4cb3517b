package wasm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// module is one that begins as a module, with some content.
func module(content string) []byte { return []byte(magic + core + content) }

func sumText(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// archived is a compressed archive with files, of alternating names and contents.
func archived(t testing.TB, files ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	a := tar.NewWriter(z)
	for i := 0; i < len(files); i += 2 {
		must(t, a.WriteHeader(&tar.Header{Name: files[i], Size: int64(len(files[i+1])), Mode: 0o600, Typeflag: tar.TypeReg}))
		_, err := a.Write([]byte(files[i+1]))
		must(t, err)
	}
	must(t, a.Close())
	must(t, z.Close())
	return out.Bytes()
}

func zipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write(b)
	must(t, err)
	must(t, z.Close())
	return out.Bytes()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// place is a cache and a server with modules, which is also a registry of images.
type place struct {
	*testing.T
	cache  *Cache
	server *httptest.Server
	host   string
	images http.Handler
	// user and password are the credentials that the registry requires; empty for none. asked counts the requests.
	user, password string
	asked          atomic.Int64
	broken         atomic.Bool // whether every answer has status 503
	mu             sync.Mutex
	files          map[string][]byte // of the web server, by their paths
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{T: t, images: registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, 0))), files: map[string][]byte{}}
	p.server = httptest.NewServer(p)
	t.Cleanup(p.server.Close)
	p.host = strings.TrimPrefix(p.server.URL, "http://")
	p.cache = p.open(Options{Dir: t.TempDir() + "/wasm", Insecure: []string{p.host}})
	return p
}

// open opens a cache, whose fetches end with the test.
func (p *place) open(o Options) *Cache {
	p.Helper()
	o.Expiry, o.Purge, o.Silence, o.Log = time.Hour, time.Hour, 5*time.Second, slog.New(slog.DiscardHandler)
	c, err := Open(o)
	must(p, err)
	c.pause, c.maxModule = time.Millisecond, 1<<20
	p.Cleanup(func() {
		c.cancel()
		c.running.Wait()
	})
	return c
}

// ServeHTTP implements http.Handler.
func (p *place) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	p.asked.Add(1)
	p.mu.Lock()
	b, ok := p.files[q.URL.Path]
	p.mu.Unlock()
	user, password, _ := q.BasicAuth()
	switch {
	case p.broken.Load():
		w.WriteHeader(http.StatusServiceUnavailable)
	case q.URL.Path == "/silent":
		<-q.Context().Done()
	case q.URL.Path == "/away":
		http.Redirect(w, q, "http://169.254.169.254/latest/meta-data", http.StatusFound)
	case ok:
		_, _ = w.Write(b) // the client may have enough
	case p.user != "" && q.Method == http.MethodGet && (user != p.user || password != p.password):
		w.Header().Set("Www-Authenticate", `Basic realm="r"`)
		w.WriteHeader(http.StatusUnauthorized)
	default:
		p.images.ServeHTTP(w, q)
	}
}

// serve makes a file available, and returns its URL.
func (p *place) serve(path string, content []byte) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.files[path] = content
	return p.server.URL + path
}

// push makes an image with layers available, and returns its URL and digest.
func (p *place) push(tag string, layers ...v1.Layer) (url, digest string) {
	p.Helper()
	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layers...)
	must(p, err)
	to, err := name.ParseReference(p.host+"/team/plugin:"+tag, name.Insecure)
	must(p, err)
	must(p, remote.Write(to, image, remote.WithContext(p.Context())))
	h, err := image.Digest()
	must(p, err)
	return "oci://" + to.Name(), h.String()
}

func layer(content []byte, of types.MediaType) v1.Layer { return static.NewLayer(content, of) }

// gets checks that a module is fetched and has some content.
func (p *place) gets(m Module, content string) string {
	p.Helper()
	path, err := p.cache.Get(p.Context(), m)
	must(p, err)
	if want := p.cache.path(sumText(module(content))); path != want {
		p.Fatalf("%s, want %s", path, want)
	}
	return path
}

// fails checks that a module cannot be used, and the error.
func (p *place) fails(m Module, why string) {
	p.Helper()
	path, err := p.cache.Get(p.Context(), m)
	if err == nil || !strings.Contains(err.Error(), why) {
		p.Errorf("%q, %v; want %q", path, err, why)
	}
}

// asks checks how many requests a function causes.
func (p *place) asks(n int64, do func()) {
	p.Helper()
	before := p.asked.Load()
	do()
	if got := p.asked.Load() - before; got != n {
		p.Errorf("%d requests, want %d", got, n)
	}
}

// credentials are a pull secret for a registry.
func credentials(host, user, password string) []byte {
	return fmt.Appendf(nil, `{"auths":{%q:{"username":%q,"password":%q}}}`, host, user, password)
}
