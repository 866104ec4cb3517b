package file_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/internal/source/file"
)

// long is a time that no test waits for.
const long = time.Hour

// TestPolicyFileInPieces: while a file with policies is written in pieces, they stay in force until it is whole.
func TestPolicyFileInPieces(t *testing.T) {
	whole := deny("a", "/a") + "---\n" + deny("b", "/b")
	edited := deny("a", "/a") + "---\n" + deny("b", "/c")
	for _, c := range []struct{ name, text string }{
		{"empty", ""},
		{"nothing but a comment", "# Source: templates/policies.yaml\n"},
		{"the first document", deny("a", "/a")},
		{"the first document and a half", edited[:len(deny("a", "/a"))+120]},
		{"the last document", deny("b", "/b")},
		{"a document that is cut off before its rules", strings.SplitAfter(deny("a", "/a"), "action: DENY\n")[0]},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := openWith(t, file.Options{PolicyWait: long}, map[string]string{"p.yaml": whole})
			write(t, w.path("p.yaml"), c.text)
			mark(t, w)
			if !w.denies("a", "/a")() || !w.denies("b", "/b")() {
				t.Errorf("in force: %v, %v", w.objects[policyKey("a")], w.objects[policyKey("b")])
			}
			write(t, w.path("p.yaml"), edited)
			w.until("the whole file counts", func() bool { return w.denies("b", "/c")() && w.denies("a", "/a")() && w.healthy() })
		})
	}
}

// TestCutPolicyAtTheEnd: the last policy of a file that was cut off may be incomplete, so its version before stays in force.
func TestCutPolicyAtTheEnd(t *testing.T) {
	two := strings.Replace(deny("a", "/a"), "rules:\n", "rules:\n  - to: [{operation: {ports: [\"80\"], paths: [/first]}}]\n", 1)
	w := openWith(t, file.Options{PolicyWait: long}, map[string]string{"p.yaml": two + "---\n" + deny("b", "/b")})
	write(t, w.path("p.yaml"), deny("a", "/a"))
	mark(t, w)
	if !w.denies("a", "/first")() || !w.denies("b", "/b")() {
		t.Errorf("in force: %v", w.objects[policyKey("a")])
	}
	// An edit that loses nothing waits for nothing.
	write(t, w.path("p.yaml"), deny("a", "/other")+"---\n"+deny("b", "/b"))
	w.until("the edit counts", w.denies("a", "/other"))
}

// TestPolicyIsRemoved: a policy that is removed on purpose is in force for a bounded time only.
func TestPolicyIsRemoved(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(t *testing.T, w *world)
	}{
		{"its document", func(t *testing.T, w *world) { write(t, w.path("p.yaml"), deny("a", "/a")) }},
		{"the content of its file", func(t *testing.T, w *world) { write(t, w.path("p.yaml"), "") }},
		{"its file", func(t *testing.T, w *world) { must(t, os.Remove(w.path("p.yaml"))) }},
		{"its file is replaced", func(t *testing.T, w *world) { replace(t, w.path("p.yaml"), deny("a", "/a")) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := openWith(t, file.Options{PolicyWait: 300 * time.Millisecond}, map[string]string{"p.yaml": deny("a", "/a") + "---\n" + deny("b", "/b")})
			c.edit(t, w)
			w.until("it is gone", w.denies("b", "nothing"))
		})
	}
}

// TestWholeReplacement: a file that is put in the place of another one is whole, so objects that it does not have are removed at once.
func TestWholeReplacement(t *testing.T) {
	w := openWith(t, file.Options{PolicyWait: long}, map[string]string{"p.yaml": deny("a", "/a") + "---\n" + deny("b", "/b") + "---\n" + deny("c", "/c")})
	replace(t, w.path("p.yaml"), deny("a", "/a")+"---\n"+deny("b", "/b"))
	w.until("c is gone", w.denies("c", "nothing"))
	// From now on the file is written in place, so it may be incomplete.
	write(t, w.path("p.yaml"), deny("a", "/a"))
	mark(t, w)
	if !w.denies("b", "/b")() {
		t.Error("b is gone")
	}
	replace(t, w.path("p.yaml"), deny("a", "/other"))
	w.until("b is gone", func() bool { return w.denies("b", "nothing")() && w.denies("a", "/other")() })
}

// TestLinkedReplacement: a file of a mounted ConfigMap is whole, too, when its link is replaced.
func TestLinkedReplacement(t *testing.T) {
	w := openWith(t, file.Options{PolicyWait: long}, nil)
	version := func(name, text string) {
		must(t, os.MkdirAll(w.path(name), 0o755))
		write(t, w.path(name+"/p.yaml"), text)
		must(t, os.Symlink(name, w.path("..data_tmp")))
		must(t, os.Rename(w.path("..data_tmp"), w.path("..data")))
	}
	version("..1", deny("a", "/a")+"---\n"+deny("b", "/b"))
	must(t, os.Symlink("..data/p.yaml", w.path("p.yaml")))
	w.until("both are in force", func() bool { return w.denies("a", "/a")() && w.denies("b", "/b")() })
	version("..2", deny("a", "/other"))
	w.until("b is gone", func() bool { return w.denies("b", "nothing")() && w.denies("a", "/other")() })
}

// TestPolicyFileIsWrittenAnew: a file that is removed and written again loses nothing in between, and a policy that moves to another file
// waits for nothing.
func TestPolicyFileIsWrittenAnew(t *testing.T) {
	w := openWith(t, file.Options{PolicyWait: long}, map[string]string{"p.yaml": deny("a", "/a"), "q.yaml": entries("q")})
	must(t, os.Remove(w.path("p.yaml")))
	must(t, os.Remove(w.path("q.yaml")))
	w.until("q is gone", func() bool { return w.objects[key("q")] == nil })
	if !w.denies("a", "/a")() {
		t.Fatal("the policy is gone with its file")
	}
	write(t, w.path("r.yaml"), deny("a", "/r"))
	w.until("it is followed elsewhere", w.denies("a", "/r"))
	write(t, w.path("p.yaml"), deny("a", "/p"))
	w.until("the first file counts", w.denies("a", "/p"))
}

// TestOrdinaryObjectIsRemoved: objects that are no policies wait for nothing, wherever they were in the file and in whichever way it is
// edited: one that stays beside edited neighbours may refer to what these do not have any more.
func TestOrdinaryObjectIsRemoved(t *testing.T) {
	w := openWith(t, file.Options{Quiet: time.Millisecond, MaxWait: long, PolicyWait: long}, map[string]string{"a.yaml": entries("a", "b", "c")})
	write(t, w.path("a.yaml"), entries("a", "c"))
	w.until("b is gone", w.has("a", "c"))
	write(t, w.path("a.yaml"), entries("a"))
	w.until("c is gone", w.has("a"))
}

// TestFileIsRemovedAndWritten: a file that is removed and written again in pieces is not whole before its end.
func TestFileIsRemovedAndWritten(t *testing.T) {
	w := openWith(t, file.Options{PolicyWait: long}, map[string]string{"p.yaml": deny("a", "/a") + "---\n" + deny("b", "/b")})
	other, err := os.OpenFile(w.path(".p"), os.O_CREATE|os.O_WRONLY, 0o644) // another file than before
	must(t, err)
	must(t, os.Remove(w.path("p.yaml")))
	must(t, os.Rename(w.path(".p"), w.path("p.yaml")))
	mark(t, w)
	_, err = other.WriteString(deny("a", "/a"))
	must(t, err)
	mark(t, w)
	if !w.denies("a", "/a")() || !w.denies("b", "/b")() {
		t.Error("a part is taken for the whole")
	}
	_, err = other.WriteString("---\n" + deny("b", "/c"))
	must(t, err)
	must(t, other.Close())
	w.until("it is whole", w.denies("b", "/c"))
}

// TestRestartDuringAWrite: a file that was written just before a source starts may be a part, so the policies that an earlier run has kept of
// it stay in force.
func TestRestartDuringAWrite(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "a part": deny("a", "/a")} {
		dir := filepath.Join(t.TempDir(), "config")
		must(t, os.MkdirAll(dir, 0o755))
		write(t, filepath.Join(dir, "p.yaml"), deny("a", "/a")+"---\n"+deny("b", "/b"))
		t.Run("before", func(t *testing.T) {
			_, keeper := reopen(t, dir, file.Options{})
			waitFor(t, "the policies to be saved", func() bool { return keeper.saves() > 0 })
		})
		write(t, filepath.Join(dir, "p.yaml"), text)
		if w, _ := reopen(t, dir, file.Options{PolicyWait: long}); !w.denies("a", "/a")() || !w.denies("b", "/b")() {
			t.Errorf("%s: in force are %v", name, w.names())
		}
	}
}
