package schedule

import (
	"context"
	"iter"
	"math"
	"time"
)

// Writes writes the wanted values that differ from the ones that the outside is known to have.
type Writes[K, V comparable] struct {
	// Look returns the wanted values, with each key once. It is called again after Changed has delivered.
	Look    func(context.Context) (iter.Seq2[K, V], error)
	Changed <-chan struct{}
	// Compare orders keys that are due at the same time.
	Compare func(a, b K) int
	// Pauses are the pauses between two attempts to write the same value.
	Pauses Pauses
	// Period is the longest time between two looks; 0 if every change is signalled.
	Period time.Duration
	// Repeat is the time after which a known value is written again, because other programs may have changed it; 0 for never.
	Repeat time.Duration
	// AtOnce bounds how many values are written after one look, so that none is decided on a look that is much older; 0 for no bound.
	AtOnce int
	// Write makes the outside have a value, if it has another one. It returns false if the outside may not have the value afterwards although nothing
	// has failed: then the value is written again after a pause, as after an error.
	Write func(ctx context.Context, k K, v V) (known bool, err error)
	// Failed is called with an error of Write, unless the last attempt with the key had the same. If many writes after one look fail, it is called for
	// a few of them.
	Failed func(k K, err error)
}

// mostFailed bounds the calls of Failed after one look.
const mostFailed = 5

// written is the last attempt with a key.
type written[V comparable] struct {
	value   V
	failure string
}

// Run writes until ctx ends. It knows nothing at first: another replica may have written since an earlier run. A key that is not wanted any more is
// forgotten.
func (w *Writes[K, V]) Run(ctx context.Context) {
	agenda, last := Agenda[K]{Compare: w.Compare, Pauses: w.Pauses}, map[K]*written[V]{}
	for ctx.Err() == nil {
		wait := w.Pauses.First
		if wanted, err := w.Look(ctx); err == nil {
			follow(&agenda, last, wanted)
			w.write(ctx, &agenda, last)
			wait = agenda.Wait()
		}
		if w.Period > 0 {
			wait = min(wait, w.Period)
		}
		alarm := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-w.Changed:
		case <-alarm.C:
		}
		alarm.Stop()
	}
}

// follow makes the keys due whose value is new, and forgets the keys that are not wanted any more.
func follow[K, V comparable](agenda *Agenda[K], last map[K]*written[V], wanted iter.Seq2[K, V]) {
	present := make(map[K]struct{}, len(last))
	for k, v := range wanted {
		present[k] = struct{}{}
		if was := last[k]; was == nil || was.value != v {
			last[k] = &written[V]{value: v}
			agenda.Touch(k)
		}
	}
	for k := range last {
		if _, ok := present[k]; !ok {
			delete(last, k)
			agenda.Drop(k)
		}
	}
}

// write writes the values that are due.
func (w *Writes[K, V]) write(ctx context.Context, agenda *Agenda[K], last map[K]*written[V]) {
	most := w.AtOnce
	if most == 0 {
		most = math.MaxInt
	}
	failed := 0
	for _, k := range agenda.Take(most) {
		if ctx.Err() != nil {
			return
		}
		one := last[k]
		known, err := w.Write(ctx, k, one.value)
		failure := ""
		if err != nil && ctx.Err() == nil {
			if failure = err.Error(); failure != one.failure && failed < mostFailed {
				failed++
				w.Failed(k, err)
			}
		}
		one.failure = failure
		switch {
		case err != nil || !known:
			agenda.Retry(k, idle)
		case w.Repeat > 0:
			agenda.At(k, time.Now().Add(w.Repeat))
		}
	}
}
