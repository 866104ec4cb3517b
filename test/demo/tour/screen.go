package tour

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/pilotmesh/pilot/test/testbed"
)

// Main runs a demo as a program, with the flag -ci. A signal to stop ends it, which is an error only with -ci.
func Main(run func(ctx context.Context, ci bool, out *Screen) error) {
	ci := flag.Bool("ci", false, "end after the tour, and fail if anything did not work")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *ci, NewScreen(os.Stdout)); err != nil && (*ci || !errors.Is(err, context.Canceled)) {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// Screen prints lines. The last line may still change if it is a terminal.
type Screen struct {
	w        io.Writer
	terminal bool
	open     bool // the last line may change
}

// NewScreen finds out whether colours and moving lines are welcome.
func NewScreen(f *os.File) *Screen {
	info, err := f.Stat()
	fancy := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return &Screen{w: f, terminal: fancy}
}

// Colours of terminals.
const (
	Bold   = "1"
	dim    = "2"
	red    = "31"
	Green  = "32"
	Yellow = "33"
	blue   = "34"
)

// In colours a text.
func (s *Screen) In(colour, text string) string {
	if !s.terminal {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// Line prints a line, in the place of the one that may still change.
func (s *Screen) Line(text string) {
	s.erase()
	fmt.Fprintln(s.w, text)
}

// keep lets the last line stand as it is.
func (s *Screen) keep() {
	if s.open {
		fmt.Fprintln(s.w)
		s.open = false
	}
}

// live prints a line that may still change; only terminals can do that.
func (s *Screen) live(text string) {
	if !s.terminal {
		return
	}
	s.erase()
	fmt.Fprint(s.w, text)
	s.open = true
}

func (s *Screen) erase() {
	if s.open {
		fmt.Fprint(s.w, "\r\x1b[2K")
		s.open = false
	}
}

// Step does something that may take its time, and says so.
func (s *Screen) Step(what string, do func() error) error {
	began := time.Now()
	s.live("  … " + what)
	err := do()
	took := time.Since(began).Round(10 * time.Millisecond)
	if err != nil {
		s.Line(fmt.Sprintf("  %s %s", s.In(red, "✗"), what))
		return err
	}
	s.Line(fmt.Sprintf("  %s %s %s", s.In(Green, "✓"), what, s.In(dim, took.String())))
	return nil
}

// versions are the columns of the table.
func versions() []string { return []string{"v1", "v2", "v3"} }

func (s *Screen) header(edit string) {
	s.Line("")
	s.Line(s.In(Bold, fmt.Sprintf("  %-8s  %-9s  %-24s  %5s %5s %5s  %6s  %s", "time", "weights", "whose reviews are read", "v1", "v2", "v3", "failed", edit+" → acknowledged")))
}

// row is a line of the table: who answered, and how long it took until that was so.
func (s *Screen) row(what string, t testbed.Tally, took string) string {
	const width = 24
	var total, sum, filled int
	for _, v := range versions() {
		total += t.Answers[v]
	}
	var bar, counts strings.Builder
	for i, v := range versions() {
		sum += t.Answers[v]
		cells := (sum*width + total/2) / max(total, 1)
		bar.WriteString(s.In([]string{blue, Green, Yellow}[i], strings.Repeat([]string{"█", "▓", "░"}[i], cells-filled)))
		filled = cells
		fmt.Fprintf(&counts, "%6d", t.Answers[v])
	}
	bar.WriteString(strings.Repeat(" ", width-filled))
	failed := fmt.Sprintf("%6d", t.Failures)
	if t.Failures > 0 {
		failed = s.In(red, failed)
	}
	return fmt.Sprintf("  %s  %-9s  %s %s  %s  %s", time.Now().Format("15:04:05"), what, bar.String(), counts.String(), failed, took)
}
