package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// exam runs `make exam`: every case counts as a test, known gaps as skipped ones.
func exam(ctx context.Context, dir string, w io.Writer) result {
	tmp, err := os.MkdirTemp("", "pilot-suite-")
	if err != nil {
		fmt.Fprintf(w, "FAIL exam: %v\n", err)
		return result{failed: 1}
	}
	defer os.RemoveAll(tmp)
	report := filepath.Join(tmp, "exam.json")
	cmd := exec.CommandContext(ctx, "make", "--no-print-directory", "exam", "ARGS=-report="+report)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, w, w
	ran := cmd.Run()
	r, err := readExam(report)
	if err != nil {
		fmt.Fprintf(w, "FAIL exam: %v (%v)\n", ran, err)
		return result{failed: 1}
	}
	if ran != nil && r.failed == 0 {
		fmt.Fprintf(w, "FAIL exam: %v\n", ran)
		r.failed++
	}
	return r
}

// readExam reads the report of test/exam.
func readExam(path string) (result, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return result{}, err
	}
	var report struct {
		Passed, Failed int
		Skipped        []string
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return result{}, fmt.Errorf("%s: %w", path, err)
	}
	r := result{passed: report.Passed, failed: report.Failed}
	for _, s := range report.Skipped {
		r.skipped = append(r.skipped, "exam: "+s)
	}
	return r, nil
}
