package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/repo"
)

// TestDebugPages: doc/debug-pages.md has exactly the pages that the control plane and the agent register.
func TestDebugPages(t *testing.T) {
	root, err := repo.Root()
	must(t, err)
	text, err := os.ReadFile(filepath.Join(root, "doc", "debug-pages.md"))
	must(t, err)
	control, agent, found := strings.Cut(string(text), "\n## Agent\n")
	if !found {
		t.Fatal("doc/debug-pages.md has no part about the agent")
	}
	for _, part := range []struct{ text, folder string }{{control, "internal/admin"}, {agent, "internal/agent/status"}} {
		served, shown := registered(t, filepath.Join(root, part.folder)), tabled(part.text)
		for path := range served {
			if !shown[path] {
				t.Errorf("doc/debug-pages.md does not have %s of %s", path, part.folder)
			}
		}
		for path := range shown {
			if !served[path] {
				t.Errorf("doc/debug-pages.md has %s, which %s does not serve", path, part.folder)
			}
		}
		if len(served) < 8 {
			t.Errorf("%s registers only %d pages", part.folder, len(served))
		}
	}
}

// pageName matches a page in a table.
var pageName = regexp.MustCompile("`(/[a-z][a-z_/-]*)`")

// tabled returns the pages that the rows of tables name.
func tabled(text string) map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "| `/") {
			for _, m := range pageName.FindAllStringSubmatch(line, -1) {
				all[m[1]] = true
			}
		}
	}
	return all
}

// pattern matches the pattern of a handler, or the path of a page in a list.
var pattern = regexp.MustCompile(`^(?:[A-Z]+ )?(/[a-z][a-z_/-]*)(?:\{.*)?$`)

// registered returns the paths in calls of Handle and HandleFunc, and of the list of pages. Constants of other packages are probes.
func registered(t *testing.T, folder string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	add := func(e ast.Expr) {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, err := strconv.Unquote(lit.Value)
			must(t, err)
			if m := pattern.FindStringSubmatch(text); m != nil && m[1] != "/debug/" {
				all[m[1]] = true
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	must(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		must(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.SelectorExpr); ok && len(n.Args) == 2 && (f.Sel.Name == "Handle" || f.Sel.Name == "HandleFunc") {
					add(n.Args[0])
					if sum, ok := n.Args[0].(*ast.BinaryExpr); ok { // "GET " and a constant of package probe
						all[probePath(t, folder, sum.Y)] = true
					}
				}
			case *ast.CompositeLit: // {"/debug/syncz", "…", …}
				if len(n.Elts) > 3 {
					add(n.Elts[0])
				}
			}
			return true
		})
	}
	delete(all, "")
	return all
}

// probePath returns the value of a constant of package probe; "" for other expressions.
func probePath(t *testing.T, folder string, e ast.Expr) string {
	t.Helper()
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if of, ok := s.X.(*ast.Ident); !ok || of.Name != "probe" {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(folder, "..", "probe", "probe.go"))
	must(t, err)
	m := regexp.MustCompile(s.Sel.Name + `\s*= "(.*)"`).FindStringSubmatch(string(text))
	if m == nil {
		t.Fatalf("package probe has no constant %s", s.Sel.Name)
	}
	return m[1]
}
