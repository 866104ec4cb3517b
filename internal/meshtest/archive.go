package meshtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// PlayFiles plays each file testdata/*.txtar in a subtest of its own, section by section. begin is called with all sections of a file, and returns the
// function that processes one: got is the text that the section must have, and printed is false if the section is an input. With update the
// sections are rewritten instead of compared.
func PlayFiles(t *testing.T, update bool, begin func(t *testing.T, all []txtar.File) (section func(name, text string) (got string, printed bool))) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no files in testdata", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			section := begin(t, archive.Files)
			for i := range archive.Files {
				f := &archive.Files[i]
				got, printed := section(f.Name, string(f.Data))
				switch {
				case !printed:
				case update:
					f.Data = []byte(got)
				case string(f.Data) != got:
					t.Errorf("%s: section %d, %s, differs; run with -update if that is meant:\n%s", file, i+1, f.Name, Difference(string(f.Data), got))
				}
			}
			if update {
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
