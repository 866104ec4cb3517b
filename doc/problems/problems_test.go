package problems_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/doc/problems"
	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/code"
	"github.com/pilotmesh/pilot/internal/explain/analyze"
)

var update = flag.Bool("update", false, "rewrite the lines that the examples raise")

const root = "../.."

// block matches a block of code: the first group is its language, the second one its text.
var block = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// page is the page of a code.
type page struct {
	code.Entry
	file, text string
	// example, lines and fix are the documents of the example, the lines that they raise, and the corrected documents. There is no example if
	// the Problem cannot come from files.
	example, lines, fix string
}

func read(t *testing.T, e code.Entry) page {
	t.Helper()
	p := page{Entry: e, file: string(e.Code) + ".md"}
	text, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatalf("%s has no page: write doc/problems/%s, like the ones beside it: %v", e.Code, p.file, err)
	}
	p.text = string(text)
	var documents []string
	for _, b := range block.FindAllStringSubmatch(p.text, -1) {
		switch {
		case b[1] == "yaml":
			documents = append(documents, b[2])
		case p.lines == "":
			p.lines = b[2]
		}
	}
	switch len(documents) {
	case 0:
	case 2:
		p.example, p.fix = documents[0], documents[1]
	default:
		t.Fatalf("%s has %d blocks of YAML, want the example and the fix, or none", p.file, len(documents))
	}
	return p
}

// comments match the comments of pages for tests: <!-- WORD REST -->.
var comments = regexp.MustCompile(`(?m)^<!-- (with|raised by) (.*) -->$`)

// note returns the words of a page's comments that begin with a word.
func (p page) note(word string) (list []string) {
	for _, m := range comments.FindAllStringSubmatch(p.text, -1) {
		if m[1] == word {
			list = append(list, strings.Fields(m[2])...)
		}
	}
	return list
}

// TestPages: each code has a page with its meaning and remedy, and its links lead somewhere; no page is about another code.
func TestPages(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#]+)`)
	for _, e := range code.All() {
		p := read(t, e)
		head := fmt.Sprintf("# %s\n\n**%s**: %s\n\n", e.Code, e.Level, e.Meaning)
		if !strings.HasPrefix(p.text, head) || !strings.Contains(p.text, "\n## Fix\n\n"+e.Remedy) || p.lines == "" {
			t.Errorf("%s must begin with %q, have a line under `## Example`, and begin `## Fix` with %q", p.file, head, e.Remedy)
		}
		for _, m := range link.FindAllStringSubmatch(p.text, -1) {
			if _, err := os.Stat(m[1]); err != nil {
				t.Errorf("%s: a link leads nowhere: %v", p.file, err)
			}
		}
		if text, ok := problems.Page(string(e.Code)); !ok || !strings.Contains(text, "## Fix") || strings.Contains(text, "<!--") {
			t.Errorf("Page(%s) is %t, %q", e.Code, ok, text)
		}
	}
	files, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if _, ok := code.Find(code.Code(strings.TrimSuffix(file, ".md"))); !ok {
			t.Errorf("%s is the page of no code", file)
		}
	}
	if _, ok := problems.Page("no-such-code"); ok {
		t.Error("there is a page of a code that does not exist")
	}
}

// TestExamples: the example of a page raises the code of the page with the line on the page, and no other code, unless the page names it. The
// fix raises nothing.
func TestExamples(t *testing.T) {
	for _, e := range code.All() {
		p := read(t, e)
		if p.example == "" {
			continue
		}
		t.Run(string(e.Code), func(t *testing.T) {
			found := analysed(p.example)
			if got := printed(found); got != p.lines {
				if *update {
					p.write(t, got)
				} else {
					t.Errorf("the example raises\n%swant\n%srun with -update if that is meant", got, p.lines)
				}
			}
			own := slices.ContainsFunc(found, func(one api.Problem) bool { return one.Code == e.Code })
			for _, one := range found {
				if one.Code != e.Code && !slices.Contains(p.note("with"), string(one.Code)) {
					t.Errorf("the example raises %s, too:\n%s", one.Code, printed(found))
				}
			}
			if !own {
				t.Errorf("the example does not raise %s:\n%s", e.Code, printed(found))
			}
			if rest := analysed(p.fix); len(rest) > 0 {
				t.Errorf("the fix raises\n%s", printed(rest))
			}
		})
	}
}

// write replaces the lines of a page.
func (p page) write(t *testing.T, lines string) {
	t.Helper()
	text := strings.Replace(p.text, "```\n"+p.lines+"```\n", "```\n"+lines+"```\n", 1)
	if err := os.WriteFile(p.file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// analysed returns what pilotctl analyze finds in a file.
func analysed(text string) []api.Problem {
	a := analyze.New()
	a.File("example.yaml", []byte(text))
	return a.AllProblems("cluster.local")
}

// printed returns problems as pilotctl analyze prints them.
func printed(list []api.Problem) string {
	var b strings.Builder
	for _, p := range list {
		line := p.String()
		if p.Position.Column > 0 {
			at := p.Position.String()
			line = fmt.Sprintf("%s:%d%s", at, p.Position.Column, strings.TrimPrefix(line, at))
		}
		fmt.Fprintf(&b, "%s [%s]\n", line, p.Code)
	}
	return b.String()
}

// position matches the position that begins a line, and end the code that ends it.
var position, end = regexp.MustCompile(`^[^ ]+:\d+(:\d+)?: `), regexp.MustCompile(` \[[a-z-]+\]\n$`)

// TestRaised: a page without an example names the test that raises the Problem, and its line is of the code. If the page names the golden file of the test
// as well, the line is in it.
func TestRaised(t *testing.T) {
	for _, e := range code.All() {
		p := read(t, e)
		tests := p.note("raised by")
		if (p.example == "") != (len(tests) == 2 || len(tests) == 3) {
			t.Errorf("%s needs an example in YAML, or a line <!-- raised by FOLDER TEST [FILE] -->", p.file)
		}
		if len(tests) < 2 {
			continue
		}
		if !strings.HasSuffix(p.lines, "["+string(e.Code)+"]\n") || !strings.Contains(p.lines, strings.Fields(string(e.Level))[0]+": ") && e.Level != code.Either {
			t.Errorf("%s: the line is not of the code and its level: %s", p.file, p.lines)
		}
		if !exists(t, tests[0], tests[1]) {
			t.Errorf("%s: there is no test %s in %s", p.file, tests[1], tests[0])
		}
		if len(tests) == 3 {
			golden, err := os.ReadFile(filepath.Join(root, tests[0], tests[2]))
			if line := end.ReplaceAllString(position.ReplaceAllString(p.lines, ""), ""); err != nil || !strings.Contains(string(golden), line) {
				t.Errorf("%s: the line is not in %s (%v): %s", p.file, tests[2], err, line)
			}
		}
	}
}

// exists reports whether a folder has a test.
func exists(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "\nfunc "+name+"(t *testing.T)")
	})
}
