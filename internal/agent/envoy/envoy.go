// Package envoy is Envoy as its agent sees it: where the binary is, its command line, its process, and the admin
// interface.
//
// Invariants: a process that was started belongs to this one: it has its own process group, so that a terminal's Ctrl-C
// reaches the agent only, and it is killed by the kernel should the agent die without ending it. What Envoy writes goes
// to the files handed in, unread.
//
// Goroutines: one per process, which waits for its end. The package knows no settings, no bootstrap and no policy: it
// must not import anything of this project.
package envoy

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// ErrNotFound says that there is no Envoy to run.
var ErrNotFound = errors.New("no envoy binary was found")

// Find returns the path of the binary to run: the first of wishes that is not empty, or the one on PATH. A wish that
// cannot be met is an error, and not replaced in silence.
func Find(wishes ...Wish) (string, error) {
	for _, w := range wishes {
		if w.Path == "" {
			continue
		}
		path, err := exec.LookPath(w.Path)
		switch {
		case err == nil:
			return path, nil
		case w.Optional:
			continue
		}
		return "", fmt.Errorf("%w: %s names %s: %w; correct it, or leave it out to use the envoy on PATH", ErrNotFound, w.From, w.Path, errors.Unwrap(err))
	}
	path, err := exec.LookPath("envoy")
	if err != nil {
		return "", fmt.Errorf("%w: there is none on PATH; install Envoy, or name its binary by --envoy=FILE or in $ENVOY", ErrNotFound)
	}
	return path, nil
}

// Wish is where somebody says the binary is.
type Wish struct {
	// From names who says so.
	From string
	// Path is a file, or a name to be looked up on PATH.
	Path string
	// Optional passes the wish over if there is no such file.
	Optional bool
}

// Options are what a process is started with.
type Options struct {
	// Binary is the file to run.
	Binary string
	// Config is the file with the bootstrap, Override YAML that is laid over it.
	Config, Override string
	// IPv6 prefers IPv6 for local addresses.
	IPv6 bool
	// LogLevel and ComponentLogLevel are Envoy's own; empty ones are left to it.
	LogLevel, ComponentLogLevel string
	// Concurrency is the number of worker threads; 0 leaves it to Envoy.
	Concurrency int
	// Drain is how long Envoy itself keeps connections of listeners that go.
	Drain time.Duration
	// Flush is how often files are written.
	Flush time.Duration
	// Stdout and Stderr are where its output goes.
	Stdout, Stderr *os.File
}

// Args is the command line without the binary.
func (o Options) Args() []string {
	version := "v4"
	if o.IPv6 {
		version = "v6"
	}
	args := []string{
		"-c", o.Config,
		"--drain-time-s", strconv.Itoa(int(o.Drain.Round(time.Second).Seconds())),
		// Connections are asked to close at once instead of by and by: nobody who still sends gets a longer life for it.
		"--drain-strategy", "immediate",
		"--local-address-ip-version", version,
		"--file-flush-interval-msec", strconv.FormatInt(o.Flush.Milliseconds(), 10),
		// Shared memory for a successor there will not be; without it any number of Envoys run beside each other.
		"--disable-hot-restart",
		// A bootstrap for a newer Envoy must not keep an older one from serving.
		"--allow-unknown-static-fields",
	}
	if o.LogLevel != "" {
		args = append(args, "-l", o.LogLevel)
	}
	if o.ComponentLogLevel != "" {
		args = append(args, "--component-log-level", o.ComponentLogLevel)
	}
	if o.Concurrency > 0 {
		args = append(args, "--concurrency", strconv.Itoa(o.Concurrency))
	}
	if strings.TrimSpace(o.Override) != "" {
		args = append(args, "--config-yaml", o.Override)
	}
	return args
}
