package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/repo"
)

// named is a test in a table of doc/security.md: its package and its name.
var named = regexp.MustCompile("`([a-z0-9/-]+) (Test[A-Za-z0-9]+)`")

// TestSecurityTable: every attack in the table of doc/security.md names tests that exist. An attack that is still open says so, and no longer than
// its tests are missing or have known gaps.
func TestSecurityTable(t *testing.T) {
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "doc", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	gaps, err := os.ReadFile(filepath.Join(root, "test/e2e/attack/testdata/gaps.txt"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "## Attacks that were tried")
	if !found {
		t.Fatal("doc/security.md has no part `Attacks that were tried`")
	}
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "|") || len(cells) != 3 || strings.HasPrefix(cells[0], "---") || strings.TrimSpace(cells[0]) == "Attack" {
			continue
		}
		rows++
		tests := named.FindAllStringSubmatch(cells[1], -1)
		missing, gapped := 0, 0
		for _, test := range tests {
			if !defined(t, filepath.Join(root, test[1]), test[2]) {
				missing++
			} else if strings.Contains(string(gaps), `"`+test[2]+"/") {
				gapped++
			}
		}
		open := strings.HasPrefix(strings.TrimSpace(cells[2]), "open")
		switch {
		case !open && (len(tests) == 0 || missing > 0):
			t.Errorf("doc/security.md: %d of the %d tests of this row are missing; name those that hold it, or say `open`:\n%s", missing, len(tests), line)
		case open && len(tests) > 0 && missing == 0 && gapped == 0:
			t.Errorf("doc/security.md: the tests of this row are there; say what becomes of the attack instead of `open`:\n%s", line)
		}
	}
	if rows < 40 {
		t.Errorf("doc/security.md has only %d rows", rows)
	}
}

// defined reports whether a folder has a test.
func defined(t *testing.T, dir, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+test+"(t *testing.T)") {
			return true
		}
	}
	return false
}
