package patch

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
)

// Outcome is what became of a patch in one message.
type Outcome struct {
	Patch Ref
	// Matched is how many places in the message the patch was applied to.
	Matched int
	// Failure says why the patch was left out; empty if it was not. Denied is true if the message denies because of that.
	Failure string
	Denied  bool
}

// Result is a patched message.
type Result[M proto.Message] struct {
	// Message is the message. It is the one that was given if no patch changed it, and nil if a patch removed it.
	Message M
	// Changed is true if the message differs from the one that was given, or is removed.
	Changed, Removed bool
	// Outcomes has an entry for each patch that matched, or that was left out.
	Outcomes []Outcome
}

// run is one pass of patches over a message.
type run struct {
	place    Place
	patches  []*Patch
	outcomes []Outcome
}

func newRun(at Place, patches []*Patch) *run {
	r := &run{place: at, patches: patches, outcomes: make([]Outcome, len(patches))}
	for i, p := range patches {
		r.outcomes[i].Patch = p.Ref
	}
	return r
}

// of yields the patches about objects of a kind, with their position.
func (r *run) of(kind networking.EnvoyFilter_ApplyTo) func(yield func(int, *Patch) bool) {
	return func(yield func(int, *Patch) bool) {
		for i, p := range r.patches {
			if p.ApplyTo == kind && !yield(i, p) {
				return
			}
		}
	}
}

// any reports whether there is a patch about objects of one of some kinds.
func (r *run) any(kinds ...networking.EnvoyFilter_ApplyTo) bool {
	for _, kind := range kinds {
		for range r.of(kind) {
			return true
		}
	}
	return false
}

// do applies a patch to a place that it is about. change returns why it cannot be applied there.
func (r *run) do(i int, change func() error) {
	r.outcomes[i].Matched++
	err := error(nil)
	if p := r.patches[i]; p.Flaw != "" {
		err = errors.New(p.Flaw)
	} else {
		err = change()
	}
	if err != nil && r.outcomes[i].Failure == "" {
		r.outcomes[i].Failure = err.Error()
	}
}

// touched reports whether some patch matched, and broken whether one failed.
func (r *run) touched() bool {
	for _, o := range r.outcomes {
		if o.Matched > 0 {
			return true
		}
	}
	return false
}

func (r *run) broken() bool {
	for _, o := range r.outcomes {
		if o.Failure != "" {
			return true
		}
	}
	return false
}

// editing are the functions that one kind of message is patched with.
type editing[M proto.Message] struct {
	// edit applies the patches of a run; keep is false if one of them removes the message.
	edit func(r *run, m M) (keep bool)
	// check returns what the message may not be, beyond what its fields declare; nil if there is nothing.
	check func(m M) error
	// deny makes the message refuse all requests.
	deny func(m M)
}

// apply applies patches to a message. If the result is not valid, it finds the patches that make it so, and leaves them out.
func apply[M proto.Message](m M, at Place, patches []*Patch, e editing[M]) Result[M] {
	patches = slices.DeleteFunc(slices.Clone(patches), func(p *Patch) bool { return at.Context != networking.EnvoyFilter_ANY && !p.In(at.Context) })
	r, out, keep := pass(m, at, patches, e)
	if !r.touched() {
		return Result[M]{Message: m}
	}
	if r.broken() || keep && e.validate(out) != nil {
		r, out, keep = e.withoutBroken(m, at, patches)
	}
	result := Result[M]{Message: out, Removed: !keep, Changed: !keep || !proto.Equal(m, out)}
	for i, o := range r.outcomes {
		if o.Failure != "" && patches[i].Access && e.deny != nil {
			o.Denied = true
		}
		if o.Matched > 0 || o.Failure != "" {
			result.Outcomes = append(result.Outcomes, o)
		}
	}
	return e.denying(result, m)
}

// denying makes the message deny if a patch about access was left out.
func (e editing[M]) denying(result Result[M], m M) Result[M] {
	for _, o := range result.Outcomes {
		if o.Denied && !result.Removed {
			if !result.Changed {
				result.Message = proto.Clone(m).(M)
			}
			e.deny(result.Message)
			result.Changed = true
			break
		}
	}
	return result
}

// pass applies all patches to a copy of the message.
func pass[M proto.Message](m M, at Place, patches []*Patch, e editing[M]) (r *run, out M, keep bool) {
	r, out = newRun(at, patches), proto.Clone(m).(M)
	keep = e.edit(r, out)
	return r, out, keep
}

func (e editing[M]) validate(m M) error {
	if err := validate(m); err != nil {
		return err
	}
	if e.check != nil {
		return e.check(m)
	}
	return nil
}

// errUnpatched says that a message was not valid before, so that nothing can be said about a patch.
var errUnpatched = errors.New("the message is not valid without patches either")

// withoutBroken applies the patches one after the other, and leaves out each that cannot be applied or after which the message is not valid.
func (e editing[M]) withoutBroken(m M, at Place, patches []*Patch) (r *run, out M, keep bool) {
	good := make([]*Patch, 0, len(patches))
	failures := map[Ref]string{}
	valid := e.validate(m) == nil
	for _, p := range patches {
		r, out, keep := pass(m, at, append(good, p), e)
		last := r.outcomes[len(good)]
		err := errUnpatched
		switch {
		case last.Failure != "":
			err = errors.New(last.Failure)
		case last.Matched == 0 || !keep:
			err = nil
		case valid:
			if err = e.validate(out); err != nil {
				err = fmt.Errorf("after it Envoy would refuse the %s: %w", out.ProtoReflect().Descriptor().Name(), err)
			}
		}
		if err != nil {
			failures[p.Ref] = err.Error()
			continue
		}
		good = append(good, p)
	}
	r, out, keep = pass(m, at, good, e)
	all := newRun(at, patches)
	for i, p := range patches {
		if why, failed := failures[p.Ref]; failed {
			all.outcomes[i].Matched, all.outcomes[i].Failure = 1, why
		}
		for j, g := range good {
			if g == p {
				all.outcomes[i] = r.outcomes[j]
			}
		}
	}
	return all, out, keep
}
