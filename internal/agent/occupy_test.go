package agent

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/internal/agent/disk"
	"github.com/pilotmesh/pilot/internal/agent/disk/disktest"
	"github.com/pilotmesh/pilot/internal/agent/envoy"
	"github.com/pilotmesh/pilot/internal/agent/life"
)

// contents are the files of a folder with their contents.
func contents(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "%s: %s\n", e.Name(), text)
	}
	return all.String()
}

// TestSecondAgent: an agent changes nothing if another agent has its folder or one of its ports, with Envoy and without: no file, and not
// the shared memory of the other agent's Envoy.
func TestSecondAgent(t *testing.T) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	binary := filepath.Join(t.TempDir(), "envoy")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\necho envoy version: 0a/1.40.0/Clean/RELEASE/BoringSSL\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	const id = "4294967290" // which no Envoy has
	memory := "/dev/shm/envoy_shared_memory_" + id + "0"
	if err := os.WriteFile(memory, nil, 0o600); err != nil {
		t.Skip(err)
	}
	defer func() { _ = os.Remove(memory) }()
	for _, c := range []struct {
		flag, alone, want string
		locked            bool
	}{
		{"--statusPort=0", "false", "another agent runs with the folder", true},
		{"--statusPort=0", "true", "another agent runs with the folder", true},
		{fmt.Sprint("--statusPort=", port), "false", "the status server has no port", false},
		{fmt.Sprint("--statusPort=", port), "true", "the status server has no port", false},
		{fmt.Sprint("--envoyPrometheusPort=", port), "false", "Envoy's listener for scrapes has no port", false},
	} {
		dir := t.TempDir()
		environ := []string{"CLOUD_PLATFORM=none", "DISABLE_ENVOY=" + c.alone, "ENVOY=" + binary, "GRPC_XDS_BOOTSTRAP=" + filepath.Join(dir, "grpc.json")}
		s := settings(t, environ, "--configPath="+dir, "--proxyAdminPort=1", "--statusPort=0", "--envoyStatusPort=0", "--envoyPrometheusPort=0", c.flag)
		err := errors.Join(os.WriteFile(filepath.Join(dir, "base-id"), []byte(id), 0o600), os.WriteFile(filepath.Join(dir, "envoy-rev.json"), []byte("{}"), 0o600))
		if err != nil {
			t.Fatal(err)
		}
		if c.locked {
			release, err := disk.Lock(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer release()
		}
		before := contents(t, dir)
		if err := Run(t.Context(), s, Host{}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.flag, err, c.want)
		}
		if after := contents(t, dir); after != before {
			t.Errorf("%s, alone %s: the folder has changed from\n%s to\n%s", c.flag, c.alone, before, after)
		}
		if _, err := os.Stat(memory); err != nil {
			t.Fatalf("%s: the shared memory is gone", c.flag)
		}
	}
}

// TestTidy: files that a killed agent has left are removed. Files in use, and files of other programs, stay.
func TestTidy(t *testing.T) {
	dir := t.TempDir()
	old := time.Now().Add(-time.Hour)
	for _, name := range []string{".envoy-rev.json12", ".last-known-good34", ".last-good-bootstrap5", "envoy-rev7.json", ".envoy-rev7.json8", ".notes12", "envoy-rev.yaml"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, old, old)); err != nil {
			t.Fatal(err)
		}
	}
	begin(t, settings(t, nil, "--configPath="+dir))
	var left []string
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{".notes12", "envoy-rev.json", "envoy-rev.yaml"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("%q, %v", left, err)
	}
}

// TestFullDisk: on a full disk Envoy gets an unchanged bootstrap from its file, and a changed one from memory. The file stays as it was.
func TestFullDisk(t *testing.T) {
	dir := disktest.Small(t)
	flag, out := "--configPath="+dir, t.TempDir()
	binary := filepath.Join(out, "envoy")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\necho $2 > "+out+"/from\ncat $2 > "+out+"/text\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	first := begin(t, settings(t, nil, flag))
	junk, err := os.Create(filepath.Join(dir, "junk"))
	for err == nil {
		_, err = junk.Write(make([]byte, 4096))
	}
	if err := junk.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(first.path(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ flag, from string }{{"--sotw=false", first.path(1)}, {"--sotw", "/dev/fd/3"}} {
		p := begin(t, settings(t, nil, flag, c.flag))
		text := p.revisions[firstRevision].text
		r := p.revisions[firstRevision]
		r.options.Binary = binary
		p.revisions[firstRevision] = r
		process, _, err := p.Start(life.Launch{Process: 1, Revision: firstRevision})
		if err != nil {
			t.Fatal(err)
		}
		if err := process.(*envoy.Process).Wait(); err != nil {
			t.Fatal(err)
		}
		from, fromErr := os.ReadFile(filepath.Join(out, "from"))
		got, textErr := os.ReadFile(filepath.Join(out, "text"))
		if err := errors.Join(fromErr, textErr); err != nil || string(from) != c.from+"\n" || string(got) != text {
			t.Errorf("%s: Envoy has read %d bytes from %s, want %d from %s: %v", c.flag, len(got), from, len(text), c.from, err)
		}
		if after, err := os.ReadFile(first.path(1)); err != nil || !bytes.Equal(after, before) {
			t.Errorf("%s: the file has changed: %v", c.flag, err)
		}
	}
}

// TestSigner: the metadata of a request for a certificate has the signer, if one is set.
func TestSigner(t *testing.T) {
	for signer, want := range map[string]string{"example.com/mesh": "example.com/mesh", "": ""} {
		m := requestMetadata("east", signer).GetFields()
		if m["ClusterID"].GetStringValue() != "east" || m["CertSigner"].GetStringValue() != want || (m["CertSigner"] != nil) != (want != "") {
			t.Errorf("%q: %v", signer, m)
		}
	}
}
