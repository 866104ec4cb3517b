package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/repo"
)

// term matches a word that the glossary defines.
var term = regexp.MustCompile(`\*\*([^*]+)\*\*`)

// TestGlossary: the glossary defines each word once, whatever its spelling: "back end" is the word "backend".
func TestGlossary(t *testing.T) {
	root, err := repo.Root()
	must(t, err)
	text, err := os.ReadFile(filepath.Join(root, "doc", "glossary.md"))
	must(t, err)
	lines := map[string]int{}
	for i, line := range strings.Split(string(text), "\n") {
		for _, m := range term.FindAllStringSubmatch(line, -1) {
			word := strings.NewReplacer(" ", "", "-", "").Replace(strings.ToLower(m[1]))
			if first, ok := lines[word]; ok {
				t.Errorf("doc/glossary.md:%d: %q is defined in line %d already: list both senses in one entry", i+1, m[1], first)
			}
			lines[word] = i + 1
		}
	}
	if len(lines) < 100 {
		t.Errorf("only %d words", len(lines))
	}
}
