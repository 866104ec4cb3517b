package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/test/testbed"
)

// question is one that pilotctl answers.
type question struct {
	why  string
	args []string
	code int // its exit code
}

// questions are what pilotctl can be asked about the bookstore.
func (s *stage) questions() []question {
	list := []question{
		{"who has acknowledged what", []string{"proxy-status"}, 0},
		{"what is wrong", []string{"problems"}, 0},
		{"why reviews go where they go", []string{"explain", "shop-v1", "host", "reviews"}, 0},
		{"why the catalog has none", []string{"explain", "catalog-v1", "host", "reviews"}, 1},
	}
	if s.discovery.HTTP != usualHTTP {
		for i := range list {
			list[i].args = append(list[i].args, "--address="+s.discovery.HTTP)
		}
	}
	return list
}

// next says what can be tried while everything runs.
func (s *stage) next() {
	const try = "cp try/%s.yaml config/" + routes
	v3 := bookstore()[4]
	s.line("\n" + s.in(bold, "All of it keeps running. Try this, from another terminal, in "+s.dir) + "\n")
	for _, x := range []struct{ what, how string }{
		{"be a customer", "curl -i http://" + s.address() + "/"},
		{"edit the weights", "$EDITOR config/" + routes},
		{"route by a header", fmt.Sprintf(try, "header") + "\ncurl -H 'end-user: alma' http://" + s.address() + "/"},
		{"inject faults", fmt.Sprintf(try, "fault")},
		{"mirror", fmt.Sprintf(try, "mirror") + "\ncurl http://" + testbed.Loopback(v3.port+s.offset) + "/served   # it grows, and nobody sees v3's answers"},
		{"make a mistake", fmt.Sprintf(try, "broken")},
		{"kill the control plane", fmt.Sprintf("kill -9 %d   # requests go on; after a while it is started again", s.discovery.PID())},
		{"look inside", "curl http://" + s.discovery.HTTP + "/debug"},
	} {
		s.hint(x.what, x.how)
	}
	for _, q := range s.questions() {
		s.hint(q.why, "./pilotctl "+strings.Join(q.args, " "))
	}
	s.line("\n" + s.in(bold, "Ctrl-C stops everything.") + " Edits are followed here:")
	s.header()
}

func (s *stage) hint(what, how string) {
	for line := range strings.Lines(how) {
		s.line(fmt.Sprintf("  %-28s  %s", what, strings.TrimSpace(line)))
		what = ""
	}
}

// watch goes on counting, and says how long the user's own edits take.
func (s *stage) watch(ctx context.Context) error {
	look, rows := time.NewTicker(2*time.Millisecond), time.NewTicker(s.interval())
	defer look.Stop()
	defer rows.Stop()
	var missing bool
	var err error
	label, took := "", ""
	seen, at := s.snapshot(), time.Now()
	for {
		select {
		case <-ctx.Done():
			s.keep()
			s.line("  stopping")
			return ctx.Err()
		case <-rows.C:
			if row := s.row(label, s.load.Take(), took); s.terminal {
				s.live(row)
			} else {
				s.line(row)
			}
			if missing, err = s.revive(ctx, missing); err != nil {
				return err
			}
		case <-look.C:
			before := at
			at = time.Now()
			if s.snapshot() == seen {
				continue
			}
			s.keep()
			label, took = "your edit", s.edited(ctx, before)
			s.load.Take()
			seen = s.snapshot() // an editor may write in several steps
		}
	}
}

// interval is how long a row counts: where rows cannot change, few are enough.
func (s *stage) interval() time.Duration {
	if s.terminal {
		return time.Second
	}
	return 10 * time.Second
}

// snapshot changes with every change of a file.
func (s *stage) snapshot() string {
	var b strings.Builder
	files, _ := filepath.Glob(filepath.Join(s.discovery.ConfigDir, "[^.]*.yaml")) // the pattern is right
	for _, f := range files {
		if info, err := os.Stat(f); err == nil { // else it is gone, which is a change too
			fmt.Fprintln(&b, f, info.Size(), info.ModTime().UnixNano())
		}
	}
	return b.String()
}

// edited waits for the proxies to take the user's edit, prints what is wrong with it, and tells how that went.
func (s *stage) edited(ctx context.Context, at time.Time) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	settled, err := s.discovery.AwaitSettled(ctx, at)
	problems, _ := s.discovery.Problems(context.WithoutCancel(ctx)) // none if it is gone, which is told elsewhere
	for _, p := range problems[:min(len(problems), 5)] {
		s.line("  " + s.in(red, strings.ReplaceAll(p, s.dir+"/", "")))
	}
	switch {
	case err == nil && settled.Told > 0:
		return acknowledged(settled)
	case err != nil && !testbed.Unchanged(err):
		return "not acknowledged yet: ask ./pilotctl proxy-status"
	case len(problems) > 0:
		return "held back: what was in force stays"
	default:
		return "the same as before for all proxies"
	}
}

// revive starts a control plane that was killed, a few rows after it was missed, so that its absence can be watched.
func (s *stage) revive(ctx context.Context, missing bool) (bool, error) {
	if s.discovery.Alive() == nil {
		return false, nil
	}
	if !missing {
		s.keep()
		s.line("  " + s.in(yellow, "the control plane is gone; requests go on"))
		return true, nil
	}
	if err := s.discovery.Start(ctx); err != nil {
		return false, err
	}
	s.keep()
	s.line("  " + s.in(green, fmt.Sprintf("the control plane is back, as process %d", s.discovery.PID())))
	return false, nil
}
