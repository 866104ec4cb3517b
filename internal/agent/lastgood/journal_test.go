package lastgood

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/pilotmesh/pilot/internal/agent/disk/disktest"
)

const listeners = "type.googleapis.com/envoy.config.listener.v3.Listener"

// based is a store with a listener in its file.
func based(t testing.TB, path string) *Store {
	s := open(t, path)
	s.Accept(listeners, []*discoveryv3.Resource{resource(t, "a", "1")}, nil)
	s.Finish(listeners, routes)
	s.write()
	return s
}

// stored returns the listeners that an agent which starts now would have.
func stored(t testing.TB, path string) string { return text(open(t, path), listeners) }

// TestCommit: a change of a listener is on disk when Commit returns, whether or not the rest is written, also if the agent ends at once or in the
// middle of the next change. One of routes is not.
func TestCommit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	s := based(t, path)
	for _, c := range []struct {
		change func()
		want   string
	}{
		{func() { s.Accept(listeners, []*discoveryv3.Resource{resource(t, "a", "2")}, nil) }, "a@2"},
		{func() { s.Accept(listeners, []*discoveryv3.Resource{resource(t, "b", "1")}, []string{"unknown"}) }, "a@2 b@1"},
		{func() { s.Accept(listeners, nil, []string{"a"}) }, "b@1"},
		{func() { s.Accept(routes, []*discoveryv3.Resource{resource(t, "r", "1")}, nil) }, "b@1"},
		{func() { s.Replace(listeners, []*discoveryv3.Resource{resource(t, "b", "1"), resource(t, "c", "1")}) }, "b@1 c@1"},
		{func() { s.Keep(listeners, []string{"c"}) }, "c@1"},
		{s.write, "c@1"},
		{func() { s.Accept(listeners, []*discoveryv3.Resource{resource(t, "c", "2")}, nil) }, "c@2"},
	} {
		c.change()
		s.Commit()
		if got := stored(t, path); got != c.want {
			t.Fatalf("%s, want %s", got, c.want)
		}
	}
	if got := text(open(t, path), routes); got != "r@1" {
		t.Errorf("of routes there is %q", got)
	}
	good, err := os.ReadFile(s.journal.path)
	if err != nil {
		t.Fatal(err)
	}
	s.Accept(listeners, []*discoveryv3.Resource{resource(t, "c", "3")}, nil)
	s.Commit()
	more, err := os.ReadFile(s.journal.path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := len(good); cut < len(more); cut++ {
		if err := os.WriteFile(s.journal.path, more[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		if got := stored(t, path); got != "c@2" {
			t.Fatalf("with %d of %d bytes there is %s", cut, len(more), got)
		}
	}
	again := open(t, path) // the last one is without its end
	again.Accept(listeners, []*discoveryv3.Resource{resource(t, "d", "1")}, nil)
	again.Commit()
	if got := stored(t, path); got != "c@2 d@1" {
		t.Errorf("after a change that was cut off: %s", got)
	}
}

// TestCommitSparing: unchanged content is not written, and the changes go with the next file.
func TestCommitSparing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	s := based(t, path)
	s.Accept(listeners, []*discoveryv3.Resource{resource(t, "a", "1")}, nil)
	s.Commit()
	if _, err := os.Stat(s.journal.path); err == nil {
		t.Error("the same content is written again")
	}
	s.Accept(listeners, []*discoveryv3.Resource{resource(t, "a", "2")}, nil)
	s.Commit()
	s.Accept(listeners, []*discoveryv3.Resource{resource(t, "a", "3")}, nil) // accepted, and written with the file
	s.write()
	s.Commit()
	s.write()
	if _, err := os.Stat(s.journal.path); err == nil || stored(t, path) != "a@3" {
		t.Errorf("the changes are left behind a file that has them; there is %s", stored(t, path))
	}
}

// TestCommitIsNeverOlder: changes that the file has already, changes of another proxy or of an earlier file that is not used, and changes beside
// a file of an agent that knew of none, are not applied.
func TestCommitIsNeverOlder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	s := based(t, path)
	s.Accept(listeners, []*discoveryv3.Resource{resource(t, "a", "2")}, nil)
	s.Commit()
	old, err := os.ReadFile(s.journal.path)
	if err != nil {
		t.Fatal(err)
	}
	leave := func(text []byte) {
		t.Helper()
		if err := os.WriteFile(s.journal.path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.Accept(listeners, []*discoveryv3.Resource{resource(t, "a", "3")}, nil)
	s.write()
	leave(old)
	if got := stored(t, path); got != "a@3" {
		t.Errorf("changes that the file has: %s", got)
	}
	s.Accept(listeners, []*discoveryv3.Resource{resource(t, "a", "4")}, nil)
	s.Commit()
	newer, err := os.ReadFile(s.journal.path)
	if err != nil {
		t.Fatal(err)
	}
	leave([]byte(strings.Replace(string(newer), "app.shop", "bad.shop", 1)))
	if got := stored(t, path); got != "a@3" {
		t.Errorf("changes of another proxy: %s", got)
	}
	leave(newer)
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	again := open(t, path)
	again.Accept(listeners, []*discoveryv3.Resource{resource(t, "z", "1")}, nil)
	leave(newer) // as if it could not be removed
	again.write()
	if got := stored(t, path); got != "z@1" {
		t.Errorf("changes behind a file that was damaged: %s", got)
	}
	h, list := again.content(time.Now())
	h.Changes, h.Complete = nil, nil
	if err := write(path, h, maxSize, list); err != nil {
		t.Fatal(err)
	}
	leave(newer)
	former := open(t, path)
	if got := text(former, listeners); got != "z@1" || !former.Complete(listeners) || former.Complete(routes) {
		t.Errorf("beside a file of a former agent: %s, complete: %v", got, former.complete)
	}
}

// TestCommitAtOnce: the first complete configuration is written without the pause between two files.
func TestCommitAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	synctest.Test(t, func(t *testing.T) {
		s := open(t, path)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		s.Accept(listeners, []*discoveryv3.Resource{resource(t, "a", "1")}, nil)
		<-time.After(settle + time.Millisecond)
		synctest.Wait()
		if again := open(t, path); text(again, listeners) != "a@1" || again.Complete(listeners) {
			t.Errorf("a part: %s, complete: %v", text(again, listeners), again.complete)
		}
		s.Accept(listeners, []*discoveryv3.Resource{resource(t, "b", "1")}, nil)
		s.Finish(listeners)
		<-time.After(settle + time.Millisecond)
		synctest.Wait()
		if again := open(t, path); text(again, listeners) != "a@1 b@1" || !again.Complete(listeners) {
			t.Errorf("all: %s, complete: %v", text(again, listeners), again.complete)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestCommitCannotWrite: a change that cannot be written is reported. Nothing is written behind it until the whole configuration is, so that no
// later change stands without an earlier one.
func TestCommitCannotWrite(t *testing.T) {
	dir := disktest.Small(t)
	path := filepath.Join(dir, "f")
	s := based(t, path)
	t.Cleanup(func() {
		if err := s.journal.empty(); err != nil {
			t.Error(err)
		}
	})
	s.Accept(listeners, []*discoveryv3.Resource{resource(t, "b", "1")}, nil)
	s.Commit()
	s.Accept(listeners, []*discoveryv3.Resource{resource(t, "c", strings.Repeat("x", 100<<10))}, nil)
	s.Commit()
	if got := s.State().Problem; !strings.Contains(got, "no space left on device") {
		t.Errorf("the problem is %q", got)
	}
	s.Accept(listeners, []*discoveryv3.Resource{resource(t, "d", "1")}, nil)
	s.Commit()
	if got := stored(t, path); got != "a@1 b@1" {
		t.Errorf("there is %s", got)
	}
	s.Forget(listeners, "c")
	s.write()
	s.Accept(listeners, []*discoveryv3.Resource{resource(t, "d", "2")}, nil)
	s.Commit()
	if got := stored(t, path); got != "a@1 b@1 d@2" || s.State().Problem != "" {
		t.Errorf("then there is %s; the problem is %q", got, s.State().Problem)
	}
}

// TestRefuse: a resource that Envoy refuses is not returned, stays in the file for the next Envoy, and goes when it is replaced or removed.
func TestRefuse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	s := based(t, path)
	s.Accept(listeners, []*discoveryv3.Resource{resource(t, "b", "1"), resource(t, "c", "1"), resource(t, "d", "1")}, nil)
	s.Refuse(listeners, "b", "c", "d", "unknown")
	checkState(t, s)
	s.write()
	if got := text(s, listeners) + ", " + stored(t, path); got != "a@1, a@1 b@1 c@1 d@1" {
		t.Error(got)
	}
	s.Restore(listeners, "b", "unknown")
	s.Accept(listeners, []*discoveryv3.Resource{resource(t, "c", "2")}, []string{"d"})
	checkState(t, s)
	if got := text(s, listeners); got != "a@1 b@1 c@2" || len(s.Refused(listeners)) > 0 {
		t.Errorf("%s, refused: %v", got, s.Refused(listeners))
	}
}

// TestComplete: a file lists its complete types, also a type without resources.
func TestComplete(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	s := open(t, path)
	s.Accept(clusters, []*discoveryv3.Resource{resource(t, "a", "1")}, nil)
	s.Finish(listeners)
	s.write()
	again := open(t, path)
	if again.Complete(clusters) || !again.Complete(listeners) || again.Complete(routes) {
		t.Errorf("complete: %v", again.complete)
	}
}

// FuzzJournal reads anything as changes. Another change can be appended after readable ones.
func FuzzJournal(f *testing.F) {
	path := filepath.Join(f.TempDir(), "f")
	s := based(f, path)
	s.Accept(listeners, []*discoveryv3.Resource{resource(f, "a", "2")}, nil)
	s.Commit()
	good, err := os.ReadFile(s.journal.path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Fuzz(func(t *testing.T, text []byte) {
		j := &journal{path: filepath.Join(t.TempDir(), "j"), node: node}
		if err := os.WriteFile(j.path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		before, err := j.read(maxSize)
		if err != nil || j.last == 1<<64-1 {
			return
		}
		next := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: listeners, Nonce: "18446744073709551615"}
		if err := j.add([]*discoveryv3.DeltaDiscoveryResponse{next}, maxSize); err != nil {
			t.Fatal(err)
		}
		after, err := (&journal{path: j.path, node: node}).read(maxSize)
		if err != nil || len(after) != len(before)+1 {
			t.Fatalf("%d changes, %v; want %d and one more", len(after), err, len(before))
		}
		if err := j.empty(); err != nil {
			t.Fatal(err)
		}
	})
}
