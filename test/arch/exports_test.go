package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// name is a package-level name: the import path of its package, and the identifier.
type name struct{ pkg, ident string }

// exports collects the exported names below internal, and the names that files of other packages use. An external test of a package is
// another package.
type exports struct {
	declared map[name]token.Position
	used     map[name]bool
	files    *token.FileSet
}

// TestExports: a name is exported only if another package uses it, or if it is a type in the declaration of an exported name.
func TestExports(t *testing.T) {
	e := exports{declared: map[name]token.Position{}, used: map[name]bool{}, files: token.NewFileSet()}
	err := filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if hidden := strings.HasPrefix(d.Name(), ".") && at != root; hidden || d.Name() == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(at, ".go") {
			return nil
		}
		return e.read(at)
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(e.declared) < 1000 {
		t.Fatalf("%d exported names: the test does not see the project", len(e.declared))
	}
	for _, finding := range e.findings() {
		t.Error(finding)
	}
}

// read adds one file.
func (e *exports) read(at string) error {
	f, err := parser.ParseFile(e.files, at, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	below, err := filepath.Rel(root, filepath.Dir(at))
	if err != nil {
		return err
	}
	e.file(module+filepath.ToSlash(below), strings.HasSuffix(at, "_test.go"), f)
	return nil
}

// file adds one file of a package.
func (e *exports) file(pkg string, test bool, f *ast.File) {
	imported := map[string]string{} // import paths of this project, by the name in the file
	for _, i := range f.Imports {
		p := strings.Trim(i.Path.Value, `"`)
		if !strings.HasPrefix(p, module) {
			continue
		}
		if as := path.Base(p); i.Name == nil {
			imported[as] = p
		} else {
			imported[i.Name.Name] = p
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && imported[x.Name] != "" {
				e.used[name{imported[x.Name], s.Sel.Name}] = true
			}
		}
		return true
	})
	if !test && strings.HasPrefix(pkg, module+"internal/") && f.Name.Name != "main" {
		for _, d := range f.Decls {
			e.declare(pkg, d)
		}
	}
}

// declare adds the exported names of a declaration, and marks the types that their declarations mention as used.
func (e *exports) declare(pkg string, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if !d.Name.IsExported() {
			return
		}
		if d.Recv == nil {
			e.add(pkg, d.Name)
		}
		e.mention(pkg, d.Type)
	case *ast.GenDecl:
		typed := false // a constant without a value has the type of the constant before it
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					e.add(pkg, s.Name)
				}
				e.mention(pkg, s.Type)
			case *ast.ValueSpec:
				if d.Tok == token.CONST && (s.Type != nil || len(s.Values) > 0) {
					typed = s.Type != nil
				}
				for _, n := range s.Names {
					// The values of an enumeration are exported together.
					if n.IsExported() && !typed {
						e.add(pkg, n)
					}
				}
				if s.Type != nil {
					e.mention(pkg, s.Type)
				}
			}
		}
	}
}

func (e *exports) add(pkg string, n *ast.Ident) {
	e.declared[name{pkg, n.Name}] = e.files.Position(n.Pos())
}

// mention marks the exported types of the package in an expression.
func (e *exports) mention(pkg string, x ast.Node) {
	ast.Inspect(x, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && id.IsExported() {
			e.used[name{pkg, id.Name}] = true
		}
		return true
	})
}

// findings are the names that could begin with a small letter, by package.
func (e *exports) findings() []string {
	var found []string
	for n, at := range e.declared {
		if !e.used[n] {
			found = append(found, at.String()+": only its package uses "+n.ident+": do not export it")
		}
	}
	slices.Sort(found)
	return found
}

// TestFindExports: a name is found if nothing outside needs it. A function that another package or an external test calls is not found, nor a type in
// the declaration of an exported name, nor a value of an enumeration.
func TestFindExports(t *testing.T) {
	e := exports{declared: map[name]token.Position{}, used: map[name]bool{}, files: token.NewFileSet()}
	for _, f := range []struct {
		pkg, at, text string
	}{
		{"internal/a", "a.go", `package a
			type Answer struct{ Part Piece }
			type Piece int
			const (
				First Piece = iota
				Second
			)
			const Limit = 5
			const Bound = 7
			type Alone struct{}
			func (Alone) Method(Taken) {}
			type Taken struct{}
			func Called() Answer { return Answer{} }
			func Tested() {}
			func Inner() { Called(); _ = Limit }
			var Shared, Own = 1, 2
			func small() {}`},
		{"internal/a", "a_test.go", "package a\nfunc use() { Inner(); _ = Own }"},
		{"internal/a", "x_test.go", "package a_test\nimport \"" + module + "internal/a\"\nfunc use() { a.Tested() }"},
		{"internal/b", "b.go", "package b\nimport other \"" + module + "internal/a\"\nfunc use() { other.Called(); _ = other.Shared }"},
		{"internal/b", "c.go", "package b\nimport \"" + module + "internal/a/a\"\nfunc use() { a.Inner(); _ = a.Own }"},
		{"test", "t.go", "package test\nimport \"" + module + "internal/a\"\nvar x = a.Bound\nfunc Public() {}"},
		{"internal/tool", "main.go", "package main\nfunc Public() {}"},
	} {
		parsed, err := parser.ParseFile(e.files, f.at, f.text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		e.file(module+f.pkg, strings.HasSuffix(f.at, "_test.go"), parsed)
	}
	var got []string
	for n := range e.declared {
		if !e.used[n] {
			got = append(got, n.ident)
		}
	}
	slices.Sort(got)
	if want := []string{"Alone", "Inner", "Limit", "Own"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}
