package file

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/source/kept"
)

// Keeper keeps the last good versions of access policies for the next run.
type Keeper interface {
	// Load returns the kept versions. The error names the parts that could not be read.
	Load() ([]*api.Object, error)
	// Save replaces one part.
	Save(part int, data []byte) error
}

// saveAgain is the time after which a failed Save is tried again.
const saveAgain = 5 * time.Second

// saving is the pseudo path in pending of an attempt to save.
const saving = "\x00"

// versions are kept versions, by file and by object.
type versions struct {
	byFile map[string][]*api.Object
	byKey  map[api.Key]*api.Object
}

// load reads the versions that an earlier run has kept. Files are relative to the directory there.
func (r *run) load() {
	if r.Kept == nil {
		return
	}
	all, err := r.Kept.Load()
	if err != nil {
		r.Log.Warn("the last good versions of access policies cannot be read", "error", err)
		r.loadProblems = []api.Problem{stateProblem(
			"the last good versions of access policies cannot be read: %v; a policy that is refused now denies all that it is about; correct refused policies", err)}
	}
	r.ledger.kept = versions{map[string][]*api.Object{}, map[api.Key]*api.Object{}}
	for _, o := range all {
		r.book.Put(o)
		path := filepath.Join(r.Dir, o.Position.File)
		here := *o
		here.Position.File = path
		r.ledger.kept.byKey[o.Key] = &here
		r.ledger.kept.byFile[path] = append(r.ledger.kept.byFile[path], &here)
	}
	for i := range kept.Parts {
		r.book.Take(i) // it is saved already
	}
}

// recall puts kept versions into reserve whose files are in directories that cannot be read: the files may still exist.
func (l *ledger) recall(t *tree) {
	for path := range l.kept.byFile {
		if _, known := t.files[path]; known || l.files[path] != nil || !t.failedAbove(path) {
			continue
		}
		t.files[path] = stamp{}
		f := &file{}
		f.keep(l.before(path))
		l.put(path, f)
	}
}

// keep takes in the access policies that were settled, and saves the changed parts once everything has been listed: before, it is not
// known which policies were removed.
func (r *run) keep(now time.Time) {
	for k, o := range r.ledger.policies {
		if r.synced && r.inForce[k] && o == nil {
			r.Log.Warn("an access policy was removed", "policy", k.String())
		}
		if o == nil || o.Substitute {
			r.book.Drop(k)
		} else {
			relative := *o
			if path, err := filepath.Rel(r.Dir, o.Position.File); err == nil {
				relative.Position.File = path
			}
			r.book.Put(&relative)
		}
		if o == nil {
			delete(r.inForce, k)
		} else {
			r.inForce[k] = true
		}
	}
	clear(r.ledger.policies)
	if !r.synced || r.Kept == nil {
		return
	}
	if r.ledger.kept.byKey != nil {
		for k := range r.ledger.kept.byKey {
			if !r.inForce[k] {
				r.book.Drop(k) // it was removed between two runs
			}
		}
		r.ledger.kept = versions{}
	}
	r.book.Complete()
	r.save(now)
}

// save saves the parts that have changed.
func (r *run) save(now time.Time) {
	for _, i := range r.book.Changed() {
		data, left, err := kept.Encode(r.book.Take(i))
		if err == nil {
			err = r.Kept.Save(i, data)
		}
		r.saveProblems[i] = nil
		if len(left) > 0 {
			r.saveProblems[i] = []api.Problem{stateProblem(
				"has no room for the last good versions of %d access policies, for example %v: after a restart they deny if their present version is refused; make fewer or smaller policies", len(left), left[0])}
		}
		if err != nil {
			r.book.Retry(i)
			r.pending.postpone(saving, now.Add(saveAgain))
			r.saveProblems[i] = []api.Problem{stateProblem(
				"the last good versions of access policies cannot be kept: %v; after a restart, refused policies deny more than before; free space, or name another folder (--stateDir)", err)}
			if !r.saveFailed {
				r.Log.Warn("the last good versions of access policies cannot be kept", "error", err)
			}
		}
		r.saveFailed = err != nil
	}
}

// keepProblems returns the problems of keeping versions.
func (r *run) keepProblems() (all []api.Problem) {
	all = append(all, r.loadProblems...)
	for _, list := range r.saveProblems {
		all = append(all, list...)
	}
	return all
}

// gone withdraws the access policies of a file that was removed, if it has been gone for long enough.
func (r *run) gone(path string, now time.Time) {
	since, ok := r.left[path]
	switch {
	case !ok:
	case now.Sub(since) < r.PolicyWait:
		r.pending.postpone(path, since.Add(r.PolicyWait))
	default:
		delete(r.left, path)
		r.ledger.remove(path)
	}
}

// sayLeaving logs policies that are in force although they are no longer in their file.
func (r *run) sayLeaving(path string, policies []api.Key) {
	if len(policies) == 0 {
		return
	}
	names := make([]string, 0, len(policies))
	for _, k := range policies {
		names = append(names, k.String())
	}
	r.Log.Warn("a file has lost access policies; they stay in force until it has been unchanged for some time, because it may be being written",
		"file", path, "policies", strings.Join(names, ", "), "time", r.PolicyWait)
}
