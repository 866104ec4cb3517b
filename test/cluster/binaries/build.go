package binaries

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// every is how often a build says how far it is.
const every = 15 * time.Second

// Build builds the programs that are missing below root and reports its progress to w.
func Build(ctx context.Context, root string, w io.Writer) error {
	for _, s := range sets() {
		if _, err := os.Stat(s.dir(root)); err == nil {
			fmt.Fprintf(w, "tools: %s %s at %s\n", s.name, s.version, s.dir(root))
			continue
		}
		if err := s.build(ctx, root, w); err != nil {
			return fmt.Errorf("building %s %s: %w", s.name, s.version, err)
		}
	}
	return nil
}

func (s set) build(ctx context.Context, root string, w io.Writer) error {
	if err := os.MkdirAll(filepath.Join(root, ".tools"), 0o755); err != nil {
		return fmt.Errorf("making the tools folder: %w", err)
	}
	// Beside the target, so that the last step is a rename within one file system.
	tmp, err := os.MkdirTemp(filepath.Join(root, ".tools"), ".build-")
	if err != nil {
		return fmt.Errorf("making a folder to build in: %w", err)
	}
	defer os.RemoveAll(tmp)
	fmt.Fprintf(w, "tools: building %s %s (%s), once: a few minutes on two cores\n", s.name, s.version, strings.Join(s.programs, ", "))
	begin := time.Now()
	if err := s.compile(ctx, filepath.Join(root, "test", "cluster", s.module), tmp, w); err != nil {
		return err
	}
	for _, p := range s.programs {
		if err := works(ctx, filepath.Join(tmp, p), s.version); err != nil {
			return err
		}
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return fmt.Errorf("opening the folder to others: %w", err)
	}
	if err := os.Rename(tmp, s.dir(root)); err != nil && !isThere(s.dir(root)) {
		return fmt.Errorf("putting the programs in place: %w", err)
	}
	fmt.Fprintf(w, "tools: %s %s built in %s\n", s.name, s.version, time.Since(begin).Round(time.Second))
	return nil
}

// isThere reports whether another process has built it first; one build is as good as the other.
func isThere(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

// compile runs the go command in a module folder. Two packages at a time: more would only make both wait on memory.
func (s set) compile(ctx context.Context, module, out string, w io.Writer) error {
	flags := []string{"-s", "-w"}
	for _, x := range s.link {
		flags = append(flags, "-X "+x)
	}
	for i, p := range s.packages {
		args := []string{"build", "-v", "-p", "2", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", strings.Join(flags, " "),
			"-o", filepath.Join(out, s.programs[i]), p}
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = module
		// The programs run in namespaces with another root: they must not want a C library.
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
		stderr, err := cmd.StderrPipe()
		if err != nil {
			return fmt.Errorf("go build: %w", err)
		}
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("go build: %w", err)
		}
		said := follow(stderr, s.programs[i], w)
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("go build %s: %w\n%s\n%s", p, err, said, remedy(said, err))
		}
	}
	return nil
}

// follow counts the packages that `go build -v` names, says so now and then, and returns everything else.
func follow(in io.Reader, program string, w io.Writer) string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		scan := bufio.NewScanner(in)
		scan.Buffer(nil, 1<<20)
		for scan.Scan() {
			lines <- scan.Text()
		}
	}()
	tick := time.NewTicker(every)
	defer tick.Stop()
	var other bytes.Buffer
	packages := 0
	for {
		select {
		case line, more := <-lines:
			switch {
			case !more:
				return strings.TrimSpace(other.String())
			case strings.HasPrefix(line, "go: downloading "):
			case !strings.ContainsAny(line, " :"):
				packages++ // an import path alone: -v names compiled packages
			default:
				fmt.Fprintln(&other, line)
			}
		case <-tick.C:
			fmt.Fprintf(w, "tools:   %s: %d packages compiled\n", program, packages)
		}
	}
}

// remedy turns what the go command said into what to do.
func remedy(said string, err error) string {
	var exit *exec.ExitError
	switch {
	case strings.Contains(said, "no space left on device"):
		return "The disk is full: a build needs about 4 GB in the Go build cache (`go env GOCACHE`) and TMPDIR."
	case strings.Contains(said, "signal: killed") || errors.As(err, &exit) && exit.ExitCode() == -1:
		return "The compiler was killed, most likely for want of memory: linking kube-apiserver needs about 3 GB."
	case strings.Contains(said, "proxy.golang.org") || strings.Contains(said, "dial tcp") || strings.Contains(said, "no such host"):
		return "The module proxy could not be reached: check the network and GOPROXY (`go env GOPROXY`)."
	case strings.Contains(said, "checksum mismatch") || strings.Contains(said, "SECURITY ERROR"):
		return "The module proxy delivered something else than what go.sum pins: do not use it; check GOPROXY."
	case strings.Contains(said, "toolchain"):
		return "The Go toolchain that go.mod names is missing: set GOTOOLCHAIN=auto, or install it."
	}
	return "Run the same command again; the Go build cache keeps the compiled packages."
}
