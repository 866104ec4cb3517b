// Package envoy starts Envoy processes and talks to Envoy's admin interface. It also finds the binary, checks its version, and
// builds the command line.
//
// Invariants: a process that was started has its own process group, so that Ctrl-C in a terminal reaches only the agent, and the
// kernel kills it if the agent dies. Envoy writes its output directly to the files it is given.
//
// Goroutines: one per process, which waits for the process to end.
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

// errNotFound reports that no Envoy binary was found.
var errNotFound = errors.New("no envoy binary was found")

// Find returns the path of the binary to run: the first candidate with a path, or the one on PATH. A candidate that does not
// exist is an error unless it is optional.
func Find(wishes ...Candidate) (string, error) {
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
		return "", fmt.Errorf("%w: %s is set to %s: %w; correct it, or omit it to use the envoy on PATH", errNotFound, w.From, w.Path, errors.Unwrap(err))
	}
	path, err := exec.LookPath("envoy")
	if err != nil {
		return "", fmt.Errorf("%w: there is none on PATH; install Envoy, or name its binary by --envoy=FILE or in $ENVOY", errNotFound)
	}
	return path, nil
}

// Candidate is a configured location of the binary.
type Candidate struct {
	// From names the setting that the path comes from.
	From string
	// Path is a file, or a name to be searched on PATH.
	Path string
	// Optional skips the candidate if there is no such file.
	Optional bool
}

// Options are the options of an Envoy process.
type Options struct {
	// Binary is the file to run.
	Binary string
	// Config is the bootstrap file. Text is the bootstrap itself, which the process then gets in its memory and not from Config. Override is
	// YAML that Envoy merges over the bootstrap.
	Config, Text, Override string
	// IPv6 makes Envoy prefer IPv6 for local addresses.
	IPv6 bool
	// LogLevel and ComponentLogLevel are Envoy's log levels. Empty values select Envoy's defaults.
	LogLevel, ComponentLogLevel string
	// Concurrency is the number of worker threads; 0 selects Envoy's default.
	Concurrency int
	// Drain is how long Envoy keeps the connections of listeners that are removed.
	Drain time.Duration
	// Flush is the interval at which Envoy writes buffered log files.
	Flush time.Duration
	// Deprecated is true if the bootstrap has a deprecated field on purpose, so Envoy need not warn of it.
	Deprecated bool
	// FlushSize is how many KiB of a log file are buffered at most; 0 for Envoy's default.
	FlushSize uint32
	// HotRestart makes a hot restart of the process possible; nil if it is not.
	HotRestart *HotRestart
	// Stdout and Stderr receive Envoy's output.
	Stdout, Stderr *os.File
}

// source is the file that the process reads the bootstrap from.
func (o Options) source() string {
	if o.Text != "" {
		return inherited
	}
	return o.Config
}

// Args returns the command line arguments.
func (o Options) Args() []string {
	version := "v4"
	if o.IPv6 {
		version = "v6"
	}
	args := []string{
		"-c", o.source(),
		"--drain-time-s", strconv.Itoa(int(o.Drain.Round(time.Second).Seconds())),
		// Connections are asked to close immediately, not gradually, because the drain time does not grow with traffic.
		"--drain-strategy", "immediate",
		"--local-address-ip-version", version,
		"--file-flush-interval-msec", strconv.FormatInt(o.Flush.Milliseconds(), 10),
		// An older Envoy must still start if the bootstrap contains fields of a newer one.
		"--allow-unknown-static-fields",
	}
	if o.FlushSize > 0 {
		args = append(args, "--file-flush-min-size-kb", strconv.FormatUint(uint64(o.FlushSize), 10))
	}
	if o.Deprecated {
		args = append(args, "--skip-deprecated-logs")
	}
	args = append(args, o.HotRestart.args()...)
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
