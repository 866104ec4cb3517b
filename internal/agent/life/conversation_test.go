package life

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the conversations in testdata from what the machine does")

// A conversation file holds conversations. Each begins with "== " and a title, which may set parts of the policy (restarts=1 idle
// lastgood). Then come events, and under each, indented, what the machine did:
//
//	begin, leave, end, alarm
//	up, down                  the answers to probe
//	count 3, count failed     the answers to count
//	exit 0, exit 1            the process ended by itself
//	refused                   the process cannot be started, and never will
//	stale up, stale exit 1    what an earlier process has left behind
//	change                    there is another configuration
//	old exit 0                the older one of two processes ended
//	later 2m                  time passes
//
// "-" is the result of an event that changes nothing.

// policy is the policy of all conversations.
func policy() Policy {
	p := Default()
	p.Restarts = 3
	p.LongestBackoff = 700 * time.Millisecond
	p.CountFailures = 2
	return p
}

type conversation struct {
	m   *Machine
	now time.Time
}

func TestConversations(t *testing.T) {
	files, err := filepath.Glob("testdata/conversations/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no conversations: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, string(want))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(want) {
				t.Errorf("the machine does something else; go test -update rewrites the file. It did:\n%s", got)
			}
		})
	}
}

// replay runs the events of a file and returns the file as the machine would have it.
func replay(t *testing.T, text string) string {
	t.Helper()
	var out strings.Builder
	c := &conversation{}
	for line := range strings.Lines(text) {
		event := strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(event, "  "):
			continue // the result of the last update
		case strings.HasPrefix(event, "=="):
			c = begun(event)
		}
		out.WriteString(event + "\n")
		if event == "" || strings.HasPrefix(event, "=") || strings.HasPrefix(event, "#") {
			continue
		}
		did, err := c.hear(event)
		if err != nil {
			t.Fatalf("%q: %v", event, err)
		}
		out.WriteString(did)
	}
	return out.String()
}

func begun(title string) *conversation {
	p := policy()
	for _, word := range strings.Fields(title) {
		if n, ok := strings.CutPrefix(word, "restarts="); ok {
			p.Restarts, _ = strconv.Atoi(n)
		}
		p.UntilIdle = p.UntilIdle || word == "idle"
		if word == "lastgood" {
			p.LastGood = -1
		}
	}
	return &conversation{m: newMachine(p), now: time.Unix(0, 0)}
}

func (c *conversation) hear(line string) (string, error) {
	words := strings.Fields(line)
	e := Event{Process: c.m.process}
	if words[0] == "stale" {
		e.Process--
		words = words[1:]
	}
	if words[0] == "old" {
		e.Process = c.m.older
		words = words[1:]
	}
	switch words[0] {
	case "begin":
		e.Kind = Begin
	case "leave":
		e.Kind = Leave
	case "end":
		e.Kind = End
	case "alarm":
		e.Kind = TimerFired
	case "change":
		e.Kind, e.Revision = Changed, c.m.wanted+1
	case "up":
		e.Kind = Probed
	case "down":
		e.Kind, e.Err = Probed, errors.New("not ready")
	case "count":
		e.Kind = Counted
		if e.N, e.Err = strconv.Atoi(words[1]); e.Err != nil {
			e.Err = errors.New("no answer")
		}
	case "exit":
		e.Kind = Ended
		if words[1] != "0" {
			e.Err = errors.New("exit status " + words[1])
		}
	case "refused":
		e.Kind, e.Err, e.Permanent = Ended, errors.New("no such file"), true
	case "later":
		d, err := time.ParseDuration(words[1])
		c.now = c.now.Add(d)
		return "", err
	default:
		return "", errors.New("no such event")
	}
	actions, moved := c.m.Step(c.now, e)
	if !moved {
		return "  -\n", nil
	}
	return c.did(actions), nil
}

func (c *conversation) did(actions []Action) string {
	var out strings.Builder
	fmt.Fprintf(&out, "  %v", c.m.State())
	for _, a := range actions {
		switch a.Do {
		case Set:
			fmt.Fprintf(&out, "; alarm in %v", a.After)
		case Start:
			fmt.Fprintf(&out, "; start %d", a.Process)
			if a.Parent != 0 {
				fmt.Fprintf(&out, " in place of %d", a.Parent)
			}
			if a.Revision != firstRevision {
				fmt.Fprintf(&out, " with configuration %d", a.Revision)
			}
		default:
			fmt.Fprintf(&out, "; %v", a.Do)
			if a.Process != c.m.started {
				fmt.Fprintf(&out, " %d", a.Process)
			}
		}
	}
	if r, why := c.m.Refused(); r != 0 {
		fmt.Fprintf(&out, "; configuration %d refused: %v", r, why)
	}
	if c.m.State() == Stopped {
		fmt.Fprintf(&out, "; result: %v", c.m.Result())
	}
	return out.String() + "\n"
}

// TestTableIsComplete: every input in every state either has one row, or is known to change nothing.
func TestTableIsComplete(t *testing.T) {
	rows := map[string]int{}
	for _, r := range table {
		rows[fmt.Sprintf("%v + %v", r.in, r.upon)]++
	}
	for _, r := range ignored {
		for _, i := range r.upon {
			rows[fmt.Sprintf("%v + %v", r.in, i)]++
		}
	}
	for s := range State(states) {
		for i := range input(inputs) {
			row := fmt.Sprintf("%v + %v", s, i)
			if n := rows[row]; n != 1 && !impossible(s, i) {
				t.Errorf("%s stands in %d rows, want 1", row, n)
			}
		}
	}
}

// impossible are inputs that cannot come: for example, without a process none can end, and without a timer none can fire.
func impossible(s State, i input) bool {
	switch i {
	case begin:
		return s != Idle
	case exited, crashed, exhausted:
		return s == Idle || s == BackingOff || s == Stopped || s == Replacing
	case alarm:
		return s == Idle || s == Leaving || s == Checking || s == Stopped
	case up, down, busy, drained:
		return s == Idle
	case late, failed, hopeless:
		return s != Replacing
	case gone:
		return !slices.Contains([]State{Replacing, Retiring, Leaving, Draining, Exiting}, s)
	case leave, end, change:
	}
	return false
}

// TestEveryRowIsShown: no transition without a conversation.
func TestEveryRowIsShown(t *testing.T) {
	files, err := filepath.Glob("testdata/conversations/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c := &conversation{}
		for line := range strings.Lines(string(text)) {
			switch line = strings.TrimSpace(line); {
			case strings.HasPrefix(line, "=="):
				c = begun(line)
				continue
			case line == "" || c.m == nil || !slices.Contains([]string{"begin", "leave", "end", "alarm", "up", "down", "count", "exit", "refused", "later", "change", "old"}, strings.Fields(line)[0]):
				continue
			}
			before := *c.m
			if _, err := c.hear(line); err != nil {
				t.Fatal(err)
			}
			for _, r := range table {
				if r.in == before.state && (r.to == c.m.state || r.to == Ready) && c.matches(before, r, line) {
					shown[fmt.Sprintf("%v + %v", r.in, r.upon)] = true
				}
			}
		}
	}
	for _, r := range table {
		if row := fmt.Sprintf("%v + %v", r.in, r.upon); !shown[row] {
			t.Errorf("no conversation shows %s", row)
		}
	}
}

// matches reports whether the line is the input of the row.
func (c *conversation) matches(before Machine, r transition, line string) bool {
	word, rest, _ := strings.Cut(line, " ")
	switch r.upon {
	case exited:
		return line == "exit 0"
	case failed, hopeless:
		return word == "exit" && (c.m.tries == 0 && before.revision == before.good) == (r.upon == hopeless)
	case late:
		return word == "down" && c.now.Sub(before.began) >= before.policy.Replace
	case down:
		return word == "down" && (r.in != Replacing || c.now.Sub(before.began) < before.policy.Replace)
	case gone:
		return word == "old"
	case crashed, exhausted:
		exhaustedNow := word == "refused" || c.m.crashes > before.policy.Restarts
		return (word == "exit" && rest != "0" || word == "refused") && exhaustedNow == (r.upon == exhausted)
	case busy:
		return word == "count"
	case drained:
		return word == "count" || word == "alarm"
	default:
	}
	return word == r.upon.String()
}

// ignored are inputs that come late or too early and change nothing: answers of a process that has moved on, requests
// that are under way or not possible.
var ignored = []struct {
	in   State
	upon []input
}{
	{Idle, []input{leave, change}},
	{Starting, []input{leave, busy, drained, change}}, // the change is taken up when Envoy is ready
	{Ready, []input{busy, drained}},
	{Replacing, []input{leave, busy, drained, change}},
	{Retiring, []input{up, down, busy, drained, change}},
	{Holding, []input{up, down, leave, busy, drained}},
	{Leaving, []input{up, down, leave, busy, drained, change, gone}},
	{BackingOff, []input{up, down, leave, busy, drained, change}},
	{Checking, []input{leave, busy, drained, change}},
	{Draining, []input{up, down, leave, change, gone}},
	{Exiting, []input{up, down, leave, busy, drained, change, gone}},
	{Stopped, []input{up, down, leave, end, busy, drained, change}},
}
