package debian

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/blakesmith/ar"
)

// TestPinned: every package of an image is pinned for every architecture, and no line of the list is left over.
func TestPinned(t *testing.T) {
	all, err := parse(list)
	if err != nil {
		t.Fatal(err)
	}
	used := 0
	for _, arch := range []string{"amd64", "arm64"} {
		found, err := Pinned(arch, Base, Proxy)
		if err != nil {
			t.Error(err)
		}
		used += len(found)
	}
	if used != len(all) {
		t.Errorf("the list has %d packages, and images %d", len(all), used)
	}
	if snapshot(list) == "" {
		t.Error("the list does not name the day of its versions")
	}
	if _, err := Pinned("riscv64", Base); err == nil || !strings.Contains(err.Error(), "list.txt") {
		t.Errorf("an architecture without packages: %v", err)
	}
}

// TestParse: a line that could become another argument or path is refused.
func TestParse(t *testing.T) {
	sum := strings.Repeat("a", 64)
	for _, l := range []string{"amd64 libc6 2.36", "amd64 ../x 1 " + sum, "amd64 -o 1 " + sum, "amd64 libc6 1/2 " + sum, "mips libc6 1 " + sum, "amd64 libc6 1 " + sum[1:]} {
		if found, err := parse("# comment\n" + l); err == nil {
			t.Errorf("%q is taken as %v", l, found)
		}
	}
}

// TestSettings: the archive of all versions is asked for the day of the list unless a user names one.
func TestSettings(t *testing.T) {
	for mirror, want := range map[string]string{
		Mirror:                               "http://deb.debian.org/debian bookworm main\n",
		"http://snapshot.debian.org/archive": "http://snapshot.debian.org/archive/debian/" + snapshot(list) + " bookworm main\n",
		"http://snapshot.debian.org/archive/2026": "http://snapshot.debian.org/archive/debian-security/2026 bookworm-security main\n",
	} {
		if got := (Store{Mirror: mirror}).settings("/d", "arm64")["sources"]; !strings.Contains(got, want) {
			t.Errorf("%s: %s", mirror, got)
		}
	}
}

// TestVerify: another file than the pinned one is not taken.
func TestVerify(t *testing.T) {
	s := Store{Dir: t.TempDir(), Mirror: "http://127.0.0.1:1"}
	p := Package{"amd64", "libc6", "1:2", strings.Repeat("0", 64)}
	if err := os.WriteFile(s.path(p), []byte("another"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := verify(s.path(p), p); err == nil || !strings.Contains(err.Error(), "not the package that was tested") {
		t.Error(err)
	}
}

// entry is a file of a made package.
type entry struct {
	name, content, target string
	kind                  byte
}

// pack writes a package.
func pack(t *testing.T, name, control string, entries ...entry) string {
	t.Helper()
	compressed := func(entries ...entry) []byte {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		w := tar.NewWriter(z)
		for _, e := range entries {
			h := &tar.Header{Name: e.name, Typeflag: e.kind, Size: int64(len(e.content)), Linkname: e.target, Mode: 0o755, Uid: 7, ModTime: time.Unix(1, 0)}
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(e.content)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	var out bytes.Buffer
	w := ar.NewWriter(&out)
	if err := w.WriteGlobalHeader(); err != nil {
		t.Fatal(err)
	}
	for _, m := range []struct {
		name string
		data []byte
	}{
		{"debian-binary", []byte("2.0\n")}, {"control.tar.gz", compressed(entry{"./control", control, "", tar.TypeReg})}, {"data.tar.gz", compressed(entries...)},
	} {
		if err := w.WriteHeader(&ar.Header{Name: m.name, Size: int64(len(m.data)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(m.data); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), name+".deb")
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestUnpack: files lie where programs look for them, without what images do not need.
func TestUnpack(t *testing.T) {
	file := func(name, content string) entry { return entry{name, content, "", tar.TypeReg} }
	link := func(name, target string) entry { return entry{name, "", target, tar.TypeSymlink} }
	files, err := Unpack([]string{
		pack(t, "iptables", "Package: iptables\nVersion: 1\n", entry{"./usr/sbin/", "", "", tar.TypeDir}, file("./usr/sbin/xtables-nft-multi", "x"),
			link("./usr/sbin/iptables-nft", "xtables-nft-multi"), link("./usr/sbin/iptables-nft-save", "xtables-nft-multi"),
			link("./usr/sbin/iptables-nft-restore", "xtables-nft-multi"), file("./usr/share/doc/iptables/copyright", "c"),
			file("./usr/share/doc/iptables/NEWS", "n"), file("./usr/share/man/man8/iptables.8.gz", "m"), file("./etc/shadow", "s"), file("../../tmp/outside", "o")),
		pack(t, "libc6", "Package: libc6\n", file("./lib/x86_64-linux-gnu/libc.so.6", "c"), link("./lib64/ld.so", "/lib/x86_64-linux-gnu/ld.so")),
		pack(t, "ca", "Package: ca-certificates\n", file("./usr/share/ca-certificates/mozilla/B.crt", "B\n"), file("./usr/share/ca-certificates/mozilla/A.crt", "A")),
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `etc/ssl/certs/ca-certificates.crt
lib
lib64
sbin
usr/lib/x86_64-linux-gnu/libc.so.6
usr/lib64/ld.so
usr/sbin/iptables
usr/sbin/iptables-nft
usr/sbin/iptables-nft-restore
usr/sbin/iptables-nft-save
usr/sbin/iptables-restore
usr/sbin/iptables-save
usr/sbin/xtables-nft-multi
usr/share/doc/iptables/copyright
var/lib/dpkg/status.d/ca-certificates
var/lib/dpkg/status.d/iptables
var/lib/dpkg/status.d/libc6`
	if got := strings.Join(slices.Sorted(maps.Keys(files)), "\n"); got != want {
		t.Errorf("the files are\n%s", got)
	}
	if got := string(files["etc/ssl/certs/ca-certificates.crt"].Data); got != "A\nB\n" {
		t.Errorf("the roots are %q", got)
	}
	if files["usr/sbin/iptables"].Target != "iptables-nft" || files["usr/sbin/xtables-nft-multi"].Owner != 0 {
		t.Errorf("iptables is %+v", files["usr/sbin/iptables"])
	}
}

// TestUnpackRefused: a file that an image cannot have, or that is no package, is an error that names the package.
func TestUnpackRefused(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.deb")
	if err := os.WriteFile(broken, []byte("!<arch>\nrubbish"), 0o644); err != nil {
		t.Fatal(err)
	}
	one := pack(t, "one", "Package: one\n", entry{"./usr/lib/x", "1", "", tar.TypeReg})
	for _, paths := range [][]string{
		{broken},
		{pack(t, "device", "Package: device\n", entry{"./usr/lib/x", "", "", tar.TypeChar})},
		{pack(t, "hard", "Package: hard\n", entry{"./usr/lib/x", "", "usr/lib/y", tar.TypeLink})},
		{pack(t, "name", "Package: ../../etc/passwd\n", entry{"./usr/lib/x", "1", "", tar.TypeReg})},
		{one, pack(t, "two", "Package: two\n", entry{"./lib/x", "2", "", tar.TypeReg})},
	} {
		last := filepath.Base(paths[len(paths)-1])
		if files, err := Unpack(paths); err == nil || !strings.Contains(err.Error(), last) {
			t.Errorf("%s: %v, %v", last, slices.Collect(maps.Keys(files)), err)
		}
	}
}
