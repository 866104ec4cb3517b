package protocol

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRulesAreShown checks that a conversation of each variant shows every rule of testdata/rules.txt, or that a Go test names it.
func TestRulesAreShown(t *testing.T) {
	shown := map[string]bool{}
	files, err := filepath.Glob("testdata/*.txt")
	must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		for _, line := range strings.Split(string(text), "\n") {
			head, ok := strings.CutPrefix(line, "== ")
			if !ok {
				continue
			}
			variant, rules, _ := strings.Cut(head, ":")
			for _, r := range strings.Fields(rules) {
				shown[r+" "+variant] = true
			}
		}
	}
	var code strings.Builder
	var tests []string
	for _, dir := range []string{".", "../request", "../server"} {
		more, err := filepath.Glob(dir + "/*_test.go")
		must(t, err)
		tests = append(tests, more...)
	}
	for _, file := range tests {
		text, err := os.ReadFile(file)
		must(t, err)
		code.Write(text)
	}
	text, err := os.ReadFile("testdata/rules.txt")
	must(t, err)
	n := 0
	for _, line := range strings.Split(string(text), "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		rule := fields[0]
		for _, variant := range fields[1:] {
			n++
			if !shown[rule+" "+variant] && (variant != "go" || !strings.Contains(code.String(), rule)) {
				t.Errorf("nothing shows %s (%s)", rule, variant)
			}
		}
	}
	if n < 200 {
		t.Errorf("only %d rules are listed", n)
	}
}
