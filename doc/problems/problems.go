// Package problems holds the page of each code of a Problem, CODE.md: its meaning, an example, the line that users see, and the fix.
// pilotctl explain CODE prints it. The examples are the fixtures of the codes: the tests of the package analyse them.
//
// The package is pure and starts no goroutines.
package problems

import (
	"embed"
	"strings"
)

//go:embed *.md
var pages embed.FS

// Page returns the page of a code, without the comments for tests.
func Page(code string) (string, bool) {
	text, err := pages.ReadFile(code + ".md")
	if err != nil {
		return "", false
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "<!--") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, ""), true
}
