package file_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	security "istio.io/api/security/v1beta1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/run/statefile"
	"github.com/pilotmesh/pilot/internal/source/file"
	"github.com/pilotmesh/pilot/internal/source/kept"
)

// deny is a policy that denies a path. A port that is no number breaks it.
func deny(name, path string) string {
	return fmt.Sprintf(`apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: %s, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  action: DENY
  rules:
  - to: [{operation: {ports: ["80"], paths: [%s]}}]
`, name, path)
}

func broken(policy string) string {
	return strings.Replace(policy, `"80"`, `"99999"`, 1)
}

func policyKey(name string) api.Key {
	return api.Key{Kind: api.KindAuthorizationPolicy, Namespace: "shop", Name: name}
}

// denies reports whether a policy is in force and denies a path; "everything" means a policy without paths, and "nothing" means no policy.
func (w *world) denies(name, path string) func() bool {
	return func() bool {
		o := w.objects[policyKey(name)]
		if o == nil {
			return path == "nothing"
		}
		for _, to := range o.Spec.(*security.AuthorizationPolicy).Rules[0].To {
			return to.Operation.Paths[0] == path
		}
		return path == "everything"
	}
}

// diskKeeper is a state folder whose disk may be full.
type diskKeeper struct {
	file.Keeper
	mu    sync.Mutex
	full  bool
	saved int
}

func (k *diskKeeper) Save(part int, data []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.full {
		return errors.New("no space left on device")
	}
	k.saved++
	return k.Keeper.Save(part, data)
}

func (k *diskKeeper) set(full bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.full = full
}

// saves returns how often something was saved.
func (k *diskKeeper) saves() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.saved
}

// reopen runs a source over a directory, with a state folder beside it, until the test ends.
func reopen(t *testing.T, dir string, o file.Options) (*world, *diskKeeper) {
	t.Helper()
	keeper := &diskKeeper{Keeper: kept.Folder{Dir: statefile.Dir(dir + "-state"), Of: dir}}
	o.Dir, o.Kept = dir, keeper
	w := start(t, o)
	w.until("synced", func() bool { return w.last.Synced })
	return w, keeper
}

// states are the files of the state folder of a directory.
func states(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir+"-state", "policies-*.gz"))
	must(t, err)
	return list
}

// restart is a history of a policy that denies /a, until a source is started again, and the path that is denied then.
type restart struct {
	name  string
	while map[string]string // what the running source reads after the good version
	down  func(t *testing.T, dir string)
	want  string
	told  string
}

func restarts() []restart {
	return []restart{
		{"the last edit is refused", map[string]string{"p.yaml": broken(deny("p", "/b"))}, nil, "/a", "a port is a number"},
		{"the edit between two runs is refused", nil, files("p.yaml", broken(deny("p", "/b"))), "/a", "a port is a number"},
		{"an unknown field", nil, files("p.yaml", strings.Replace(deny("p", "/b"), "- to:", "- celExpression: x\n    to:", 1)), "/a", "celExpression"},
		{"it is not well-formed", nil, files("p.yaml", strings.Replace(deny("p", "/b"), "[/b]", "[/b", 1)), "/a", "YAML"},
		{"nothing of it can be read", nil, files("p.yaml", "kind: [\n"), "/a", "YAML"},
		{"its name cannot be read", nil, files("p.yaml", strings.Replace(deny("p", "/b"), "name: p", "name: 1", 1)), "/a", "metadata.name"},
		{"it has become good again", map[string]string{"p.yaml": broken(deny("p", "/b"))}, files("p.yaml", deny("p", "/c")), "/c", ""},
		{"a good version came in between", map[string]string{"p.yaml": deny("p", "/b")}, files("p.yaml", broken(deny("p", "/c"))), "/b", "a port is a number"},
		{"it has moved and is refused", nil, files("p.yaml", "", "q.yaml", broken(deny("p", "/b"))), "/a", "a port is a number"},
		{"it has moved and nothing of it can be read", map[string]string{"q.yaml": deny("p", "/a"), "p.yaml": "# moved\n"}, files("q.yaml", "kind: [\n"), "/a", "YAML"},
		{"its file was removed", nil, files("p.yaml", ""), "nothing", ""},
		{"its file has another policy", nil, files("p.yaml", deny("q", "/a")), "nothing", ""},
		{"it was removed while it was refused", map[string]string{"p.yaml": broken(deny("p", "/b"))}, files("p.yaml", ""), "nothing", ""},
		{"a write was interrupted", nil, func(t *testing.T, dir string) {
			files("p.yaml", broken(deny("p", "/b")))(t, dir)
			write(t, filepath.Join(dir+"-state", "."+filepath.Base(states(t, dir)[0])+"-123"), "half")
		}, "/a", "a port is a number"},
		{"the state is damaged", nil, func(t *testing.T, dir string) {
			files("p.yaml", broken(deny("p", "/b")))(t, dir)
			must(t, os.Truncate(states(t, dir)[0], 40))
		}, "everything", "it is damaged"},
		{"others can write the state", nil, func(t *testing.T, dir string) {
			files("p.yaml", broken(deny("p", "/b")))(t, dir)
			must(t, os.Chmod(states(t, dir)[0], 0o666))
		}, "everything", "can be changed by other users"},
		{"the state is lost", nil, func(t *testing.T, dir string) {
			files("p.yaml", broken(deny("p", "/b")))(t, dir)
			must(t, os.RemoveAll(dir+"-state"))
		}, "everything", "no earlier version is known"},
	}
}

// TestRestart: a path that a policy denied before a restart is denied after it, whatever happened to its file, unless it was removed or
// has a good version.
func TestRestart(t *testing.T) {
	for _, c := range restarts() {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "config")
			must(t, os.MkdirAll(dir, 0o755))
			write(t, filepath.Join(dir, "p.yaml"), deny("p", "/a"))
			t.Run("before", func(t *testing.T) {
				w, keeper := reopen(t, dir, file.Options{PolicyWait: 100 * time.Millisecond})
				waitFor(t, "the policy to be saved", func() bool { return keeper.saves() > 0 })
				for _, name := range []string{"q.yaml", "p.yaml"} {
					if text, ok := c.while[name]; ok {
						write(t, w.path(name), text)
						mark(t, w)
					}
				}
			})
			if c.down != nil {
				c.down(t, dir)
			}
			w, _ := reopen(t, dir, file.Options{})
			if !w.denies("p", c.want)() {
				t.Errorf("it does not deny %s: %v", c.want, w.objects[policyKey("p")])
			}
			if c.told != "" && !w.problem(c.told)() || c.told == "" && !w.healthy() {
				t.Errorf("the problems are %v", w.problems)
			}
		})
	}
}

// TestRemovedPolicyIsForgotten: a version of a policy that was removed is not used for a refused one that is written later, whether a source
// saw the removal or found it when it started.
func TestRemovedPolicyIsForgotten(t *testing.T) {
	for _, running := range []bool{true, false} {
		dir := filepath.Join(t.TempDir(), "config")
		must(t, os.MkdirAll(dir, 0o755))
		write(t, filepath.Join(dir, "p.yaml"), deny("p", "/a"))
		t.Run("saved", func(t *testing.T) {
			w, keeper := reopen(t, dir, file.Options{PolicyWait: 100 * time.Millisecond})
			waitFor(t, "the policy to be saved", func() bool { return keeper.saves() > 0 })
			if running {
				must(t, os.Remove(w.path("p.yaml")))
				w.until("it is gone", w.denies("p", "nothing"))
				waitFor(t, "its version to be forgotten", func() bool { return keeper.saves() > 1 })
			}
		})
		if !running {
			files("p.yaml", "")(t, dir)
			t.Run("removed", func(t *testing.T) {
				_, keeper := reopen(t, dir, file.Options{})
				waitFor(t, "its version to be forgotten", func() bool { return keeper.saves() > 0 })
			})
		}
		files("p.yaml", broken(deny("p", "/b")))(t, dir)
		if w, _ := reopen(t, dir, file.Options{}); !w.denies("p", "everything")() {
			t.Errorf("running %v: it denies %v", running, w.objects[policyKey("p")])
		}
	}
}

// files returns a function that writes files, in pairs of a name and a text. An empty text removes the file. They are old.
func files(pairs ...string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		for i := 0; i < len(pairs); i += 2 {
			path := filepath.Join(dir, pairs[i])
			if pairs[i+1] == "" {
				must(t, os.Remove(path))
				continue
			}
			write(t, path, pairs[i+1])
			old := time.Now().Add(-time.Hour)
			must(t, os.Chtimes(path, old, old))
		}
	}
}

// mark waits until the source has read all that was written before, and has saved it.
func mark(t *testing.T, w *world) {
	t.Helper()
	for i := range 2 { // the second is read after what the first came with is saved
		name := fmt.Sprintf("mark-%d-%d", w.count, i)
		write(t, w.path(name+".yaml"), entry(name, "198.51.100.1"))
		w.until("the mark is read", func() bool { return w.objects[key(name)] != nil })
	}
}

// waitFor waits until a condition holds.
func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	limit, again := time.After(waitLimit), time.NewTicker(time.Millisecond)
	defer again.Stop()
	for !holds() {
		select {
		case <-again.C:
		case <-limit:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// TestRefusedFromTheBeginning: a policy that was never good denies all requests to its workloads, until it is good or removed.
func TestRefusedFromTheBeginning(t *testing.T) {
	w := openWith(t, file.Options{PolicyWait: 100 * time.Millisecond}, map[string]string{"p.yaml": broken(deny("p", "/a"))})
	o := w.objects[policyKey("p")]
	if o == nil || !o.Substitute || !w.problem("with the labels app=web")() {
		t.Fatalf("%v, %v", o, w.problems)
	}
	write(t, w.path("p.yaml"), strings.Replace(broken(deny("p", "/a")), "matchLabels", "matchLabel", 1))
	w.until("its namespace denies", func() bool {
		return w.objects[policyKey("p")].Spec.(*security.AuthorizationPolicy).Selector == nil && w.problem("all workloads of namespace shop")()
	})
	write(t, w.path("p.yaml"), deny("p", "/a"))
	w.until("it is good", func() bool { return w.denies("p", "/a")() && w.healthy() })
	write(t, w.path("p.yaml"), broken(deny("p", "/b")))
	w.until("it is refused", w.problem("a port is a number"))
	if !w.denies("p", "/a")() {
		t.Error("the good version is not in force any more")
	}
	write(t, w.path("p.yaml"), "# none\n")
	w.until("it is gone", func() bool { return w.denies("p", "nothing")() && w.healthy() })
}

// TestIgnoredRefusals: a setting makes refused policies ignored, except policies with a good version.
func TestIgnoredRefusals(t *testing.T) {
	w := openWith(t, file.Options{IgnoreRefused: true}, map[string]string{"p.yaml": broken(deny("p", "/a")), "q.yaml": deny("q", "/a")})
	write(t, w.path("q.yaml"), broken(deny("q", "/b")))
	w.until("it is refused", w.problem("AuthorizationPolicy shop/q"))
	if !w.denies("p", "nothing")() || !w.denies("q", "/a")() || !w.problem("AuthorizationPolicy shop/p")() {
		t.Errorf("%v, %v", w.names(), w.problems)
	}
}

// TestFullDisk: a version that cannot be saved is a problem, and is saved when it can.
func TestFullDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "config")
	must(t, os.MkdirAll(dir, 0o755))
	w, keeper := reopen(t, dir, file.Options{})
	keeper.set(true)
	write(t, w.path("p.yaml"), deny("p", "/a"))
	w.until("it is told", w.problem("no space left on device"))
	if !w.denies("p", "/a")() {
		t.Error("the policy is not in force")
	}
	keeper.set(false)
	w.until("it is saved", w.healthy)
	if keeper.saves() != 1 {
		t.Errorf("saved %d times", keeper.saves())
	}
}
