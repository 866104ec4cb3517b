package api

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// judge runs a document through all checks of its validity, without the warnings of unsupported fields.
func judge(kind, name string, data []byte) (verdict string, problems []Problem) {
	switch kind {
	case "meshconfig":
		_, problems = DecodeMesh(name, data)
	case "meshnetworks":
		_, problems = DecodeNetworks(name, data)
	default:
		for _, d := range Decode(name, data) {
			for _, p := range d.Problems {
				if !strings.HasSuffix(p.Reason, "is not supported yet: ignored") {
					problems = append(problems, p)
				}
			}
			if d.Object != nil {
				found := Validate(d.Object)
				d.locate(found)
				problems = append(problems, found...)
			}
		}
	}
	switch {
	case Failed(problems):
		return "reject", problems
	case len(problems) > 0:
		return "warn", problems
	}
	return "accept", nil
}

// TestVerdicts checks the rules of each kind with documents that comply and documents that do not.
func TestVerdicts(t *testing.T) {
	files, err := filepath.Glob("testdata/verdicts/*.txtar")
	if err != nil || len(files) != 12 {
		t.Fatalf("found %d files, want 12 (%v)", len(files), err)
	}
	for _, file := range files {
		kind := strings.TrimSuffix(filepath.Base(file), ".txtar")
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.Files {
			head := strings.SplitN(f.Name, " ", 3)
			if len(head) != 3 {
				t.Fatalf("%s: %q is not name, verdict, field", file, f.Name)
			}
			t.Run(kind+"/"+head[0], func(t *testing.T) {
				want, field := strings.Split(head[1], "|"), head[2]
				got, problems := judge(kind, head[0]+".yaml", f.Data)
				if !slices.Contains(want, got) {
					t.Fatalf("%s, want %s\n%s\n%v", got, head[1], f.Data, problems)
				}
				if got == "accept" || field == "-" {
					return
				}
				for _, p := range problems {
					if p.Position.Line == 0 {
						t.Errorf("no line: %v", p)
					}
				}
				// The field of the problem may be a step more or less exact: the list for its element, a field for its parent.
				if !slices.ContainsFunc(problems, func(p Problem) bool {
					return strings.HasPrefix(field, p.Field) && p.Field != "" || strings.HasPrefix(p.Field, field)
				}) {
					t.Errorf("no problem is about %s:\n%v", field, problems)
				}
			})
		}
	}
}
