package wasm

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// TestWeb checks fetches from web servers, and the errors for files that are no modules.
func TestWeb(t *testing.T) {
	p := newPlace(t)
	b := module("web")
	for path, content := range map[string][]byte{
		"/plain.wasm": b, "/module.gz": zipped(t, b), "/a.tar.gz": archived(t, "README", "no", "./x/filter.wasm", string(b)),
	} {
		p.gets(Module{URL: p.serve(path, content), SHA256: sumText(b)}, "web")
		p.cache = p.open(Options{Dir: t.TempDir(), Insecure: []string{"127.0.0.1"}})
		p.gets(Module{URL: p.server.URL + path}, "web")
	}
	huge := append(module(""), make([]byte, 2<<20)...)
	for path, c := range map[string]struct {
		content []byte
		why     string
	}{
		"/html":      {[]byte("<html></html>"), "not a WebAssembly module"},
		"/empty":     {nil, "not a WebAssembly module"},
		"/component": {[]byte(magic + "\x0d\x00\x01\x00"), "no components"},
		"/no.tar.gz": {archived(t, "README", "no"), "no file *.wasm"},
		"/huge":      {huge, "more than 1048576 bytes"},
		"/bomb.gz":   {zipped(t, huge), "more than 1048576 bytes"},
		"/bomb.tar":  {archived(t, "a", string(make([]byte, 4<<20)), "a.wasm", string(b)), "more than 1048576 bytes"},
		"/damaged":   {append([]byte(gzipMagic), 1, 2, 3, 4, 5, 6, 7, 8, 9), "damaged"},
	} {
		p.fails(Module{URL: p.serve(path, c.content)}, c.why)
	}
	p.fails(Module{URL: p.serve("/other", module("x")), SHA256: sumText(module("y"))}, "find out who has changed the module")
	p.fails(Module{URL: p.server.URL + "/away"}, "modules are not fetched from")
	p.fails(Module{URL: p.server.URL + "/none?token=hidden"}, "status 404")
	if left, err := filepath.Glob(p.cache.o.Dir + "/" + temporary + "*"); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestRetries checks that another attempt is made where that makes sense, and that a silent server is given up.
func TestRetries(t *testing.T) {
	p := newPlace(t)
	p.cache.o.Retries = 2
	url := p.serve("/a.wasm", module("a"))
	p.broken.Store(true)
	p.asks(3, func() { p.fails(Module{URL: url}, "status 503; check whether it works") })
	p.broken.Store(false)
	p.asks(1, func() { p.gets(Module{URL: url}, "a") })
	p.cache.o.Retries, p.cache.o.Silence = 0, 20*time.Millisecond
	p.fails(Module{URL: p.server.URL + "/silent"}, "sent nothing for 20ms")
	p.server.Close()
	p.fails(Module{URL: url + "2"}, "check whether this host can reach it")
}

// TestPatience checks that a caller who does not wait any longer gets the module later.
func TestPatience(t *testing.T) {
	p := newPlace(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range maxFetches { // all slots are taken
		p.cache.slots <- struct{}{}
	}
	m := Module{URL: p.serve("/a.wasm", module("a"))}
	if _, err := p.cache.Get(ctx, m); err == nil || !strings.Contains(err.Error(), "still being fetched") {
		t.Error(err)
	}
	p.asks(1, func() { // by the fetch that the first caller began, which may end before the second caller asks
		for range maxFetches {
			<-p.cache.slots
		}
		p.gets(m, "a")
	})
}

// TestServers checks which servers are asked, and how.
func TestServers(t *testing.T) {
	p := newPlace(t)
	url, _ := p.push("1", layer(module("a"), "application/wasm"))
	web := p.serve("/a.wasm", module("a"))
	p.cache = p.open(Options{Dir: t.TempDir(), Insecure: []string{"*"}})
	p.fails(Module{URL: url}, "modules are not fetched from")
	p.fails(Module{URL: web}, "modules are not fetched from")
	p.fails(Module{URL: "http://169.254.169.254/a.wasm"}, "modules are not fetched from")
	p.cache = p.open(Options{Dir: t.TempDir()})
	p.fails(Module{URL: url}, "modules are not fetched from")
	p.cache.web.secure.(*way).usual = p.cache.web.secure.(*way).local // as if it had another address
	p.fails(Module{URL: url}, "WASM_INSECURE_REGISTRIES")
	p.fails(Module{URL: "ftp://a/b"}, "scheme")
	p.fails(Module{URL: "oci://UPPER/b"}, "address of an image")
	p.fails(Module{URL: "http:///b"}, "such as http://")
	p.fails(Module{URL: "file://b"}, "absolute")
	file := filepath.Join(t.TempDir(), "m")
	must(t, os.WriteFile(file, module("f"), 0o600))
	if got, err := p.cache.Get(t.Context(), Module{URL: "file://" + file, SHA256: sumText(module("f"))}); err != nil || got != file {
		t.Errorf("%s, %v", got, err)
	}
	p.fails(Module{URL: "file://" + file, SHA256: sumText(module("g"))}, "wanted")
	p.fails(Module{URL: "file:///dev/zero"}, "not a regular file")
}

// TestImages checks the formats of images, digests, and images that are none of modules.
func TestImages(t *testing.T) {
	p := newPlace(t)
	tgz := archived(t, "runtime-config.json", "{}", "plugin.wasm", string(module("image")))
	for tag, of := range map[string]types.MediaType{"docker": types.DockerLayer, "compat": types.OCILayer} {
		url, digest := p.push(tag, layer([]byte("base"), of), layer(tgz, of))
		p.gets(Module{URL: strings.TrimPrefix(url, "oci://"), SHA256: digest}, "image")
		p.cache = p.open(Options{Dir: t.TempDir(), Insecure: []string{p.host}})
		p.gets(Module{URL: "oci://" + p.host + "/team/plugin@" + digest}, "image")
		p.fails(Module{URL: url, SHA256: sumText(module("image"))}, "find out who has changed the image")
		p.asks(0, func() { p.gets(Module{URL: url + "@" + digest, Policy: Always}, "image") }) // a digest does not move
	}
	url, _ := p.push("artifact", layer([]byte("{}"), "application/vnd.module.wasm.config.v1+json"), layer(module("oci"), "application/vnd.module.wasm.content.layer.v1+wasm"))
	p.gets(Module{URL: url}, "oci")
	url, _ = p.push("config", layer([]byte("{}"), "application/json"))
	p.fails(Module{URL: url}, "last layer of the image has the type")
	url, _ = p.push("tar", layer(tgz[:100], types.OCILayer))
	p.fails(Module{URL: url}, "cut off")
	url, _ = p.push("empty")
	p.fails(Module{URL: url}, "no layer")
	url, _ = p.push("other", layer(archived(t, "a.wasm", ""), types.OCILayer))
	p.fails(Module{URL: url}, "no file plugin.wasm")
	p.fails(Module{URL: url + "-none"}, "status 404 MANIFEST_UNKNOWN: check the path")
	image, err := mutate.AppendLayers(empty.Image, layer(module("index"), "application/wasm"))
	must(t, err)
	to, err := name.ParseReference(p.host+"/team/index:1", name.Insecure)
	must(t, err)
	must(t, remote.WriteIndex(to, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: image}), remote.WithContext(t.Context())))
	p.gets(Module{URL: to.Name()}, "index")
}

// TestTampered checks that a layer is not used that is another one than the image has, wherever it differs.
func TestTampered(t *testing.T) {
	p := newPlace(t)
	tgz := archived(t, "plugin.wasm", string(module("true")), "rest", strings.Repeat("x", 100))
	url, _ := p.push("1", layer(tgz, types.OCILayer))
	sum := sumText(tgz)
	for _, sent := range [][]byte{
		archived(t, "plugin.wasm", string(module("bad!")), "rest", strings.Repeat("x", 100)),
		archived(t, "plugin.wasm", string(module("true")), "rest", strings.Repeat("y", 100)),
	} {
		p.serve("/v2/team/plugin/blobs/sha256:"+sum, sent)
		p.fails(Module{URL: url}, "checksum")
	}
	p.serve("/v2/team/plugin/blobs/sha256:"+sum, tgz)
	p.gets(Module{URL: url}, "true")
}

// TestSecrets checks that pull secrets are sent to their registry, and to no other server.
func TestSecrets(t *testing.T) {
	p := newPlace(t)
	url, _ := p.push("1", layer(module("secret"), "application/wasm"))
	p.user, p.password = "me", "hidden"
	p.fails(Module{URL: url}, "status 401")
	p.fails(Module{URL: url, Secret: credentials(p.host, "me", "wrong")}, "set imagePullSecret")
	p.fails(Module{URL: url, Secret: credentials("other.example", "me", "hidden")}, "status 401")
	p.fails(Module{URL: url, Secret: []byte("hidden")}, "kubernetes.io/dockerconfigjson")
	p.gets(Module{URL: url, Secret: credentials("https://"+p.host+"/team/", "me", "hidden")}, "secret")
	kept, err := os.ReadFile(filepath.Join(p.cache.o.Dir, indexFile))
	if err != nil || bytes.Contains(kept, []byte("hidden")) {
		t.Errorf("%s, %v", kept, err)
	}
	for text, want := range map[string]string{
		"https://me:hidden@a.example/b?token=hidden": "https://a.example/b", "a.example/b:1": "oci://a.example/b:1", "http://a": "http://a",
		"oci://a/b@sha256:c": "oci://a/b@sha256:c",
	} {
		if got := shown(text); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestPolicies checks when a registry is asked again, and that a cached module is used if the registry does not answer.
func TestPolicies(t *testing.T) {
	p := newPlace(t)
	usual, _ := p.push("1", layer(module("old"), "application/wasm"))
	latest, _ := p.push("latest", layer(module("old"), "application/wasm"))
	p.gets(Module{URL: usual}, "old")
	p.gets(Module{URL: latest, Version: "1"}, "old")
	p.push("1", layer(module("new"), "application/wasm"))
	p.push("latest", layer(module("new"), "application/wasm"))
	p.asks(0, func() { p.gets(Module{URL: usual}, "old") })
	p.asks(0, func() { p.gets(Module{URL: latest, Version: "1"}, "old") })
	p.asks(0, func() { p.gets(Module{URL: latest, Version: "2", Policy: IfNotPresent}, "old") })
	p.broken.Store(true)
	p.gets(Module{URL: latest, Version: "2"}, "old")
	p.gets(Module{URL: usual, Policy: Always}, "old")
	p.broken.Store(false)
	p.gets(Module{URL: latest, Version: "2"}, "new")
	p.asks(2, func() { p.gets(Module{URL: usual, Policy: Always}, "new") }) // the module itself is at hand
	text := p.cache.Metrics()
	for _, want := range []string{`lookup_count{hit="true"} 3`, `fetch_count{result="failure"} 2`, "cache_entries 4"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	p.broken.Store(true) // a cached module with another checksum is not used
	p.fails(Module{URL: usual, SHA256: sumText(module("other"))}, "status 503")
}
