package code

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the table of doc/problems.md")

const top = "../../.."

// TestDocumentation: the page lists exactly the existing codes, with their meaning and remedy.
func TestDocumentation(t *testing.T) {
	const page, from = top + "/doc/problems.md", "| Code | Level |"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(text), from)
	if at < 0 {
		t.Fatalf("%s has no table that begins with %q", page, from)
	}
	if want := string(text[:at]) + markdown(); want != string(text) {
		if !*update {
			t.Fatalf("the table of %s is not the list of codes; run `go test ./internal/api/code -update`", page)
		}
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestForm: a code consists of words in lower case, is listed once, and has a meaning and a remedy, which are sentences.
func TestForm(t *testing.T) {
	form, seen := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`), map[Code]bool{}
	for _, e := range All() {
		if !form.MatchString(string(e.Code)) || seen[e.Code] {
			t.Errorf("%q is no code, or there twice", e.Code)
		}
		seen[e.Code] = true
		for _, s := range []string{e.Meaning, e.Remedy} {
			if !strings.HasSuffix(s, ".") || strings.Contains(s, "|") {
				t.Errorf("%s: %q is no sentence for a table", e.Code, s)
			}
		}
		if got, ok := Find(e.Code); !ok || got != e {
			t.Errorf("%s is not found", e.Code)
		}
	}
	if _, ok := Find("no-such-code"); ok {
		t.Error("a code is found that does not exist")
	}
}

// raised are the codes that the sources of the programs mention. A Problem without a code, or with one that is not in the list, is an error.
func raised(t *testing.T) map[Code]bool {
	t.Helper()
	used := map[Code]bool{}
	check := func(at token.Position, e ast.Expr) {
		l, ok := e.(*ast.BasicLit)
		if !ok || l.Kind != token.STRING {
			return // a variable: its literal is elsewhere
		}
		c, _ := strconv.Unquote(l.Value)
		if _, ok := Find(Code(c)); !ok {
			t.Errorf("%v: %q is in no list of package code", at, c)
		}
		used[Code(c)] = true
	}
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != top && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "test" || d.Name() == "code"):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		inspect(t, files, f, strings.Contains(path, "internal/view/problem/"), check)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return used
}

// inspect passes each code that a file mentions to check. checks is true for the package whose functions take codes.
func inspect(t *testing.T, files *token.FileSet, f *ast.File, checks bool, check func(token.Position, ast.Expr)) {
	t.Helper()
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			literal(t, files.Position(n.Pos()), n, check)
		case *ast.CallExpr:
			call(files.Position(n.Pos()), n, checks, check)
		case *ast.AssignStmt: // p.Code = "…", and several at once
			for i, to := range n.Lhs {
				if s, ok := to.(*ast.SelectorExpr); ok && s.Sel.Name == "Code" && len(n.Rhs) == len(n.Lhs) {
					check(files.Position(n.Pos()), n.Rhs[i])
				}
			}
		}
		return true
	})
}

// call checks the codes among the arguments of a call.
func call(at token.Position, n *ast.CallExpr, checks bool, check func(token.Position, ast.Expr)) {
	name := ""
	switch fun := n.Fun.(type) {
	case *ast.SelectorExpr:
		name = fun.Sel.Name
	case *ast.Ident:
		name = fun.Name
	}
	switch {
	case len(n.Args) == 0:
	case name == "Mark", name == "Code", checks && (name == "fail" || name == "note" || name == "warn" || name == "conflict" || name == "report"):
		check(at, n.Args[0])
	case name == "Or":
		for _, a := range n.Args[1:] {
			if l, ok := a.(*ast.BasicLit); ok && strings.HasPrefix(l.Value, `"field-`) {
				check(at, a)
			}
		}
	}
}

// literal checks the code of a Problem that is written as a literal.
func literal(t *testing.T, at token.Position, n *ast.CompositeLit, check func(token.Position, ast.Expr)) {
	t.Helper()
	keys := map[string]ast.Expr{}
	for _, e := range n.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if k, ok := kv.Key.(*ast.Ident); ok {
				keys[k.Name] = kv.Value
			}
		}
	}
	switch {
	case keys["Severity"] == nil || keys["Reason"] == nil: // another type
	case keys["Code"] == nil:
		t.Errorf("%v: a Problem without a code", at)
	default:
		check(at, keys["Code"])
	}
}

// TestEveryProblemHasACode: every Problem has a code of the list, and every code of the list is used.
func TestEveryProblemHasACode(t *testing.T) {
	used := raised(t)
	for _, e := range All() {
		if !used[e.Code] {
			t.Errorf("nothing raises %s", e.Code)
		}
	}
}
