package agent

import (
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pilotmesh/pilot/internal/agent/config"
)

// begin returns the proxy that follows from settings.
func begin(t *testing.T, s *config.Settings) *proxy {
	t.Helper()
	c, err := Boot(s, Machine{Memory: math.MaxUint64})
	if err != nil {
		t.Fatal(err)
	}
	p, err := newProxy(s, c, "/envoy", Host{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestLastGood: the next agent finds the bootstrap with which Envoy was ready, if it differs from its own and has the same ports and sockets.
func TestLastGood(t *testing.T) {
	dir := "--configPath=" + t.TempDir()
	if p := begin(t, settings(t, nil, dir)); p.lastGood() != 0 {
		t.Error("a bootstrap that Envoy never had is good")
	} else {
		p.Serves(firstRevision)
	}
	for _, c := range []struct {
		env, flag string
		want      int
	}{
		{"X=", "--sotw=false", 0},                               // the same
		{"X=", "--sotw", savedRevision},                         // another bootstrap
		{"X=", "--proxyAdminPort=1", 0},                         // the agent could not ask that Envoy
		{"PROXY_CONFIG=statNameLength: 9", "--statusPort=1", 0}, // nor Envoy the agent
	} {
		if got := begin(t, settings(t, []string{c.env}, dir, c.flag)).lastGood(); got != c.want {
			t.Errorf("%s: %d, want %d", c.flag, got, c.want)
		}
	}
	if info, err := os.Stat(filepath.Join(dir[len("--configPath="):], goodFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.WriteFile(filepath.Join(dir[len("--configPath="):], goodFile), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if p := begin(t, settings(t, nil, dir, "--sotw")); p.lastGood() != 0 {
		t.Error("a torn file is good")
	}
}

// TestRevisionsAreForgotten: revisions that Start cannot get any more are dropped.
func TestRevisionsAreForgotten(t *testing.T) {
	p := begin(t, settings(t, nil, "--configPath="+t.TempDir()))
	for n := 2; n < 10; n++ {
		p.Serves(n - 1)
		p.add(n, revision{})
	}
	p.add(10, revision{}) // 9 was never served, and a process may start with it just now
	if got := slices.Sorted(maps.Keys(p.revisions)); !slices.Equal(got, []int{7, 8, 9, 10}) {
		t.Errorf("left: %v", got)
	}
}

func TestNamedFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "roots.pem")
	if err := os.WriteFile(path, []byte("PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := namedFiles([]byte(`{"a": [{"trusted_ca": {"filename": "`+path+`"}}]}`), []byte("x: {filename: /no/such}\ny: {name: z}"), []byte("{"))
	if want := map[string]string{path: "PEM", "/no/such": ""}; !maps.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}
