package docs

import (
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/repo"
)

// page is a page with blocks of each kind.
const page = "# Title\n\n```console\n$ one \\\n    more\nfirst\n\nsecond\n$ two\n```\n\n<!-- run by: TestX in a -->\n\n```console\n$ three\n```\n\n" +
	"```yaml\n# mesh/a.yaml\nkind: A\n```\n\n```yaml\nkind: B\n```\n"

func TestParse(t *testing.T) {
	blocks, err := parse(page)
	must(t, err)
	var got []string
	for _, b := range blocks {
		got = append(got, b.lang+"|"+b.mark+"|"+b.file())
	}
	if want := []string{"console||", "console|run by: TestX in a|", "yaml||mesh/a.yaml", "yaml||"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	steps, err := blocks[0].steps()
	must(t, err)
	if len(steps) != 2 || steps[0].command != "one \\\n    more" || !slices.Equal(steps[0].output, []string{"first", "", "second"}) || steps[1].output != nil {
		t.Errorf("got %+v", steps)
	}
	if _, err := (block{lines: []string{"output"}}).steps(); err == nil {
		t.Error("output without a command is accepted")
	}
	if _, err := parse("```\nopen"); err == nil {
		t.Error("a block without an end is accepted")
	}
	if got := rewrite(page, map[int]outcome{steps[0].line: {output: []string{"real"}}}); !strings.Contains(got, "more\nreal\n$ two\n") {
		t.Errorf("rewritten:\n%s", got)
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		shown, printed string
		want           bool
	}{
		{"a\nb", "a\nb", true},
		{"a\nb", "a", false},
		{"a", "a\nb", false},
		{"", "a", false},
		{"...", "a\nb", true},
		{"a\n...\nc", "a\nb\nb\nc", true},
		{"a\n...\nc", "a\nc", true},
		{"a\n...", "b", false},
		{"took ... s", "took 12 s", true},
		{"took ... s", "took 12 min", false},
		{"a.b", "axb", false},
		{"a", "a ", true},
		{"a\nb", "a\r\nb\r", true},
	} {
		if got := matches(strings.Split(c.shown, "\n"), strings.Split(c.printed, "\n")); got != c.want {
			t.Errorf("%q and %q: %v", c.shown, c.printed, got)
		}
	}
}

// TestScript: the outcome of each command has its own output and its own exit code, and $? is the one of the command before.
func TestScript(t *testing.T) {
	root, err := repo.Root()
	must(t, err)
	text, steps, err := script([]block{
		{lang: "yaml", lines: []string{"# mesh/a.yaml", "kind: A"}},
		{lang: "console", lines: []string{"$ cat mesh/a.yaml", "$ false", "$ echo $?; x=1", "$ echo $x"}},
		{lang: "console", mark: "not run: a reason", lines: []string{"$ exit 3"}},
	})
	must(t, err)
	p := programs{root: root, bin: t.TempDir()}
	got := outcomes(p.run(t, text))
	if len(steps) != 4 || len(got) != 4 {
		t.Fatalf("%d steps, %d outcomes", len(steps), len(got))
	}
	for i, want := range []outcome{{[]string{"# mesh/a.yaml", "kind: A"}, 0}, {nil, 1}, {[]string{"1"}, 0}, {[]string{"1"}, 0}} {
		if !slices.Equal(got[i].output, want.output) || got[i].code != want.code {
			t.Errorf("command %d: got %+v, want %+v", i, got[i], want)
		}
	}
}

func TestMissing(t *testing.T) {
	root, err := repo.Root()
	must(t, err)
	for mark, want := range map[string]string{
		"TestMissing in test/docs":  "",
		"step demo of make test":    "",
		"TestNothing in test/docs":  "there is no test",
		"step nothing of make test": "there is no test",
		"some test":                 "is neither",
	} {
		if got := missing(root, mark); got != want && (want == "" || !strings.Contains(got, want)) {
			t.Errorf("%s: %q", mark, got)
		}
	}
}

func TestBroken(t *testing.T) {
	root, err := repo.Root()
	must(t, err)
	text := "# Top\n\n## What happens if …\n"
	for target, bad := range map[string]bool{
		"README.md": false, "doc": false, "#top": false, "#what-happens-if-": false, "nowhere.md": true, "#nowhere": true, "README.md#nowhere": true,
	} {
		if got := broken(root+"/X.md", text, target); (got != "") != bad {
			t.Errorf("%s: %q", target, got)
		}
	}
}
