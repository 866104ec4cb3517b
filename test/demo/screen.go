package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/test/testbed"
)

// screen prints lines, of which the last may still change if it is a terminal.
type screen struct {
	w        io.Writer
	terminal bool
	open     bool // the last line may change
}

// newScreen finds out whether colours and moving lines are welcome.
func newScreen(f *os.File) *screen {
	info, err := f.Stat()
	fancy := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return &screen{w: f, terminal: fancy}
}

// Colours of terminals.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	blue   = "34"
)

func (s *screen) in(colour, text string) string {
	if !s.terminal {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// line prints a line, in the place of the one that may still change.
func (s *screen) line(text string) {
	s.erase()
	fmt.Fprintln(s.w, text)
}

// keep lets the last line stand as it is.
func (s *screen) keep() {
	if s.open {
		fmt.Fprintln(s.w)
		s.open = false
	}
}

// live prints a line that may still change; only terminals can do that.
func (s *screen) live(text string) {
	if !s.terminal {
		return
	}
	s.erase()
	fmt.Fprint(s.w, text)
	s.open = true
}

func (s *screen) erase() {
	if s.open {
		fmt.Fprint(s.w, "\r\x1b[2K")
		s.open = false
	}
}

// step does something that may take its time, and says so.
func (s *screen) step(what string, do func() error) error {
	began := time.Now()
	s.live("  … " + what)
	err := do()
	took := time.Since(began).Round(10 * time.Millisecond)
	if err != nil {
		s.line(fmt.Sprintf("  %s %s", s.in(red, "✗"), what))
		return err
	}
	s.line(fmt.Sprintf("  %s %s %s", s.in(green, "✓"), what, s.in(dim, took.String())))
	return nil
}

// versions are the columns of the table.
func versions() []string { return []string{"v1", "v2", "v3"} }

func (s *screen) header() {
	s.line("")
	s.line(s.in(bold, fmt.Sprintf("  %-8s  %-9s  %-24s  %5s %5s %5s  %6s  %s", "time", "weights", "whose reviews are read", "v1", "v2", "v3", "failed", "file → acknowledged")))
}

// row is a line of the table: who answered, and how long it took until that was so.
func (s *screen) row(what string, t testbed.Tally, took string) string {
	const width = 24
	var total, sum, filled int
	for _, v := range versions() {
		total += t.Answers[v]
	}
	var bar, counts strings.Builder
	for i, v := range versions() {
		sum += t.Answers[v]
		cells := (sum*width + total/2) / max(total, 1)
		bar.WriteString(s.in([]string{blue, green, yellow}[i], strings.Repeat([]string{"█", "▓", "░"}[i], cells-filled)))
		filled = cells
		fmt.Fprintf(&counts, "%6d", t.Answers[v])
	}
	bar.WriteString(strings.Repeat(" ", width-filled))
	failed := fmt.Sprintf("%6d", t.Failures)
	if t.Failures > 0 {
		failed = s.in(red, failed)
	}
	return fmt.Sprintf("  %s  %-9s  %s %s  %s  %s", time.Now().Format("15:04:05"), what, bar.String(), counts.String(), failed, took)
}
