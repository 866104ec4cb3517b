package bundles

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/internal/controller/keys"
	"github.com/pilotmesh/pilot/internal/run/statefile"
)

// TestRestart checks that a control plane which is started again while no endpoint answers has the last good roots before its first fetch; that a
// mesh configuration of another name has none; and that a bundle which nothing names any more is forgotten for good.
func TestRestart(t *testing.T) {
	x5c, root := certificate(t, true)
	e := serve(t)
	e.body.Store(bundleOf(x5c))
	client, from := keys.NewClient(keys.Options{Local: true, Roots: e.pool()}), e.URL+"/bundle?token=secret"
	folder := Folder{Dir: statefile.Dir(t.TempDir()), Of: "/mesh.yaml"}
	begin := func(keeper Keeper, wanted ...string) *mesh {
		m := newMesh(client)
		m.Keeper = keeper
		m.follow(wanted)
		m.keep(t.Context())
		return m
	}
	first := begin(folder, from)
	if got := first.tables.Security.PresentBundle(from); got != "" {
		t.Errorf("nothing was fetched: %q", got)
	}
	first.fetchNow(t, from)
	first.keep(t.Context())
	e.Close()

	again := begin(folder, from)
	if got := again.tables.Security.PresentBundle(from); got != root || len(again.reported()) > 0 {
		t.Errorf("after a restart: %q, %q; want %q", got, again.reported(), root)
	}
	again.fetchNow(t, from)
	again.keep(t.Context())
	if got := again.reported(); again.tables.Security.PresentBundle(from) != root || len(got) != 1 || !strings.HasPrefix(got[0], "bundle-stale: ") {
		t.Errorf("after a fetch that failed: %q, %q", again.tables.Security.PresentBundle(from), got)
	}
	other := begin(Folder{Dir: folder.Dir, Of: "/other.yaml"}, from)
	if got := other.tables.Security.PresentBundle(from); got != "" {
		t.Errorf("another mesh configuration has %q", got)
	}
	again.follow(nil)
	again.keep(t.Context())
	if got := begin(folder, from).tables.Security.PresentBundle(from); got != "" {
		t.Errorf("a bundle that nothing named: %q", got)
	}
}

// TestKeptRootsAreChecked checks that kept bundles are checked like answers, and that damage of one bundle costs no other.
func TestKeptRootsAreChecked(t *testing.T) {
	x5c, root := certificate(t, true)
	leaf, _ := certificate(t, false)
	a, b := "https://a.example.com/", "https://b.example.com/"
	for _, c := range []struct{ kept, a, b string }{
		{`{"` + a + `":` + bundleOf(x5c) + `,"` + b + `":` + bundleOf(leaf) + `}`, root, ""},
		{`{"` + a + `":` + bundleOf(x5c) + `,"` + b + `":5}`, root, ""},
		{`{"` + a + `":` + bundleOf(x5c) + `,"http://plain.example.com/":` + bundleOf(x5c) + `,"` + b + `":` + bundleOf(x5c) + `}`, root, root},
		{`{"` + a + `":` + bundleOf(x5c), "", ""},
		{`[]`, "", ""},
	} {
		folder := Folder{Dir: statefile.Dir(t.TempDir())}
		if err := folder.Dir.Replace(folder.name(), []byte(c.kept)); err != nil {
			t.Fatal(err)
		}
		m := newMesh(nil)
		m.Keeper = folder
		m.follow([]string{a, b, "http://plain.example.com/"})
		m.keep(t.Context())
		if got := m.tables; got.Security.PresentBundle(a) != c.a || got.Security.PresentBundle(b) != c.b || got.Security.PresentBundle("http://plain.example.com/") != "" {
			t.Errorf("%.60s: %q, %q", c.kept, got.Security.PresentBundle(a), got.Security.PresentBundle(b))
		}
	}
}

// TestCannotKeep checks that a folder which cannot be written is a problem, until it can be, and that the roots are in force all the same.
func TestCannotKeep(t *testing.T) {
	x5c, root := certificate(t, true)
	file := t.TempDir() + "/state"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m, from := newMesh(nil), "https://spire.example.com/"
	m.Keeper = Folder{Dir: statefile.Dir(file)}
	m.follow([]string{from})
	a, err := parse([]byte(bundleOf(x5c)))
	if err != nil {
		t.Fatal(err)
	}
	m.finish(from, a, nil)
	wait := m.keep(t.Context())
	if got := m.reported(); m.tables.Security.PresentBundle(from) != root || len(got) != 1 || !strings.HasPrefix(got[0], "state-unwritable: ") || wait <= 0 || wait > 2*firstPause {
		t.Errorf("%q, and again after %v", got, wait)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	m.memory.next = time.Time{}
	if m.keep(t.Context()); len(m.reported()) > 0 {
		t.Errorf("%q", m.reported())
	}
}

// TestRoom checks that a bundle without room costs no smaller one, and is a problem.
func TestRoom(t *testing.T) {
	x5c, root := certificate(t, true)
	m := newMesh(nil)
	folder := Folder{Dir: statefile.Dir(t.TempDir())}
	m.Keeper = folder
	wanted := []string{"https://small.example.com/"}
	for i := range 5 {
		wanted = append(wanted, fmt.Sprintf("https://large-%d.example.com/", i))
	}
	m.follow(wanted)
	m.finish(wanted[0], answer{roots: root}, nil)
	for _, from := range wanted[1:] {
		m.finish(from, answer{roots: strings.Repeat(root, mostKept/3/len(root))}, nil)
	}
	m.keep(t.Context())
	if got := m.reported(); len(got) != 1 || !strings.Contains(got[0], "no room for the last good roots of 3 SPIFFE bundles") {
		t.Errorf("%q", got)
	}
	kept, err := folder.Dir.ReadUnchanged(folder.name())
	if err != nil || !strings.Contains(string(kept), x5c) || len(kept) > 2*mostKept {
		t.Errorf("%d bytes are kept, %v", len(kept), err)
	}
	if n := testing.AllocsPerRun(10, func() { m.keep(t.Context()) }); n > 20 {
		t.Errorf("to keep the same roots again allocates %.0f times: they must not be encoded again", n)
	}
}

// TestReadyWithoutBundles checks that Run reports that it is ready only once the mesh configuration is known.
func TestReadyWithoutBundles(t *testing.T) {
	m, synced := newMesh(nil), make(chan struct{})
	m.Ready = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.run(ctx, synced, nil, func(context.Context) { m.follow(nil) })
	}()
	select {
	case <-m.Ready:
		t.Error("it is ready before the mesh configuration is known")
	default:
	}
	close(synced)
	<-m.Ready
	cancel()
	<-ended
}
