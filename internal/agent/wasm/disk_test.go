package wasm

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRestart checks that a new cache finds the stored modules, except for damaged ones.
func TestRestart(t *testing.T) {
	p := newPlace(t)
	m := Module{URL: p.serve("/a.wasm", module("a"))}
	path := p.gets(m, "a")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	again := func() { p.cache = p.open(p.cache.o) }
	must(t, os.WriteFile(filepath.Join(p.cache.o.Dir, temporary+"1"), nil, 0o600))
	again()
	p.asks(0, func() { p.gets(m, "a") })
	must(t, os.WriteFile(path, module("other"), 0o600))
	again()
	if p.cache.Holds(path) || !p.cache.Holds("/elsewhere/a.wasm") || p.cache.Holds(filepath.Join(p.cache.o.Dir, "..wasm")) {
		t.Error("it holds a module that is damaged, or not what is elsewhere")
	}
	p.asks(1, func() { p.gets(m, "a") })
	for _, text := range []string{"null", "{", `{"x":{"sha256":"../../etc"}}`} {
		must(t, os.WriteFile(filepath.Join(p.cache.o.Dir, indexFile), []byte(text), 0o600))
		again()
		p.asks(1, func() { p.gets(m, "a") })
	}
	if left, err := filepath.Glob(filepath.Join(p.cache.o.Dir, "*")); err != nil || len(left) != 2 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestRemoved checks that unneeded modules are removed after some time or when there is no room, and that modules that Envoy needs stay.
func TestRemoved(t *testing.T) {
	p := newPlace(t)
	var needed []string
	p.cache.o.InUse = func() []string { return needed }
	get := func(i int) (string, error) {
		return p.cache.Get(t.Context(), Module{URL: p.serve(fmt.Sprint("/", i), module(fmt.Sprint(i)))})
	}
	var paths []string
	for i := range 3 {
		path, err := get(i)
		must(t, err)
		at := time.Now().Add(time.Duration(i-10) * time.Minute)
		must(t, os.Chtimes(path, at, at))
		paths = append(paths, path)
	}
	needed = paths[:1]
	p.cache.maxTotal = 30 // bytes, which is three modules
	fourth, err := get(3)
	must(t, err)
	if !p.cache.Holds(paths[0]) || p.cache.Holds(paths[1]) || !p.cache.Holds(paths[2]) {
		t.Error("the wrong module went")
	}
	needed = append(needed, paths[2], fourth)
	p.fails(Module{URL: p.serve("/5", module("5"))}, "there is no room for it: Envoy needs the 3 modules")
	needed = paths[:1]
	p.cache.purge(time.Now().Add(2 * time.Hour))
	if !p.cache.Holds(paths[0]) || p.cache.Holds(paths[2]) || p.cache.Holds(fourth) {
		t.Error("not what is needed stays")
	}
	p.cache.o.Dir = filepath.Join(t.TempDir(), "gone")
	p.fails(Module{URL: p.server.URL + "/1"}, "it cannot be stored")
}

// TestDiskFull checks the error if the disk is full.
func TestDiskFull(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	_, err = store(disk{full}, bytes.NewReader(module("x")), maxModule)
	if again, plain := judge(err, reference{}); again || !strings.Contains(plain.Error(), "no space left on device; free some space") {
		t.Errorf("%t, %v", again, plain)
	}
}

// FuzzOpen: whatever a server sends, a module is no larger than the limit and begins as one.
func FuzzOpen(f *testing.F) {
	b := string(module("fuzz"))
	f.Add([]byte(b))
	f.Add(zipped(f, []byte(b)))
	f.Add(archived(f, "a", "b", "plugin.wasm", b))
	f.Fuzz(func(t *testing.T, sent []byte) {
		const most = 1 << 16
		for _, reader := range []func(io.Reader, int64) (io.Reader, error){open, openLayer} {
			in, err := reader(bytes.NewReader(sent), most)
			if err != nil {
				continue
			}
			var out bytes.Buffer
			if sum, err := store(&out, in, most); err == nil && (out.Len() > most || sum != sumText(out.Bytes()) || checkHead(out.Bytes()[:8]) != nil) {
				t.Errorf("%d bytes of %d are taken for a module", out.Len(), len(sent))
			}
		}
	})
}

// FuzzParse: a URL is of one kind or refused, and a secret cannot break its reader.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"a/b:1", "oci://a/b@sha256:c", "https://a/b", "file:///a", `{"auths":{"a":{"auth":"bWU6eA=="}}}`, "http://[::1]:80/x?y#z"} {
		f.Add(text)
	}
	c := &Cache{o: Options{Insecure: []string{"a"}}}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := c.parse(text)
		if err == nil && r.file == "" && (r.image == nil) == (r.web == nil) {
			t.Errorf("%q: %+v", text, r)
		}
		if err == nil && r.file == "" {
			r.host()
		}
		shown(text)
		if s, err := parseSecret([]byte(text)); err == nil && r.image != nil {
			if _, err := s.Resolve(r.image.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
