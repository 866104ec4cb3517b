package file

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/engine/omap"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/source/object"
)

// ledger holds the content of every file and decides which version of each object is used. It does no I/O. The rules:
//
//   - A claim is a document's version of an object. If several documents claim an object, the first by file and line is used;
//     the others are reported as Problems.
//   - If a document is invalid, its last good version is used in its place (a stale claim). If it has none, the version in
//     use is kept, unless another claim has a version.
//   - If a document does not even identify its object, the earlier claims of its file that are no longer in the file are kept in
//     reserve. A reserve is used only while no other claim has a version.
//   - An object without claims and reserves is removed. If a file loses access policies, as one does that is being written in pieces, they
//     stay in reserve until the file has been unchanged for some time; see leave.
//   - An access policy whose document is invalid, and that has no known version, not even from an earlier run, is replaced by a
//     substitute that denies.
type ledger struct {
	waits
	// ignoreRefused is true if refused policies have no substitutes.
	ignoreRefused bool
	// dir is the directory of the files, and cluster is the ID of the cluster that objects of Kubernetes count for; if it is empty, these are
	// not read.
	dir, cluster string
	converter    object.Converter
	// kept are the versions of access policies that an earlier run has kept, until everything has been listed.
	kept versions

	files     map[string]*file
	claims    map[api.Key][]*claim
	published map[api.Key]version

	touched   map[api.Key]struct{}      // objects whose claims have changed since the last commit
	policies  map[api.Key]*api.Object   // the access policies among them, as they were settled; nil for removed ones
	conflicts map[api.Key][]api.Problem // by object with several claims, or with a substitute
	notes     []api.Problem             // problems about directories and other things without documents
	problems  []api.Problem             // all problems, as of the last commit
	outdated  bool                      // problems must be collected again
}

// file is the content of one file.
type file struct {
	sum      omap.Hash // hash of its bytes
	since    time.Time // when they were seen first
	ended    bool      // they end with a line break
	leaving  bool      // some claims are in reserve until the file is settled
	texts    map[omap.Hash]text
	claims   []*claim
	problems []api.Problem
	unread   object.Unread
}

type claimState uint8

const (
	fresh claimState = iota
	stale
	reserve
)

type claim struct {
	key     api.Key
	at      api.Position
	version // none: no version has ever been valid
	state   claimState
	// denying is the substitute of an invalid document; nil if it has none.
	denying *api.Object
}

// known reports whether the claim has a version that may be in force.
func (c *claim) known() bool { return c.exists() || c.denying != nil }

func newLedger(w waits) *ledger {
	return &ledger{
		waits:     w,
		converter: object.Converter{Texts: object.NewTexts(object.TextLimit), Written: true},
		files:     map[string]*file{},
		claims:    map[api.Key][]*claim{},
		published: map[api.Key]version{},
		touched:   map[api.Key]struct{}{},
		policies:  map[api.Key]*api.Object{},
		conflicts: map[api.Key][]api.Problem{},
	}
}

// read updates the content of a file, which was written at some time. Documents that have not changed are not decoded again. If again is
// not zero, the file must be read again then, even if it does not change. complete is true if the file is known to be whole.
func (l *ledger) read(path string, data []byte, now, written time.Time, complete bool) (again time.Time) {
	sum := omap.Sum(data)
	old := l.before(path)
	if old != nil && old.sum == sum && !old.leaving {
		return again
	}
	f := &file{sum: sum, since: now, ended: bytes.HasSuffix(data, []byte("\n")), texts: map[omap.Hash]text{}, unread: object.Unread{}}
	switch {
	case l.files[path] == nil && written.Before(now):
		f.since = written
	case old != nil && old.sum == sum:
		f.since, f.ended = old.since, old.ended
	}
	w := l.waits
	if complete {
		w = waits{}
	}
	texts, p := api.Split(path, data)
	if p != nil {
		l.unreadable(path, *p)
		return again
	}
	var docs []decoded
	for _, t := range texts {
		docs = append(docs, l.decode(f, old, path, t)...)
	}
	if f.fill(path, docs, old) {
		if wait := f.leave(old, w, now.Sub(f.since)); wait > 0 {
			f.leaving, again = true, f.since.Add(wait)
		}
	}
	l.put(path, f)
	return again
}

// before returns the last known content of a file; nil if there is none. At first, it is the content that an earlier run has kept.
func (l *ledger) before(path string) *file {
	if f := l.files[path]; f != nil || len(l.kept.byFile[path]) == 0 {
		return f
	}
	f := &file{}
	for _, o := range l.kept.byFile[path] {
		f.claims = append(f.claims, &claim{key: o.Key, at: o.Position, version: version{object: o}, state: reserve})
	}
	return f
}

// maxProblems limits the number of problems that are reported for one file.
const maxProblems = 1000

func (f *file) addProblems(problems []api.Problem) {
	n := len(f.problems)
	if n > maxProblems {
		return
	}
	f.problems = append(f.problems, problems...)
	if len(f.problems) > maxProblems {
		more := f.problems[maxProblems]
		more.Field, more.Object, more.Reason = "", api.Key{}, "there is more; correct the above first"
		f.problems = append(f.problems[:maxProblems:maxProblems], more)
	}
}

func lastGood(f *file) map[api.Key]version {
	if f == nil {
		return nil
	}
	last := make(map[api.Key]version, len(f.claims))
	for _, c := range f.claims {
		if !last[c.key].exists() {
			last[c.key] = c.version
		}
	}
	return last
}

// keep puts the earlier claims of the file into reserve that are no longer in the file. It reports whether there are some.
func (f *file) keep(old *file) (reserved bool) {
	if old == nil {
		return false
	}
	named := make(map[api.Key]bool, len(f.claims))
	for _, c := range f.claims {
		named[c.key] = true
	}
	for _, c := range old.claims {
		if c.known() && !named[c.key] {
			named[c.key], reserved = true, true
			f.claims = append(f.claims, c.reserved())
		}
	}
	return reserved
}

// reserved returns the claim as a reserve.
func (c *claim) reserved() *claim {
	return &claim{key: c.key, at: c.at, version: c.version, state: reserve, denying: c.denying}
}

// unreadable records that a file cannot be read. Its claims are kept in reserve.
func (l *ledger) unreadable(path string, p api.Problem) {
	f := &file{problems: []api.Problem{p}}
	f.keep(l.before(path))
	l.put(path, f)
}

// remove records that a file was removed.
func (l *ledger) remove(path string) { l.put(path, nil) }

// put replaces the content of a file.
func (l *ledger) put(path string, f *file) {
	old := l.files[path]
	if old != nil {
		for _, c := range old.claims {
			l.touched[c.key] = struct{}{}
			l.claims[c.key] = slices.DeleteFunc(l.claims[c.key], func(o *claim) bool { return o == c })
		}
	}
	if f == nil {
		delete(l.files, path)
		l.outdated = l.outdated || old != nil && len(old.problems)+len(old.unread) > 0
		return
	}
	for _, c := range f.claims {
		l.touched[c.key] = struct{}{}
		l.claims[c.key] = append(l.claims[c.key], c)
	}
	l.files[path] = f
	if old == nil || !slices.Equal(old.problems, f.problems) || !maps.Equal(old.unread, f.unread) {
		l.outdated = true
	}
}

// hasClaims reports whether the file claims any object.
func (l *ledger) hasClaims(path string) bool {
	return l.files[path] != nil && len(l.files[path].claims) > 0
}

// commit returns the changes since the last commit: events in key order, and the problems that appeared or were resolved. notes
// are the problems that are not about documents.
func (l *ledger) commit(notes []api.Problem) (events []source.Event, problems []source.ProblemEvent) {
	for key := range l.touched {
		winner, old := l.settle(key), l.published[key]
		if key.GuardsAccess() {
			l.policies[key] = winner.object
		}
		switch {
		case !winner.exists() && old.exists():
			delete(l.published, key)
			events = append(events, source.Event{Key: key})
		case winner.exists() && !winner.same(old):
			l.published[key] = winner
			events = append(events, source.Event{Key: key, Object: winner.object, Value: winner.value, Position: winner.at, Added: !old.exists()})
		}
	}
	clear(l.touched)
	slices.SortFunc(events, func(a, b source.Event) int { return a.Key.Compare(b.Key) })
	if l.outdated || !slices.Equal(notes, l.notes) {
		l.notes = notes
		l.outdated = false
		all := l.collect()
		problems = source.ProblemEvents(l.problems, all)
		l.problems = all
	}
	return events, problems
}

// settle decides which version of an object is used, and reports the other claims as problems.
func (l *ledger) settle(key api.Key) version {
	claims := l.claims[key]
	if len(claims) == 0 {
		delete(l.claims, key)
	}
	slices.SortFunc(claims, func(a, b *claim) int { return cmp.Or(cmp.Compare(a.rank(), b.rank()), a.at.Compare(b.at)) })
	var used version
	var found []api.Problem
	if i := slices.IndexFunc(claims, func(c *claim) bool { return c.exists() }); i >= 0 {
		used, found = claims[i].version, duplicates(key, claims[i], claims)
	} else if len(claims) > 0 {
		if used = l.lastKnown(key, claims); used.substitute() {
			found = append(found, used.object.Denial())
		}
	}
	if !slices.Equal(found, l.conflicts[key]) {
		l.outdated = true
		if len(found) == 0 {
			delete(l.conflicts, key)
		} else {
			l.conflicts[key] = found
		}
	}
	return used
}

// lastKnown returns the version in use of an object without a valid document.
func (l *ledger) lastKnown(key api.Key, claims []*claim) version {
	if v := l.published[key]; v.exists() && !v.substitute() {
		return v
	}
	if o := l.kept.byKey[key]; o != nil {
		return version{object: o}
	}
	for _, c := range claims {
		if c.denying != nil && !l.ignoreRefused {
			return version{object: c.denying}
		}
	}
	return version{}
}

// rank orders reserves after all other claims.
func (c *claim) rank() int {
	if c.state == reserve {
		return 1
	}
	return 0
}

// collect returns all problems in the order of the files.
func (l *ledger) collect() []api.Problem {
	var all []api.Problem
	for _, f := range l.files {
		all = append(all, f.problems...)
	}
	for _, found := range l.conflicts {
		all = append(all, found...)
	}
	all = api.MergeRemarks(slices.Concat(all, l.notes, l.unreadKinds()))
	slices.SortStableFunc(all, func(a, b api.Problem) int {
		return cmp.Or(a.Position.Compare(b.Position), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Reason, b.Reason))
	})
	return all
}
