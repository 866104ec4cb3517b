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

// edit is a change of the routes, from the file on.
type edit struct {
	at   time.Time
	took time.Duration // until the Envoy had acknowledged it
}

// interval is how long each row of the table counts.
const interval = time.Second

// updates matches the counter of accepted route configurations of the service's port.
func (s *stage) updates() string { return fmt.Sprintf(`\.rds\.%d\.update_success$`, s.port) }

// tour edits the weight step by step while requests run, and prints a row for each step.
func (s *stage) tour(ctx context.Context) error {
	fmt.Fprintf(s.w, "\n  %-8s  %-13s  %-28s  %6s  %6s  %7s  %s\n", "time", "routes v1/v2", "answers", "v1", "v2", "failed", "file → acknowledged")
	if err := s.row(ctx, "100/0", edit{}); err != nil {
		return err
	}
	for _, v2 := range []int{10, 50, 90, 100, 25} {
		e, err := s.follow(ctx, func() (edit, error) { return s.reweigh(v2) })
		if err != nil {
			return err
		}
		if err := s.row(ctx, fmt.Sprintf("%d/%d", 100-v2, v2), e); err != nil {
			return err
		}
	}
	return nil
}

// follow makes an edit and waits until the Envoy has it.
func (s *stage) follow(ctx context.Context, change func() (edit, error)) (edit, error) {
	before, err := s.envoy.Sum(ctx, s.updates())
	if err != nil {
		return edit{}, err
	}
	e, err := change()
	if err != nil {
		return edit{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	e.took, err = s.envoy.AwaitUpdate(ctx, s.updates(), before, e.at)
	return e, err
}

// row counts answers for one interval and prints them. After an edit the expected split is checked too.
func (s *stage) row(ctx context.Context, split string, e edit) error {
	s.count(s.load.Take()) // what was answered before the edit was acknowledged belongs to no row
	if err := pause(ctx, interval); err != nil {
		return err
	}
	t := s.load.Take()
	s.count(t)
	took := ""
	if !e.at.IsZero() {
		took = fmt.Sprintf("%.1f ms", float64(e.took.Microseconds())/1000)
	}
	s.print(split, t, took)
	var v1, v2 int
	if _, err := fmt.Sscanf(split, "%d/%d", &v1, &v2); err == nil && !within(t, v2) {
		return fmt.Errorf("weights %s, but %d answers of v1 and %d of v2", split, t.Answers["v1"], t.Answers["v2"])
	}
	return nil
}

func (s *stage) print(split string, t testbed.Tally, took string) {
	const width = 28
	v1, v2 := t.Answers["v1"], t.Answers["v2"]
	ones := 0
	if v1+v2 > 0 {
		ones = (v1*width + (v1+v2)/2) / (v1 + v2)
	}
	fmt.Fprintf(s.w, "  %s  %-13s  %s%s  %6d  %6d  %7d  %s\n", time.Now().Format("15:04:05"), split,
		strings.Repeat("█", ones), strings.Repeat("░", width-ones), v1, v2, t.Failures, took)
}

// within reports whether the answers fit the weight of v2. Of some 400 answers a share is off by more than 15 points,
// six standard deviations, only if the weight does not hold.
func within(t testbed.Tally, v2 int) bool {
	n := t.Answers["v1"] + t.Answers["v2"]
	share := float64(t.Answers["v2"]) * 100 / float64(max(n, 1))
	return n > 0 && share > float64(v2)-15 && share < float64(v2)+15
}

func (s *stage) count(t testbed.Tally) {
	if s.failed += t.Failures; s.first == nil {
		s.first = t.First
	}
}

// verdict ends the bounded run.
func (s *stage) verdict(ctx context.Context) error {
	s.count(s.load.Stop())
	if s.failed > 0 {
		return fmt.Errorf("%d requests failed, the first at %w", s.failed, s.first)
	}
	if err := s.envoy.Rejected(ctx); err != nil {
		return err
	}
	fmt.Fprintln(s.w, "\ndemo: no request failed, nothing was rejected")
	return nil
}

// next says what can be tried while everything runs.
func (s *stage) next() {
	fmt.Fprintf(s.w, `
All of it keeps running. Things to try, from another terminal:

  see an answer            curl -H 'host: %[1]s' http://%[2]s/
  be a tester              curl -H 'host: %[1]s' -H 'tester: yes' http://%[2]s/
  change the weights       edit %[3]s
  break the file           put nonsense into it: the last good routes keep serving, and this tells what is wrong:
                           curl http://%[5]s/debug/problemz
  kill the control plane   kill -9 %[4]d: requests go on, and after a while it is started again
  look inside              curl http://%[5]s/debug

Ctrl-C stops everything.

`, host, testbed.Loopback(s.port), filepath.Join(s.discovery.ConfigDir, routes), s.discovery.PID(), s.discovery.HTTP)
}

// watch goes on counting, and says how long the user's own edits take.
func (s *stage) watch(ctx context.Context) error {
	path := filepath.Join(s.discovery.ConfigDir, routes)
	seen := modified(path)
	accepted, err := s.envoy.Sum(ctx, s.updates())
	if err != nil {
		return err
	}
	tick, rows := time.NewTicker(2*time.Millisecond), time.NewTicker(5*interval)
	defer tick.Stop()
	defer rows.Stop()
	missing := false
	for {
		select {
		case <-ctx.Done():
			fmt.Fprintln(s.w, "\ndemo: stopping")
			return ctx.Err()
		case <-rows.C:
			if t := s.load.Take(); t.Total() > 0 { // nothing if an edit was looked at just now
				s.print("", t, "")
			}
			if missing, err = s.revive(ctx, missing); err != nil {
				return err
			}
		case <-tick.C:
			at := modified(path)
			if at.Equal(seen) {
				continue
			}
			seen = at
			fmt.Fprintf(s.w, "  %s  your edit: %s\n", at.Format("15:04:05"), s.edited(ctx, at, &accepted))
			s.load.Take()
		}
	}
}

// revive starts a control plane that was killed, one row after it was missed, so that its absence can be watched.
func (s *stage) revive(ctx context.Context, missing bool) (bool, error) {
	if s.discovery.Alive() == nil {
		return false, nil
	}
	if !missing {
		fmt.Fprintf(s.w, "  %s  the control plane is gone; requests go on\n", time.Now().Format("15:04:05"))
		return true, nil
	}
	if err := s.discovery.Start(ctx); err != nil {
		return false, err
	}
	fmt.Fprintf(s.w, "  %s  the control plane is back, as process %d\n", time.Now().Format("15:04:05"), s.discovery.PID())
	return false, nil
}

// edited waits for the Envoy to take the user's edit, and tells how that went.
func (s *stage) edited(ctx context.Context, at time.Time, accepted *int64) string {
	ctx, cancel := context.WithTimeout(ctx, interval)
	defer cancel()
	took, err := s.envoy.AwaitUpdate(ctx, s.updates(), *accepted, at)
	if err != nil {
		return "nothing new for Envoy"
	}
	if n, err := s.envoy.Sum(ctx, s.updates()); err == nil {
		*accepted = n
	}
	return fmt.Sprintf("acknowledged after %.1f ms", float64(took.Microseconds())/1000)
}

// modified is when the file was last written; the zero time while it is not there.
func modified(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// pause waits for a time, or for the user to stop everything.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
