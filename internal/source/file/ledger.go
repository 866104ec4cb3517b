package file

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/omap"
	"github.com/pilotmesh/pilot/internal/source"
)

// ledger holds the content of every file and decides which version of each object is used. It does no I/O. The rules:
//
//   - A claim is a document's version of an object. If several documents claim an object, the first by file and line is used;
//     the others are reported as Problems.
//   - If a document is invalid, its last valid version is used in its place (a stale claim). If it has none, the version in
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
	// kept are the versions of access policies that an earlier run has kept, until everything has been listed.
	kept versions

	files     map[string]*file
	claims    map[api.Key][]*claim
	published map[api.Key]*api.Object

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
}

// text is a decoded document. It is reused when the same bytes occur again.
type text struct {
	line int
	docs []api.Document
}

type claimState uint8

const (
	fresh claimState = iota
	stale
	reserve
)

type claim struct {
	key    api.Key
	at     api.Position
	object *api.Object // nil: no version has ever been valid
	state  claimState
	// denying is the substitute of an invalid document; nil if it has none.
	denying *api.Object
}

// known reports whether the claim has something that may be in force.
func (c *claim) known() bool { return c.object != nil || c.denying != nil }

func newLedger(w waits) *ledger {
	return &ledger{
		waits:     w,
		files:     map[string]*file{},
		claims:    map[api.Key][]*claim{},
		published: map[api.Key]*api.Object{},
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
	f := &file{sum: sum, since: now, ended: bytes.HasSuffix(data, []byte("\n")), texts: map[omap.Hash]text{}}
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
	whole := true // every document identifies its object
	last := lastGood(old)
	others := 0
	texts, p := api.Split(path, data)
	if p != nil {
		l.unreadable(path, *p)
		return again
	}
	for _, t := range texts {
		known := f.decode(old, path, t)
		for _, d := range known.docs {
			f.addProblems(d.Problems)
			whole = whole && !d.Cut
			if d.Other != nil {
				others++
			}
			switch {
			case d.Object != nil:
				f.claims = append(f.claims, &claim{key: d.Key, at: d.Position, object: d.Object})
			case d.Identified:
				f.claims = append(f.claims, &claim{key: d.Key, at: d.Position, object: last[d.Key], state: stale, denying: d.Denying})
			case api.Failed(d.Problems):
				whole = false
			}
		}
	}
	f.addOthers(path, others)
	if !whole {
		f.keep(old)
	} else if wait := f.leave(old, w, now.Sub(f.since)); wait > 0 {
		f.leaving, again = true, f.since.Add(wait)
	}
	l.put(path, f)
	return again
}

// decode returns a document of the file. old is the file before, whose documents are used again if they are the same; it may be nil.
func (f *file) decode(old *file, path string, t api.Text) text {
	id := omap.Sum(t.Bytes())
	known, ok := f.texts[id]
	if !ok && old != nil {
		known, ok = old.texts[id]
	}
	if !ok {
		known = text{line: t.Line(), docs: t.Decode(path)}
		for i := range known.docs {
			d := &known.docs[i]
			if d.Check(); d.Other != nil {
				d.Other = []byte{} // only whether there is one counts
			}
		}
	}
	known = known.moved(t.Line())
	f.texts[id] = known
	return known
}

// addOthers adds one problem for all objects of the file that are not configuration of the mesh.
func (f *file) addOthers(path string, n int) {
	if n > 0 {
		f.addProblems([]api.Problem{problem(path, api.Warning,
			"%d of its objects are of Kubernetes or of other programs, and are not read from files: ignored", n)})
	}
}

// before returns the content of a file before it is read; nil if nothing is known of it. At first, that is what an earlier run has kept.
func (l *ledger) before(path string) *file {
	if f := l.files[path]; f != nil || len(l.kept.byFile[path]) == 0 {
		return f
	}
	f := &file{}
	for _, o := range l.kept.byFile[path] {
		f.claims = append(f.claims, &claim{key: o.Key, at: o.Position, object: o, state: reserve})
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

func (t text) moved(line int) text {
	if t.line == line {
		return t
	}
	docs := make([]api.Document, len(t.docs))
	for i, d := range t.docs {
		docs[i] = d.ShiftLines(line - t.line)
	}
	return text{line: line, docs: docs}
}

func lastGood(f *file) map[api.Key]*api.Object {
	if f == nil {
		return nil
	}
	last := make(map[api.Key]*api.Object, len(f.claims))
	for _, c := range f.claims {
		if last[c.key] == nil {
			last[c.key] = c.object
		}
	}
	return last
}

// keep puts the earlier claims of the file into reserve that are no longer in the file.
func (f *file) keep(old *file) {
	if old == nil {
		return
	}
	named := make(map[api.Key]bool, len(f.claims))
	for _, c := range f.claims {
		named[c.key] = true
	}
	for _, c := range old.claims {
		if c.known() && !named[c.key] {
			named[c.key] = true
			f.claims = append(f.claims, c.reserved())
		}
	}
}

// reserved returns the claim as a reserve.
func (c *claim) reserved() *claim {
	return &claim{key: c.key, at: c.at, object: c.object, state: reserve, denying: c.denying}
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
		l.outdated = l.outdated || old != nil && len(old.problems) > 0
		return
	}
	for _, c := range f.claims {
		l.touched[c.key] = struct{}{}
		l.claims[c.key] = append(l.claims[c.key], c)
	}
	l.files[path] = f
	if old == nil || !slices.Equal(old.problems, f.problems) {
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
			l.policies[key] = winner
		}
		switch {
		case winner == nil && old != nil:
			delete(l.published, key)
			events = append(events, source.Event{Key: key})
		case winner != nil && (old == nil || old.Hash != winner.Hash):
			l.published[key] = winner
			events = append(events, source.Event{Key: key, Object: winner, Added: old == nil})
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
func (l *ledger) settle(key api.Key) *api.Object {
	claims := l.claims[key]
	if len(claims) == 0 {
		delete(l.claims, key)
	}
	slices.SortFunc(claims, func(a, b *claim) int { return cmp.Or(cmp.Compare(a.rank(), b.rank()), a.at.Compare(b.at)) })
	var winner *claim
	var found []api.Problem
	for _, c := range claims {
		switch {
		case c.object == nil:
		case winner == nil:
			winner = c
		case c.state == fresh:
			found = append(found, api.Problem{Object: key, Position: c.at, Severity: api.Error, Code: "object-duplicate", Reason: fmt.Sprintf(
				"is also defined at %v, which counts because it comes first; remove one of them", winner.at)})
		}
	}
	var object *api.Object
	switch {
	case winner != nil:
		object = winner.object
	case len(claims) > 0:
		if object = l.lastKnown(key, claims); object != nil && object.Substitute {
			found = append(found, object.Denial())
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
	return object
}

// lastKnown returns the version in use of an object without a valid document.
func (l *ledger) lastKnown(key api.Key, claims []*claim) *api.Object {
	if o := l.published[key]; o != nil && !o.Substitute {
		return o
	}
	if o := l.kept.byKey[key]; o != nil {
		return o
	}
	for _, c := range claims {
		if c.denying != nil && !l.ignoreRefused {
			return c.denying
		}
	}
	return nil
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
	all = append(all, l.notes...)
	slices.SortStableFunc(all, func(a, b api.Problem) int {
		return cmp.Or(a.Position.Compare(b.Position), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Reason, b.Reason))
	})
	return all
}
