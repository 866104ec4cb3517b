package casefile

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	cases, err := Parse("a.txt", "# About.\n\n== a/b: what it is\nstack dual\nproxy 0:7\nusers x:1:2\n> exec true\n> capture A=1 -b '8080, 9090' '' ?? no\\d\nexit 0\n~ exit 1\n> capture:7 -n\nexit 0\n")
	if err != nil || len(cases) != 1 || len(cases[0].Steps) != 3 {
		t.Fatalf("Parse = %+v, %v", cases, err)
	}
	c := cases[0]
	if c.Name != "a/b" || c.Title != "what it is" || c.Stack != "dual" || c.UID != 0 || c.GID != 7 || c.Users[0] != "x:1:2" {
		t.Errorf("the case is %+v", c)
	}
	s := c.Steps[1]
	if s.Verb != "capture" || strings.Join(s.Args, "|") != "-b|8080, 9090|" || s.Env[0] != "A=1" || !s.Says.MatchString("no1") || s.Want != "exit 0" || s.Istio != "exit 1" {
		t.Errorf("the step is %+v", s)
	}
	if c.Steps[2].UID != 7 {
		t.Errorf("the last step runs as %d", c.Steps[2].UID)
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"stack v4\n":                    "a.txt:1: this line belongs to no case",
		"== a\n":                        "a.txt:1: a case begins with",
		"== a: b\nstack v5\n":           "a.txt:2: stack is v4, v6 or dual",
		"== a: b\ncolour red\n":         `a.txt:2: there is no property "colour"`,
		"== a: b\n> same\n":             `a.txt:2: "same": steps are followed by`,
		"== a: b\n> mark\nexit 0\n":     `a.txt:2: "mark": steps are followed by`,
		"== a: b\n> same\nx\ny\n":       "a.txt:4: a step meets one thing",
		"== a: b\n> clean 'x\nexit 0\n": "a.txt:2: the step",
	} {
		if _, err := Parse("a.txt", text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
