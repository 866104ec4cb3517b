package sbom

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/packaging/debian"
)

// contents describes an image whose program is this test.
func contents(t *testing.T) Contents {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	envoy := filepath.Join(t.TempDir(), "envoy")
	if err := os.WriteFile(envoy, []byte("envoy"), 0o755); err != nil {
		t.Fatal(err)
	}
	return Contents{
		Name: "proxyv2", Version: "1.2.3", Arch: "linux-amd64", Date: time.Unix(1_700_000_000, 0), Programs: []string{program, program}, Envoy: envoy, EnvoyVersion: "1.40.0",
		Debian: []debian.Package{{Arch: "amd64", Name: "libgmp10", Version: "2:6.2.1+dfsg1-1.1", SHA256: strings.Repeat("a", 64)}},
	}
}

// TestWrite: the list names everything in the image once, and every relation leads to something that is listed.
func TestWrite(t *testing.T) {
	c := contents(t)
	text, err := Write(c)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Write(c); err != nil || !bytes.Equal(text, again) {
		t.Errorf("the same contents make two lists (%v)", err)
	}
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{documentID: true}
	for _, p := range d.Packages {
		if ids[p.ID] {
			t.Errorf("%s is listed twice", p.ID)
		}
		ids[p.ID] = true
	}
	for _, r := range d.Relationships {
		if !ids[r.From] || !ids[r.To] {
			t.Errorf("%s %s %s: one of them is not listed", r.From, r.Type, r.To)
		}
	}
	for _, want := range []string{
		`"SPDX-2.3"`, `"created": "2023-11-14T22:13:20Z"`, `"pkg:github/envoyproxy/envoy@v1.40.0"`, `"pkg:deb/debian/libgmp10@2%3A6.2.1%2Bdfsg1-1.1?arch=amd64`, `"pkg:golang/stdlib@1.`,
		"https://github.com/pilotmesh/pilot/spdx/proxyv2-1.2.3-linux-amd64-",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the list does not have %s:\n%s", want, text)
		}
	}
}

// TestOther: another program is another document, and a file without build information is no program.
func TestOther(t *testing.T) {
	c := contents(t)
	first, err := Write(c)
	if err != nil {
		t.Fatal(err)
	}
	other := c.Envoy
	if err := os.WriteFile(other, []byte("another envoy"), 0o755); err != nil {
		t.Fatal(err)
	}
	second, err := Write(c)
	if err != nil {
		t.Fatal(err)
	}
	namespace := func(text []byte) string {
		var d document
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		return d.Namespace
	}
	if namespace(first) == namespace(second) {
		t.Errorf("two documents have one name, %s", namespace(first))
	}
	c.Programs = []string{other}
	if _, err := Write(c); err == nil || !strings.Contains(err.Error(), "no Go program") {
		t.Errorf("a file of another kind: %v", err)
	}
}
