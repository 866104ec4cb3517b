// Command mutate checks the tests of what everything else relies on: it breaks one line at a time and wants some test to notice.
//
// The breaks are listed beside the code, in testdata/mutations.txt of a package (list.go describes the form). Each is
// laid over the sources with the go command's -overlay, so no file is touched. A break that no test notices survives,
// and a survivor fails the run: write the test that would have seen it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/test/repo"
)

func main() {
	only := flag.String("only", "", "run only breaks whose description or list (its path) matches this regular expression")
	timeout := flag.Duration("timeout", 3*time.Minute, "how long the tests of one break may run; running longer counts as noticed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only, *timeout, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, timeout time.Duration, w io.Writer) error {
	root, err := repo.Root()
	if err != nil {
		return err
	}
	wanted, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	breaks, err := lists(root, wanted)
	if err != nil {
		return err
	}
	r := &runner{root: root, timeout: timeout, w: w, sound: map[string]bool{}}
	r.dir, err = os.MkdirTemp("", "mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(r.dir)
	survived := 0
	for _, b := range breaks {
		noticed, err := r.try(ctx, b)
		if err != nil {
			return err
		}
		if !noticed {
			survived++
		}
	}
	fmt.Fprintf(w, "mutate: %d of %d breaks were noticed\n", len(breaks)-survived, len(breaks))
	if survived > 0 {
		return fmt.Errorf("%d breaks survived: no test would notice them", survived)
	}
	return nil
}

// lists reads all lists of the repository.
func lists(root string, wanted *regexp.Regexp) ([]mutation, error) {
	var files []string
	err := filepath.WalkDir(filepath.Join(root, "internal"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "mutations.txt" && filepath.Base(filepath.Dir(path)) == "testdata" {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for lists of breaks: %w", err)
	}
	var all []mutation
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		rel, err := filepath.Rel(root, f)
		if err != nil {
			return nil, err
		}
		breaks, err := parse(rel, string(text))
		if err != nil {
			return nil, err
		}
		for _, b := range breaks {
			if wanted.MatchString(b.what) || wanted.MatchString(rel) {
				all = append(all, b)
			}
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no such break found in testdata/mutations.txt of any package")
	}
	return all, nil
}

// runner tries breaks one after the other.
type runner struct {
	root, dir string
	timeout   time.Duration
	w         io.Writer
	sound     map[string]bool // test commands that pass on the unbroken code
}

// try reports whether the tests noticed the break. An error means that the list is wrong, or the unbroken code.
func (r *runner) try(ctx context.Context, b mutation) (bool, error) {
	if test := strings.Join(b.test, " "); !r.sound[test] {
		if out, err := r.goTest(ctx, b.test); err != nil {
			return false, fmt.Errorf("the tests fail on the unbroken code (go test %s): nothing can be learnt\n%s", test, out)
		}
		r.sound[test] = true
	}
	overlay, err := r.overlay(b)
	if err != nil {
		return false, fmt.Errorf("%s: %w", b.at, err)
	}
	begin := time.Now()
	out, err := r.goTest(ctx, b.test, overlay)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if strings.Contains(out, "[build failed]") {
		return false, fmt.Errorf("%s: the broken code does not compile, so it proves nothing\n%s", b.at, out)
	}
	took := time.Since(begin).Round(time.Second / 10)
	if err == nil {
		fmt.Fprintf(r.w, "SURVIVED  %s (%s; go test %s, %s)\n", b.what, b.at, strings.Join(b.test, " "), took)
		return false, nil
	}
	fmt.Fprintf(r.w, "noticed   %s (by %s, %s)\n", b.what, blame(out), took)
	return true, nil
}

func (r *runner) goTest(ctx context.Context, args []string, flags ...string) (string, error) {
	flags = append(flags, "-vet=off", "-failfast", "-timeout="+r.timeout.String())
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"test"}, flags...), args...)...)
	cmd.Dir = r.root
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// overlay writes the broken file and returns the flag that lays it over the real one.
func (r *runner) overlay(b mutation) (string, error) {
	path := filepath.Join(r.root, b.file)
	src, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	broken, err := b.apply(string(src))
	if err != nil {
		return "", err
	}
	copied := filepath.Join(r.dir, "broken.go")
	if err := os.WriteFile(copied, []byte(broken), 0o600); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: copied}})
	if err != nil {
		return "", err
	}
	file := filepath.Join(r.dir, "overlay.json")
	return "-overlay=" + file, os.WriteFile(file, replace, 0o600)
}

// blame names the first test that noticed.
func blame(out string) string {
	if m := regexp.MustCompile(`--- FAIL: (\S+)`).FindStringSubmatch(out); m != nil {
		return m[1]
	}
	if strings.Contains(out, "test timed out") {
		return "a timeout"
	}
	if m := regexp.MustCompile(`(?m)^(panic|fatal error): .*`).FindString(out); m != "" {
		return m
	}
	return "a failure"
}
