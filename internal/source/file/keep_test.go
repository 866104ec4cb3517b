package file

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	security "istio.io/api/security/v1beta1"

	"github.com/pilotmesh/pilot/internal/api"
)

// TestKeptVersionsInUnreadableDirectory: if a directory cannot be read when a source starts, the kept policies of the files in it stay in
// force, and no other ones.
func TestKeptVersionsInUnreadableDirectory(t *testing.T) {
	l := newLedger(waits{})
	l.kept = versions{map[string][]*api.Object{}, map[api.Key]*api.Object{}}
	for _, path := range []string{"mesh/closed/p.yaml", "mesh/open/q.yaml"} {
		o, err := api.Object{Key: api.Key{Namespace: "shop", Name: filepath.Base(path)}, Spec: &security.PeerAuthentication{}}.Seal()
		if err != nil {
			t.Fatal(err)
		}
		l.kept.byFile[path], l.kept.byKey[o.Key] = []*api.Object{o}, o
	}
	w := newWalker(nil)
	w.failed["mesh/closed"] = errors.New("permission denied")
	l.recall(w.tree)
	l.recall(w.tree)
	events, _ := l.commit(nil)
	if _, known := w.files["mesh/closed/p.yaml"]; !known || len(w.files) != 1 || len(events) != 1 || events[0].Key.Name != "p.yaml" {
		t.Errorf("files %v, events %v", w.files, events)
	}
	// The directory can be read again, and the file has another version.
	l.read("mesh/closed/p.yaml", []byte("# nothing\n"), time.Now(), time.Time{}, false)
	if events, _ = l.commit(nil); len(events) != 1 || events[0].Object != nil {
		t.Errorf("events %v", events)
	}
}
