package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// checker checks the source of one package and collects violations of rules, as "file:line: violation; remedy".
type checker struct {
	pkg     string // below internal/
	program bool   // a main package under cmd
	fset    *token.FileSet
	files   []*ast.File // without tests
	lines   int
	doc     string // the package comment
	names   int    // exported
	found   []string
}

func newChecker(pkg string) *checker { return &checker{pkg: pkg, fset: token.NewFileSet()} }

func (c *checker) report(pos token.Pos, format string, args ...any) {
	p := c.fset.Position(pos)
	c.found = append(c.found, fmt.Sprintf("%s:%d: %s", p.Filename, p.Line, fmt.Sprintf(format, args...)))
}

// file reads and checks one file. In tests it only finds code that makes them slow, flaky or endless.
func (c *checker) file(t *testing.T, path string, test bool) {
	t.Helper()
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if top, err := filepath.Abs(root); err == nil {
		if rel, err := filepath.Rel(top, path); err == nil {
			path = rel // findings name files as seen from the repository's top
		}
	}
	c.source(t, path, src, test)
}

func (c *checker) source(t *testing.T, path string, src []byte, test bool) {
	t.Helper()
	f, err := parser.ParseFile(c.fset, path, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Errorf("%s does not parse: %v", path, err)
		return
	}
	if test {
		c.bannedCalls(f, true)
		for _, d := range f.Decls {
			if d, ok := d.(*ast.FuncDecl); ok {
				c.length(d)
			}
		}
		return
	}
	if ast.IsGenerated(f) {
		return
	}
	lines := bytes.Count(src, []byte("\n"))
	if lines > fileLines {
		c.report(f.Pos(), "the file has %d lines, the budget is %d: split it by idea", lines, fileLines)
	}
	c.lines += lines
	c.doc += f.Doc.Text()
	c.files = append(c.files, f)
	c.bannedCalls(f, false)
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			c.function(d)
		case *ast.GenDecl:
			c.declaration(d)
		}
	}
}

// finish checks the rules that need the whole package and returns all findings.
func (c *checker) finish() []string {
	if len(c.files) == 0 {
		return c.found
	}
	if c.lines > packageLines {
		c.report(c.files[0].Package, "the package has %d lines, the budget is %d: it holds two packages", c.lines, packageLines)
	}
	if c.names > exportedNames && !c.program && !strings.Contains(strings.Join(strings.Fields(c.doc), " "), manyNames) {
		c.report(c.files[0].Package, "the package exports %d names, the budget is %d: split it, or say why in the package comment, in a sentence that begins with %q", c.names, exportedNames, manyNames)
	}
	if len(strings.Fields(c.doc)) < 8 {
		c.report(c.files[0].Package, "package %s has no package comment: say what it owns, its invariants, its goroutines, and what it must not import", c.files[0].Name.Name)
	}
	c.state()
	return c.found
}

func (c *checker) length(d *ast.FuncDecl) {
	if lines := c.line(d.End()) - c.line(d.Pos()) + 1; lines > functionLines {
		c.report(d.Pos(), "%s has %d lines, the budget is %d: split it by idea", d.Name.Name, lines, functionLines)
	}
}

func (c *checker) function(d *ast.FuncDecl) {
	c.length(d)
	if d.Name.IsExported() && d.Recv == nil {
		c.names++
	}
	if d.Recv == nil && d.Name.Name == "init" {
		c.report(d.Pos(), "init runs behind everybody's back: let the program call a constructor")
	}
	if d.Name.IsExported() && d.Doc == nil && !c.program && !slices.Contains(selfEvident, d.Name.Name) && (d.Recv == nil || ast.IsExported(receiver(d))) {
		c.report(d.Pos(), "%s has no doc comment", d.Name.Name)
	}
}

// receiver names the type a method belongs to.
func receiver(d *ast.FuncDecl) string {
	name := ""
	ast.Inspect(d.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return name == ""
	})
	return name
}

func (c *checker) declaration(d *ast.GenDecl) {
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() {
				c.names++
			}
			for _, suffix := range bannedSuffixes {
				if strings.HasSuffix(s.Name.Name, suffix) && s.Name.Name != suffix {
					c.report(s.Pos(), "the name %s ends in %s, which says nothing: name the type after what it is", s.Name.Name, suffix)
				}
			}
			if s.Name.IsExported() && s.Doc == nil && d.Doc == nil && !c.program {
				c.report(s.Pos(), "%s has no doc comment", s.Name.Name)
			}
		case *ast.ValueSpec:
			for _, n := range s.Names {
				if n.IsExported() {
					c.names++
				}
				if n.IsExported() && s.Doc == nil && s.Comment == nil && d.Doc == nil && !c.program {
					c.report(n.Pos(), "%s has no doc comment", n.Name)
				}
			}
		}
	}
}

// bannedCalls finds calls that are banned, and goroutines without an owner.
func (c *checker) bannedCalls(f *ast.File, test bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			if !test && !c.program && goroutines[c.pkg] == "" {
				c.report(n.Pos(), "a bare go statement: nobody waits for it or stops it; make it an actor of package run, or add %s to goroutines in test/arch/rules_test.go with the reason", c.pkg)
			}
		case *ast.SelectorExpr:
			c.selector(f, n, test)
		}
		return true
	})
}

func (c *checker) selector(f *ast.File, n *ast.SelectorExpr, test bool) {
	for _, w := range writes {
		if n.Sel.Name == w.method && !test && !c.program && !matches(w.only, c.pkg) && imported(f, module+"internal/"+w.declaredIn) != "" {
			c.report(n.Pos(), "%s.%s outside [%s]: only package loop opens transactions; hand it a batch", w.declaredIn, w.method, w.only)
		}
	}
	id, ok := n.X.(*ast.Ident)
	if !ok {
		return
	}
	for _, b := range calls {
		if n.Sel.Name != b.name || imported(f, b.path) != id.Name {
			continue
		}
		if b.name == "Sleep" || !test && !c.program && !matches(b.only, c.pkg) {
			c.report(n.Pos(), "%s.%s: %s", b.path, b.name, b.remedy)
		}
	}
}

// imported returns the name under which f imports path, or "".
func imported(f *ast.File, path string) string {
	for _, i := range f.Imports {
		if p, _ := strconv.Unquote(i.Path.Value); p == path {
			if i.Name != nil {
				return i.Name.Name
			}
			return path[strings.LastIndex(path, "/")+1:]
		}
	}
	return ""
}

// state finds package-level variables that can change. Errors, compiled expressions, embedded files, values computed at
// first use, and tables that nothing in the package writes to are constants in all but name.
func (c *checker) state() {
	if c.program {
		return
	}
	written := c.written()
	for _, f := range c.files {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			embedded := g.Doc != nil && slices.ContainsFunc(g.Doc.List, func(l *ast.Comment) bool { return strings.HasPrefix(l.Text, "//go:embed") })
			for _, s := range g.Specs {
				v := s.(*ast.ValueSpec)
				for i, n := range v.Names {
					switch {
					case n.Name == "_" || embedded:
					case written[n.Name]:
						c.report(n.Pos(), "package-level state: %s is written to; make it a field of the value that owns it", n.Name)
					case i >= len(v.Values) || !constant(v.Values[i]):
						c.report(n.Pos(), "package-level state: %s can change; make it a constant, or a field of the value that owns it", n.Name)
					}
				}
			}
		}
	}
}

// constant reports whether a value is one that only an assignment could change.
func constant(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.CompositeLit, *ast.BasicLit, *ast.FuncLit:
		return true
	case *ast.CallExpr:
		switch f := e.Fun.(type) {
		case *ast.SelectorExpr:
			id, ok := f.X.(*ast.Ident)
			return ok && slices.Contains([]string{"errors.New", "fmt.Errorf", "regexp.MustCompile", "strings.NewReplacer", "sync.OnceValue", "netip.MustParsePrefix", "netip.MustParseAddr"}, id.Name+"."+f.Sel.Name)
		case *ast.ArrayType: // []byte("...")
			return true
		}
	}
	return false
}

// written collects the names that some statement of the package assigns to, through an index or field too, takes the
// address of, or hands to a builtin that writes. A local variable of the same name counts: rename it.
func (c *checker) written() map[string]bool {
	names := map[string]bool{}
	mark := func(e ast.Expr) {
		for e != nil {
			switch x := e.(type) {
			case *ast.IndexExpr:
				e = x.X
			case *ast.SelectorExpr:
				e = x.X
			case *ast.StarExpr:
				e = x.X
			case *ast.Ident:
				names[x.Name] = true
				return
			default:
				return
			}
		}
	}
	for _, f := range c.files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, l := range n.Lhs {
					if n.Tok != token.DEFINE {
						mark(l)
					}
				}
			case *ast.IncDecStmt:
				mark(n.X)
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					mark(n.X)
				}
			case *ast.CallExpr:
				if id, ok := n.Fun.(*ast.Ident); ok && slices.Contains([]string{"delete", "clear", "copy"}, id.Name) && len(n.Args) > 0 {
					mark(n.Args[0])
				}
			}
			return true
		})
	}
	return names
}

func (c *checker) line(p token.Pos) int { return c.fset.Position(p).Line }
