// Package casefile reads the cases of traffic capture: what a workload looks like, the steps that are taken in it, and what each of
// them has to meet. README.md of the folder above describes the form. The package starts no goroutines.
package casefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Case is one rule of capture.
type Case struct {
	Name, Title string
	File        string
	Line        int

	Once        bool     // the case names its back end, or does not depend on it
	Stack       string   // v4, v6 or dual: the addresses of the workload
	Links       []string // eth1: a second way to the world; guest: a virtual machine behind tap0
	Transparent bool     // the proxy's listeners are transparent
	NoProxy     bool     // no process listens for the proxy
	UID, GID    int      // of the proxy
	Resolv      []string // name servers
	Users       []string // name:uid:gid, known as users and groups
	Tools       []string // the programs on PATH; empty for the back end's
	Stays       bool     // do not end with a clean-up

	Steps []Step
}

// Step is one thing that is done.
type Step struct {
	Line   int
	Text   string
	Verb   string
	Args   []string
	Env    []string       // of capture and clean
	UID    int            // of capture
	Says   *regexp.Regexp // what the output of a command has to contain
	Want   string         // what comes of it; empty for steps that are not asked
	Istio  string         // what comes of it with Istio, where that differs
	asking bool
}

// silent are the steps that are not asked: they have to succeed.
var silent = map[string]bool{"exec": true, "mark": true, "lock": true}

var assignment = regexp.MustCompile(`^[A-Z][A-Z0-9_]*=`)

// Load reads all cases of a folder.
func Load(dir string) ([]Case, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	var all []Case
	names := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		cases, err := Parse(filepath.Base(file), string(text))
		if err != nil {
			return nil, err
		}
		for _, c := range cases {
			if other := names[c.Name]; other != "" {
				return nil, fmt.Errorf("%s:%d: the name %s is taken in %s", c.File, c.Line, c.Name, other)
			}
			names[c.Name] = c.File
		}
		all = append(all, cases...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no case in %s", dir)
	}
	return all, nil
}

// Parse reads the cases of one file.
func Parse(file, text string) ([]Case, error) {
	var all []Case
	n := 0
	fail := func(err error) error { return fmt.Errorf("%s:%d: %w", file, n, err) }
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\r\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if head, ok := strings.CutPrefix(line, "== "); ok {
			name, title, ok := strings.Cut(head, ": ")
			if !ok {
				return nil, fail(errors.New("a case begins with == NAME: TITLE"))
			}
			all = append(all, Case{Name: name, Title: title, File: file, Line: n, Stack: "v4", UID: 1337, GID: 1337})
			continue
		}
		if len(all) == 0 {
			return nil, fail(errors.New("this line belongs to no case"))
		}
		if err := all[len(all)-1].line(n, line); err != nil {
			return nil, fail(err)
		}
	}
	for _, c := range all {
		for _, s := range c.Steps {
			if s.asking != (s.Want != "") {
				n = s.Line
				return nil, fail(fmt.Errorf("%q: steps are followed by what comes of them, except exec, mark and lock", s.Text))
			}
		}
	}
	return all, nil
}

// line reads a line of a case.
func (c *Case) line(n int, line string) error {
	if text, ok := strings.CutPrefix(line, "> "); ok {
		s, err := parseStep(text)
		s.Line = n
		c.Steps = append(c.Steps, s)
		return err
	}
	if len(c.Steps) == 0 {
		return c.property(line)
	}
	s := &c.Steps[len(c.Steps)-1]
	if text, ok := strings.CutPrefix(line, "~ "); ok {
		s.Istio = text
		return nil
	}
	if s.Want != "" {
		return errors.New("a step meets one thing")
	}
	s.Want = line
	return nil
}

// property reads a line that says what the workload looks like.
func (c *Case) property(line string) error {
	words := strings.Fields(line)
	rest := words[1:]
	switch words[0] {
	case "once":
		c.Once = true
	case "transparent":
		c.Transparent = true
	case "noproxy":
		c.NoProxy = true
	case "stays":
		c.Stays = true
	case "links":
		c.Links = rest
	case "resolv":
		c.Resolv = rest
	case "users":
		c.Users = rest
	case "tools":
		c.Tools = rest
	case "stack":
		if len(rest) != 1 || rest[0] != "v4" && rest[0] != "v6" && rest[0] != "dual" {
			return errors.New("stack is v4, v6 or dual")
		}
		c.Stack = rest[0]
	case "proxy":
		if n, err := fmt.Sscanf(strings.Join(rest, " "), "%d:%d", &c.UID, &c.GID); n != 2 || err != nil {
			return errors.New("proxy is UID:GID")
		}
	default:
		return fmt.Errorf("there is no property %q", words[0])
	}
	return nil
}

// parseStep reads the words of a step.
func parseStep(text string) (Step, error) {
	s := Step{Text: text}
	body := text
	if head, says, ok := strings.Cut(text, " ?? "); ok {
		re, err := regexp.Compile(says)
		if err != nil {
			return s, err
		}
		body, s.Says = head, re
	}
	words, err := split(body)
	if err != nil || len(words) == 0 {
		return s, fmt.Errorf("the step %q cannot be read", text)
	}
	s.Verb, s.Args = words[0], words[1:]
	if uid, ok := strings.CutPrefix(s.Verb, "capture:"); ok {
		s.Verb = "capture"
		if s.UID, err = strconv.Atoi(uid); err != nil {
			return s, err
		}
	}
	if s.Verb == "capture" || s.Verb == "clean" {
		for len(s.Args) > 0 && assignment.MatchString(s.Args[0]) {
			s.Env, s.Args = append(s.Env, s.Args[0]), s.Args[1:]
		}
	}
	s.asking = !silent[s.Verb]
	return s, nil
}

// split cuts a line into words. Single quotes hold a word together, and make empty words.
func split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	in, quoted := false, false
	for _, r := range line {
		switch {
		case r == '\'':
			quoted, in = !quoted, true
		case r == ' ' && !quoted:
			if in {
				words = append(words, word.String())
			}
			word.Reset()
			in = false
		default:
			word.WriteRune(r)
			in = true
		}
	}
	if quoted {
		return nil, errors.New("a quote is not closed")
	}
	if in {
		words = append(words, word.String())
	}
	return words, nil
}
