package arch

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestChecker runs the checker over code that breaks the rules, so that none of them can stop working unseen. A line's
// finding stands behind it as: // want "part of the message".
func TestChecker(t *testing.T) {
	src, err := os.ReadFile("testdata/bad.txt")
	if err != nil {
		t.Fatal(err)
	}
	c := newChecker("view/bad")
	c.source(t, "bad.go", src, false)
	got := map[string]string{}
	for _, f := range c.finish() {
		at, text, _ := strings.Cut(f, ": ")
		if got[at] != "" {
			t.Errorf("two findings at %s: %q and %q", at, got[at], text)
		}
		got[at] = text
	}
	want := regexp.MustCompile(`// want "(.*)"`)
	for i, line := range strings.Split(string(src), "\n") {
		at := fmt.Sprintf("bad.go:%d", i+1)
		if m := want.FindStringSubmatch(line); m == nil && got[at] != "" {
			t.Errorf("%s: unexpected finding %q", at, got[at])
		} else if m != nil && !strings.Contains(got[at], m[1]) {
			t.Errorf("%s: got %q, want %q", at, got[at], m[1])
		}
	}
}

func TestBudgets(t *testing.T) {
	long := "// Package long is one with a comment that has enough words to pass.\npackage long\n\nfunc f() {\n" + strings.Repeat("\tf()\n", functionLines) + "}\n"
	c := newChecker("view/long")
	for i := range packageLines/fileLines + 1 {
		c.source(t, fmt.Sprintf("f%d.go", i), []byte(long+strings.Repeat("\n", fileLines)), false)
	}
	found := strings.Join(c.finish(), "\n")
	for _, want := range []string{"f0.go:2: the file has", "f0.go:4: f has", "f0.go:2: the package has"} {
		if !strings.Contains(found, want) {
			t.Errorf("no finding %q in:\n%s", want, found)
		}
	}
}

// TestExportedNames: a package that exports many names says why.
func TestExportedNames(t *testing.T) {
	names := ""
	for i := range exportedNames + 1 {
		names += fmt.Sprintf("// F%d does nothing.\nfunc F%[1]d() {}\n", i)
	}
	for comment, want := range map[string]string{"It has no reason for them.": "the package exports", manyNames + " they\n// are vocabulary.": ""} {
		c := newChecker("view/wide")
		c.source(t, "wide.go", []byte("// Package wide is one with enough words to pass. "+comment+"\npackage wide\n\n"+names), false)
		if found := strings.Join(c.finish(), "\n"); (want == "") != (found == "") || !strings.Contains(found, want) {
			t.Errorf("with the comment %q: findings %q, want %q", comment, found, want)
		}
	}
}

// TestSleepInTests: tests must wait for conditions instead of sleeping.
func TestSleepInTests(t *testing.T) {
	const src = "package x\n\nimport \"time\"\n\nfunc init() { time.Sleep(1); go init() }\n"
	c := newChecker("view/x")
	c.source(t, "x_test.go", []byte(src), true)
	if found := c.finish(); len(found) != 1 || !strings.Contains(found[0], "x_test.go:5: time.Sleep") {
		t.Errorf("findings in a test file: %q, want the Sleep only", found)
	}
}

func TestWay(t *testing.T) {
	arrows := func(text string) map[string]map[string]bool {
		m := map[string]map[string]bool{}
		for a := range strings.FieldsSeq(text) {
			from, to, _ := strings.Cut(a, ">")
			if m[from] == nil {
				m[from] = map[string]bool{}
			}
			m[from][to] = true
		}
		return m
	}
	for text, want := range map[string]string{"a>b b>c a>c": "", "a>b b>a": "a b a", "a>b b>d b>c c>a": "a b c a", "a>b b>c c>b": ""} {
		if got := strings.Join(way(arrows(text), "a", "a", map[string]bool{}), " "); got != want {
			t.Errorf("%s: the way from a to a is %q, want %q", text, got, want)
		}
	}
}

func TestImportRules(t *testing.T) {
	const in = module + "internal/"
	for _, c := range []struct{ pkg, imports, want string }{
		{in + "xds/route", in + "xds/cluster", "may import only"},
		{in + "xds/route", in + "engine/store", "may import only"},
		{in + "xds/route", in + "source/file", "may import only"},
		{in + "xds/route", in + "view/traffic", ""},
		{in + "xds/route", "github.com/envoyproxy/go-control-plane/envoy/config/route/v3", ""},
		{in + "view/traffic", in + "view/service", ""},
		{in + "view/traffic", in + "xds/envoy", "may import only"},
		{in + "view/traffic", "github.com/envoyproxy/go-control-plane/envoy/config/route/v3", "must not know Envoy"},
		{in + "view/traffic", "k8s.io/api/core/v1", "one source among others"},
		{in + "source/kube", "k8s.io/api/core/v1", ""},
		{in + "engine/query", in + "engine/store", ""},
		{in + "engine/query", in + "mesh", "may import only"},
		{in + "engine/omap", in + "engine/store", "may import only"},
		{in + "run", module + "cmd/pilot-discovery", "imported by nobody"},
		{module + "cmd/pilot-discovery", in + "loop", ""},
		{module + "cmd/pilot-discovery", "istio.io/istio/pilot", "not a library"},
		{in + "misplaced", in + "mesh", "stands in no row"},
	} {
		found := strings.Join(imports(listed{ImportPath: c.pkg, Imports: []string{c.imports}}), "\n")
		if (c.want == "") != (found == "") || !strings.Contains(found, c.want) {
			t.Errorf("%s imports %s: findings %q, want %q", c.pkg, c.imports, found, c.want)
		}
	}
}
