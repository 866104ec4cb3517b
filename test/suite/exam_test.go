package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestReadExam(t *testing.T) {
	path := filepath.Join(t.TempDir(), "exam.json")
	if _, err := readExam(path); err == nil {
		t.Error("no report is no error")
	}
	if err := os.WriteFile(path, []byte(`{"passed": 3, "failed": 1, "skipped": ["http/a (delta): later"], "cases": []}`), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := readExam(path)
	if err != nil || r.passed != 3 || r.failed != 1 || !slices.Equal(r.skipped, []string{"exam: http/a (delta): later"}) {
		t.Errorf("readExam = %+v, %v", r, err)
	}
}
