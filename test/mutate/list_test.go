package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/repo"
)

const sample = `# The kernel.

break: a deleted name stays
file: internal/x/x.go
-	if a || b {
+	if a {
test: ./internal/x -run Oracle

break: nothing is unlinked
file: internal/x/x.go
- unlink()
- release()
test: ./internal/x
`

func TestParse(t *testing.T) {
	got, err := parse("m.txt", sample)
	if err != nil || len(got) != 2 {
		t.Fatalf("parse = %v, %v", got, err)
	}
	first := got[0]
	if first.at != "m.txt:3" || first.what != "a deleted name stays" || !slices.Equal(first.old, []string{"if a || b {"}) ||
		!slices.Equal(first.new, []string{"if a {"}) || !slices.Equal(first.test, []string{"./internal/x", "-run", "Oracle"}) {
		t.Errorf("first = %+v", first)
	}
	for _, bad := range []string{"break: x\nfile: y\ntest: z\n", "broken line\n"} {
		if got, err := parse("m.txt", bad); err == nil {
			t.Errorf("parse(%q) = %v, want an error", bad, got)
		}
	}
}

func TestApply(t *testing.T) {
	m := mutation{file: "x.go", old: []string{"unlink()", "release()"}}
	if got, err := m.apply("a\n\tunlink()\n\trelease()\nb"); err != nil || got != "a\nb" {
		t.Errorf("apply = %q, %v", got, err)
	}
	for src, want := range map[string]string{
		"unlink()\nkeep()":                         "does not occur in x.go any more",
		"unlink()\nrelease()\nunlink()\nrelease()": "occurs in x.go twice",
	} {
		if _, err := m.apply(src); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("apply(%q) = %v, want %q", src, err, want)
		}
	}
}

// TestListsFollowTheCode: every break can be made in the code as it is.
func TestListsFollowTheCode(t *testing.T) {
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	all, err := lists(root, regexp.MustCompile(""))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		src, err := os.ReadFile(filepath.Join(root, m.file))
		if err != nil {
			t.Errorf("%s: %v", m.at, err)
			continue
		}
		if _, err := m.apply(string(src)); err != nil {
			t.Errorf("%s: %v", m.at, err)
		}
	}
}
