package chain

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var entry = Entry{Type: "pilot-cni", RunDir: "/var/run/pilot-cni", ExcludeNamespaces: []string{"kube-system"}}

// TestGolden: configurations of networks with the plugin, and without it again. Each archive has "before", and "after" and "removed" or "error".
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := &txtar.Archive{Comment: a.Comment, Files: a.Files[:1]}
			after, err := insert(a.Files[0].Data, entry)
			if err != nil {
				got.Files = append(got.Files, txtar.File{Name: "error", Data: []byte(err.Error() + "\n")})
			} else {
				removed, err := remove(after, entry.Type)
				if err != nil {
					t.Fatal(err)
				}
				got.Files = append(got.Files, txtar.File{Name: "after", Data: after}, txtar.File{Name: "removed", Data: removed})
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if want := txtar.Format(a); !bytes.Equal(want, txtar.Format(got)) {
				t.Errorf("%s is now:\n%s", file, txtar.Format(got))
			}
		})
	}
}

// FuzzInsert: whatever is in a configuration, the result has the plugin once, a second call changes nothing, and other plugins stay.
func FuzzInsert(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.txtar")
	for _, file := range files {
		if a, err := txtar.ParseFile(file); err == nil {
			f.Add(a.Files[0].Data)
		}
	}
	f.Fuzz(func(t *testing.T, before []byte) {
		after, err := insert(before, entry)
		if err != nil {
			return
		}
		if !has(after, entry.Type) {
			t.Fatalf("the plugin is not in\n%s", after)
		}
		if again, err := insert(after, entry); err != nil || !bytes.Equal(again, after) {
			t.Fatalf("a second call: %v\n%s\nafter\n%s", err, again, after)
		}
		removed, err := remove(after, entry.Type)
		if err != nil || has(removed, entry.Type) || !json.Valid(removed) {
			t.Fatalf("removed: %v\n%s", err, removed)
		}
	})
}
