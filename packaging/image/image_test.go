package image

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/pilotmesh/pilot/packaging/tree"
)

// made returns an index of two architectures. Its sources have the times of this moment.
func made(t *testing.T) v1.ImageIndex {
	t.Helper()
	dir, date := t.TempDir(), time.Unix(1_700_000_000, 0)
	images := map[string]v1.Image{}
	for _, arch := range []string{"amd64", "arm64"} {
		source := filepath.Join(dir, arch)
		if err := os.WriteFile(source, []byte("program for "+arch), 0o700); err != nil {
			t.Fatal(err)
		}
		files := tree.Tree{}
		files.Program("usr/local/bin/agent", source)
		l, err := NewLayer(dir, "agent", files, date)
		if err != nil {
			t.Fatal(err)
		}
		settings := Settings{Entrypoint: []string{"/usr/local/bin/agent"}, User: "1337:1337", Labels: map[string]string{"a": "1", "b": "2"}, Date: date}
		if images[arch], err = New(arch, settings, l); err != nil {
			t.Fatal(err)
		}
	}
	index, err := Index(images, []string{"amd64", "arm64"}, map[string]string{"org.opencontainers.image.version": "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func digest(t *testing.T, index v1.ImageIndex) string {
	t.Helper()
	d, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// TestReproducible: the same programs make the same image, and a layout that was written keeps its digest.
func TestReproducible(t *testing.T) {
	first, second := made(t), made(t)
	if digest(t, first) != digest(t, second) {
		t.Errorf("the same files make %s and %s", digest(t, first), digest(t, second))
	}
	dir := filepath.Join(t.TempDir(), "images", "agent")
	for range 2 { // a second time replaces the first
		if err := Write(dir, "1.2.3", first); err != nil {
			t.Fatal(err)
		}
	}
	root, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(root); err != nil {
		t.Error(err)
	}
	list, err := root.IndexManifest()
	if err != nil || len(list.Manifests) != 1 {
		t.Fatal(list, err)
	}
	entry := list.Manifests[0]
	if entry.Digest.String() != digest(t, first) || entry.Annotations["org.opencontainers.image.ref.name"] != "1.2.3" || entry.MediaType != types.OCIImageIndex {
		t.Errorf("the layout has %+v", entry)
	}
}

// TestPush: what a registry has under the tag is the index that was made, with all that it needs.
func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New())
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	index := made(t)
	at, err := Push(t.Context(), host+"/mesh", "proxyv2", "1.2.3", index)
	if err != nil {
		t.Fatal(err)
	}
	if want := host + "/mesh/proxyv2@" + digest(t, index); at != want {
		t.Errorf("it is at %s, not at %s", at, want)
	}
	ref, err := name.ParseReference(host + "/mesh/proxyv2:1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	back, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(back); err != nil || digest(t, back) != digest(t, index) {
		t.Errorf("the registry has %s, not %s: %v", digest(t, back), digest(t, index), err)
	}
	image, err := remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: "arm64", Variant: "v8"}))
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil || config.Architecture != "arm64" || config.Config.User != "1337:1337" || len(config.History) != 1 {
		t.Errorf("the image for arm64 has %+v, %v", config, err)
	}
}

// TestPushRefused: the errors say what to do.
func TestPushRefused(t *testing.T) {
	server := httptest.NewServer(registry.New())
	host := strings.TrimPrefix(server.URL, "http://")
	server.Close()
	for at, remedy := range map[string]string{host: "log in first", "No Host": "give -push HOST"} {
		if _, err := Push(t.Context(), at, "pilot", "1", made(t)); err == nil || !strings.Contains(err.Error(), remedy) {
			t.Errorf("%s: %v", at, err)
		}
	}
}
