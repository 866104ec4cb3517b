package tour

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/test/testbed"
)

// Hint is something to try while everything runs.
type Hint struct{ What, How string }

// Next prints hints and the questions; pilotctl is how the user calls it.
func (t *Tour) Next(where, pilotctl string, hints []Hint) {
	t.Line("\n" + t.In(Bold, "All of it keeps running. Try this, from another terminal"+where) + "\n")
	for _, q := range t.Questions {
		hints = append(hints, Hint{q.Why, pilotctl + " " + strings.Join(q.Args, " ")})
	}
	for _, h := range hints {
		for line := range strings.Lines(h.How) {
			t.Line(fmt.Sprintf("  %-28s  %s", h.What, strings.TrimSpace(line)))
			h.What = ""
		}
	}
	t.Line("\n" + t.In(Bold, "Ctrl-C stops everything.") + " Edits are followed here:")
	t.header(t.What)
}

// Watch continues to count, and says how long the user's own edits take, until ctx ends.
func (t *Tour) Watch(ctx context.Context) error {
	look, rows := time.NewTicker(2*time.Millisecond), time.NewTicker(t.interval())
	defer look.Stop()
	defer rows.Stop()
	label, took := "", ""
	t.Edited() // what the tour edited is no edit of the user's
	for {
		select {
		case <-ctx.Done():
			t.keep()
			t.Line("  stopping")
			return ctx.Err()
		case <-rows.C:
			if row := t.row(label, t.load.Take(), took); t.terminal {
				t.live(row)
			} else {
				t.Line(row)
			}
			news, err := t.Control(ctx)
			if err != nil {
				return err
			}
			for _, line := range news {
				t.keep()
				t.Line("  " + line)
			}
		case <-look.C:
			since, edited := t.Edited()
			if !edited {
				continue
			}
			t.keep()
			label, took = "your edit", t.settle(ctx, since)
			t.load.Take()
			t.Edited() // an editor may write in several steps
		}
	}
}

// interval is how long a row counts: where rows cannot change, few are enough.
func (t *Tour) interval() time.Duration {
	if t.terminal {
		return time.Second
	}
	return 10 * time.Second
}

// settle waits for the proxies to take the user's edit, prints its problems, and returns the outcome.
func (t *Tour) settle(ctx context.Context, since time.Time) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	settled, err := t.Settled(ctx, since)
	problems, _ := t.Problems(context.WithoutCancel(ctx)) // none if it is gone, which is reported elsewhere
	for _, p := range problems[:min(len(problems), 5)] {
		t.Line("  " + t.In(red, p))
	}
	switch {
	case err == nil && settled.Told > 0:
		return acknowledged(settled)
	case err != nil && !testbed.Unchanged(err):
		return "not acknowledged yet: ask pilotctl proxy-status"
	case len(problems) > 0:
		return "held back: the state in force stays"
	default:
		return "the same as before for all proxies"
	}
}
