package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/repo"
)

// link matches the target of a link in Markdown.
var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// TestLinks: every link from one file of the repository to another leads to a file, and to a heading of it.
func TestLinks(t *testing.T) {
	root, err := repo.Root()
	must(t, err)
	found := 0
	for _, page := range markdown(t, root) {
		text, err := os.ReadFile(page)
		must(t, err)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			found++
			if reason := broken(page, string(text), m[1]); reason != "" {
				t.Errorf("%s: %s: %s", strings.TrimPrefix(page, root+"/"), m[1], reason)
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d links", found)
	}
}

// inCode matches the path of a folder or file of the repository in the text of a page.
var inCode = regexp.MustCompile("`((?:internal|cmd|test|samples|manifests|packaging)/[a-z0-9/._-]+)`")

// TestPaths: every path of the repository that a page names exists.
func TestPaths(t *testing.T) {
	root, err := repo.Root()
	must(t, err)
	found := 0
	for _, page := range markdown(t, root) {
		text, err := os.ReadFile(page)
		must(t, err)
		for _, m := range inCode.FindAllStringSubmatch(string(text), -1) {
			found++
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s: there is no %s", strings.TrimPrefix(page, root+"/"), m[1])
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d paths", found)
	}
}

// markdown returns the pages of the repository's root and of doc.
func markdown(t *testing.T, root string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(root, "*.md"))
	must(t, err)
	must(t, filepath.WalkDir(filepath.Join(root, "doc"), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") {
			list = append(list, path)
		}
		return err
	}))
	return list
}

// broken returns why a link of a page leads nowhere.
func broken(page, text, target string) string {
	path, heading, _ := strings.Cut(target, "#")
	if path != "" {
		path = filepath.Join(filepath.Dir(page), path)
		content, err := os.ReadFile(path)
		if info, statErr := os.Stat(path); statErr == nil && info.IsDir() {
			return ""
		}
		if err != nil {
			return "there is no such file"
		}
		text = string(content)
	}
	if heading == "" || !strings.HasSuffix(path, ".md") && path != "" {
		return ""
	}
	for line := range strings.Lines(text) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") && anchor(title) == heading {
			return ""
		}
	}
	return "the page has no such heading"
}

var unspoken = regexp.MustCompile(`[^a-z0-9 _-]`)

// anchor is the name that forges give a heading.
func anchor(title string) string {
	return strings.ReplaceAll(unspoken.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), ""), " ", "-")
}

// TestIndex: doc/README.md leads to every page of doc.
func TestIndex(t *testing.T) {
	root, err := repo.Root()
	must(t, err)
	index, err := os.ReadFile(filepath.Join(root, "doc", "README.md"))
	must(t, err)
	list, err := filepath.Glob(filepath.Join(root, "doc", "*.md"))
	must(t, err)
	for _, page := range list {
		if name := filepath.Base(page); name != "README.md" && !strings.Contains(string(index), "]("+name+")") {
			t.Errorf("doc/README.md has no link to %s", name)
		}
	}
}
