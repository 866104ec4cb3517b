package file_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/pilotmesh/pilot/internal/source/file"
)

// configMap puts a new version into a directory as the kubelet does.
func configMap(t *testing.T, dir, version string, files map[string]string) {
	t.Helper()
	must(t, os.Mkdir(filepath.Join(dir, version), 0o755))
	for name, text := range files {
		write(t, filepath.Join(dir, version, name), text)
	}
	must(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
	old, _ := os.Readlink(filepath.Join(dir, "..data"))
	must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	for name := range files {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			must(t, os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)))
		}
	}
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		if _, ok := files[e.Name()]; !ok && e.Type()&os.ModeSymlink != 0 && e.Name() != "..data" {
			must(t, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	if old != "" {
		must(t, os.RemoveAll(filepath.Join(dir, old)))
	}
}

func TestConfigMap(t *testing.T) {
	dir := t.TempDir()
	configMap(t, dir, "..1", map[string]string{"a.yaml": entries("a", "b"), "c.yaml": entries("c")})
	w := start(t, file.Options{Dir: dir})
	w.until("synced", func() bool { return w.last.Synced })
	if !w.has("a", "b", "c")() || !w.healthy() {
		t.Fatalf("objects %v, problems %v", w.names(), w.problems)
	}
	for i, version := range []string{"..2", "..3", "..4"} {
		address := "192.0.2.10" + version[2:]
		configMap(t, dir, version, map[string]string{
			"a.yaml": entry("a", address) + "---\n" + entries("b"), "c.yaml": entry("c", address)})
		b := w.next()
		if len(b.Events) != 2 || !w.address("a", address)() || !w.address("c", address)() {
			t.Fatalf("swap %d did not arrive as one batch: %v", i, b.Events)
		}
	}
	configMap(t, dir, "..5", map[string]string{"a.yaml": entries("a"), "d.yaml": entries("d")})
	w.until("files come and go", w.has("a", "d"))
	if !w.healthy() {
		t.Error(w.problems)
	}
}

// TestRootIsLink swaps the link that the root is.
func TestRootIsLink(t *testing.T) {
	dir := t.TempDir()
	for version, address := range map[string]string{"v1": "192.0.2.1", "v2": "192.0.2.2"} {
		must(t, os.Mkdir(filepath.Join(dir, version), 0o755))
		write(t, filepath.Join(dir, version, "a.yaml"), entry("a", address))
		write(t, filepath.Join(dir, version, version+".yaml"), entries(version))
	}
	root := filepath.Join(dir, "current")
	must(t, os.Symlink("v1", root))
	w := start(t, file.Options{Dir: root})
	w.until("v1 is there", w.has("a", "v1"))
	must(t, os.Symlink("v2", root+".tmp"))
	must(t, os.Rename(root+".tmp", root))
	b := w.next()
	if len(b.Events) != 3 || !w.has("a", "v2")() || !w.address("a", "192.0.2.2")() {
		t.Fatalf("events %v", b.Events)
	}
	write(t, filepath.Join(dir, "v2", "a.yaml"), entry("a", "192.0.2.3"))
	w.until("the new directory is watched", w.address("a", "192.0.2.3"))
}

// TestLinkOutside edits a file that a link leads to, and turns the link.
func TestLinkOutside(t *testing.T) {
	outside := t.TempDir()
	write(t, filepath.Join(outside, "real.txt"), entries("a"))
	write(t, filepath.Join(outside, "other.txt"), entry("a", "192.0.2.5"))
	w := open(t, nil)
	must(t, os.Symlink(filepath.Join(outside, "real.txt"), w.path("a.yaml")))
	w.until("a is there", w.has("a"))
	write(t, filepath.Join(outside, "real.txt"), entry("a", "192.0.2.4"))
	w.until("the target's edit is seen", w.address("a", "192.0.2.4"))
	must(t, os.Symlink(filepath.Join(outside, "other.txt"), w.path("a.tmp")))
	must(t, os.Rename(w.path("a.tmp"), w.path("a.yaml")))
	w.until("the link's turn is seen", w.address("a", "192.0.2.5"))
	// The target goes away: the object stays until the link goes as well.
	must(t, os.Remove(filepath.Join(outside, "other.txt")))
	w.until("the problem is told", w.problem("a.yaml: error: cannot be read"))
	if !w.has("a")() {
		t.Fatal("an unreadable file lost its objects")
	}
	write(t, filepath.Join(outside, "other.txt"), entry("a", "192.0.2.6"))
	w.until("the target is back", func() bool { return w.address("a", "192.0.2.6")() && w.healthy() })
	must(t, os.Remove(w.path("a.yaml")))
	w.until("gone", w.has())
}

// TestLinkedDirectories reads a directory once, however many links lead to it, and skips loops.
func TestLinkedDirectories(t *testing.T) {
	outside := t.TempDir()
	write(t, filepath.Join(outside, "a.yaml"), entries("a"))
	w := open(t, nil)
	must(t, os.Symlink(outside, w.path("one")))
	must(t, os.Symlink(outside, w.path("two")))
	must(t, os.Symlink(w.dir, w.path("loop")))
	w.until("a is there", w.has("a"))
	w.until("both are told", func() bool {
		return w.problem("two: warning: is the same directory as "+w.path("one"))() && w.problem("loop: warning: is the same directory as "+w.dir)()
	})
	write(t, filepath.Join(outside, "b.yaml"), entries("b"))
	w.until("b is there", w.has("a", "b"))
	must(t, os.Remove(w.path("one")))
	must(t, os.Remove(w.path("loop")))
	w.until("the other link leads there still", func() bool { return w.has("a", "b")() && w.healthy() })
	must(t, os.Remove(w.path("two")))
	w.until("gone", w.has())
}

func TestUnreadableFile(t *testing.T) {
	w := open(t, map[string]string{"a.yaml": entries("a"), "b.yaml": entries("b")})
	// A link to itself cannot be read by root either.
	must(t, os.Symlink("a.yaml", w.path("a.tmp")))
	must(t, os.Rename(w.path("a.tmp"), w.path("a.yaml")))
	w.until("the problem is told", w.problem("a.yaml: error: cannot be read"))
	if !w.has("a", "b")() {
		t.Fatalf("objects %v", w.names())
	}
	write(t, w.path("b.yaml"), entry("b", "192.0.2.4"))
	w.until("others go on", w.address("b", "192.0.2.4"))
	must(t, os.Remove(w.path("a.yaml")))
	w.until("gone with its problem", func() bool { return w.has("b")() && w.healthy() })
}

func TestPermissions(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may read everything")
	}
	w := open(t, map[string]string{"a.yaml": entries("a"), "b.yaml": entries("b")})
	must(t, os.Chmod(w.path("a.yaml"), 0))
	w.until("the problem is told", w.problem("permission denied"))
	if !w.has("a", "b")() {
		t.Fatalf("objects %v", w.names())
	}
	must(t, os.Chmod(w.path("a.yaml"), 0o644))
	w.until("healed", w.healthy)
}

func TestDirectoriesComeAndGo(t *testing.T) {
	w := open(t, map[string]string{"a.yaml": entries("a")})
	must(t, os.MkdirAll(w.path("x/y/z"), 0o755))
	write(t, w.path("x/y/z/b.yaml"), entries("b"))
	w.until("b is there", w.has("a", "b"))
	write(t, w.path("x/c.yaml"), entries("c"))
	w.until("c is there", w.has("a", "b", "c"))
	// Moved: the same objects under other names are no change.
	must(t, os.Rename(w.path("x"), w.path("w")))
	w.sentinel()
	write(t, w.path("w/y/z/b.yaml"), entry("b", "192.0.2.6"))
	w.until("the moved directory is watched", w.address("b", "192.0.2.6"))
	must(t, os.RemoveAll(w.path("w")))
	w.until("gone", w.has("a"))
	// A directory may be called like a file.
	must(t, os.Mkdir(w.path("d.yaml"), 0o755))
	write(t, w.path("d.yaml/e.yaml"), entries("e"))
	w.until("e is there", w.has("a", "e"))
}

// TestRootVanishes removes and replaces the root itself: the known objects stay until it can be read again.
func TestRootVanishes(t *testing.T) {
	w := open(t, map[string]string{"a.yaml": entries("a"), "b.yaml": entries("b")})
	must(t, os.Rename(w.dir, w.dir+".old"))
	w.until("the problem is told", w.problem("config: error: the directory cannot be read"))
	if !w.has("a", "b")() || !w.last.Synced {
		t.Fatalf("objects %v", w.names())
	}
	must(t, os.Mkdir(w.dir, 0o755))
	write(t, w.path("b.yaml"), entry("b", "192.0.2.9"))
	write(t, w.path("a.yaml"), entries("a"))
	w.until("it is back", func() bool { return w.address("b", "192.0.2.9")() && w.healthy() })
	if !w.has("a", "b")() {
		t.Fatalf("objects %v", w.names())
	}
	// Emptying the root is intended, unlike its removal.
	must(t, os.Remove(w.path("a.yaml")))
	must(t, os.Remove(w.path("b.yaml")))
	w.until("emptied", w.has())
	// Replaced as a whole.
	must(t, os.Rename(w.dir, w.dir+".older"))
	must(t, os.Rename(w.dir+".old", w.dir))
	w.until("replaced", w.has("a", "b"))
	write(t, w.path("c.yaml"), entries("c"))
	w.until("watched", w.has("a", "b", "c"))
}

func TestRootComesLate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet")
	w := start(t, file.Options{Dir: dir})
	w.until("the problem is told", w.problem("nothing is served before it can be"))
	if w.last.Synced {
		t.Fatal("synced without a directory")
	}
	must(t, os.MkdirAll(dir, 0o755))
	write(t, filepath.Join(dir, "a.yaml"), entries("a"))
	w.until("synced", func() bool { return w.last.Synced && w.has("a")() && w.healthy() })
}

func TestMeshConfig(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "mesh.yaml") // among the objects, but none
	write(t, path, "trustDomain: one.example")
	w := start(t, file.Options{Dir: dir, MeshConfig: path})
	w.until("synced", func() bool { return w.last.Synced })
	if w.mesh.GetTrustDomain() != "one.example" || !w.healthy() {
		t.Fatalf("mesh %v, problems %v", w.mesh, w.problems)
	}
	domain := func(d string) func() bool { return func() bool { return w.mesh.GetTrustDomain() == d } }
	replace(t, path, "trustDomain: two.example")
	w.until("edited", domain("two.example"))
	write(t, path, "trustDomain: [")
	w.until("the problem is told", w.problem("mesh.yaml:1: error: MeshConfig: not well-formed"))
	must(t, os.Remove(path))
	w.until("the problem is told", w.problem("the mesh configuration cannot be read"))
	if !domain("two.example")() {
		t.Fatal("the last good version was lost")
	}
	write(t, path, "trustDomain: two.example\n# the same\n")
	w.until("healthy", w.healthy)
	if w.last.Mesh != nil {
		t.Error("the same mesh configuration came again")
	}
	write(t, path, "trustDomain: three.example")
	w.until("edited", domain("three.example"))
}

// TestNetworks follows the file with the mesh networks in the same way.
func TestNetworks(t *testing.T) {
	const text = "networks: {n1: {endpoints: [{fromCidr: 10.0.0.0/8}], gateways: [{address: 192.0.2.1, port: %d}]}}"
	dir := t.TempDir()
	path := filepath.Join(dir, "networks.yaml")
	w := start(t, file.Options{Dir: dir, NetworksConfig: path})
	w.until("the problem is told", w.problem("the configuration of networks cannot be read"))
	if w.last.Synced {
		t.Fatal("synced without the networks")
	}
	port := func(want uint32) func() bool {
		return func() bool {
			n := w.networks.GetNetworks()["n1"]
			return n != nil && n.GetGateways()[0].GetPort() == want && w.last.Synced && w.healthy()
		}
	}
	write(t, path, fmt.Sprintf(text, 15443))
	w.until("synced", port(15443))
	replace(t, path, "networks: [")
	w.until("the problem is told", w.problem("networks.yaml:1: error: MeshNetworks: not well-formed"))
	replace(t, path, fmt.Sprintf(text, 15444))
	w.until("edited", port(15444))
	if w.mesh != nil {
		t.Error("a mesh configuration out of nothing")
	}
}

// TestRelativePaths runs with paths relative to a working directory. One of them begins with a dot.
func TestRelativePaths(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "config"), 0o755))
	must(t, os.MkdirAll(filepath.Join(dir, "work"), 0o755))
	t.Chdir(filepath.Join(dir, "work"))
	write(t, "../config/a.yaml", entries("a"))
	write(t, "../config/mesh.yaml", "trustDomain: one.example")
	w := start(t, file.Options{Dir: "../config", MeshConfig: filepath.Join(dir, "config", "mesh.yaml")})
	w.until("synced", func() bool { return w.last.Synced && w.has("a")() && w.healthy() })
	write(t, "../config/a.yaml", entry("a", "192.0.2.2"))
	w.until("edited", w.address("a", "192.0.2.2"))
	if got := w.objects[key("a")].Position.File; got != "../config/a.yaml" {
		t.Errorf("a is in %s", got)
	}
	write(t, "../config/mesh.yaml", "trustDomain: two.example")
	w.until("edited", func() bool { return w.mesh.GetTrustDomain() == "two.example" })
}

func TestMeshConfigComesLate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "etc", "mesh.yaml")
	w := start(t, file.Options{Dir: dir, MeshConfig: path})
	w.until("the problem is told", w.problem("the mesh configuration cannot be read"))
	if w.last.Synced {
		t.Fatal("synced without the mesh configuration")
	}
	must(t, os.Mkdir(filepath.Join(dir, "etc"), 0o755))
	write(t, path, "")
	w.until("synced", func() bool { return w.last.Synced && w.mesh.GetTrustDomain() == "cluster.local" && w.healthy() })
}

// TestMeshConfigAlone runs without a directory of objects.
func TestMeshConfigAlone(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "a.yaml", entries("a"))
	write(t, "mesh.yaml", "trustDomain: one.example")
	w := start(t, file.Options{MeshConfig: "mesh.yaml"})
	w.until("synced", func() bool { return w.last.Synced })
	if w.mesh.GetTrustDomain() != "one.example" || !w.has()() || !w.healthy() {
		t.Fatalf("mesh %v, objects %v, problems %v", w.mesh, w.names(), w.problems)
	}
}
