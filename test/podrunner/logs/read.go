package logs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Options choose what of a log is read, and how, as `kubectl logs` says it.
type Options struct {
	Follow     bool
	Timestamps bool
	Tail       *int64
	Limit      *int64 // bytes
	Since      time.Time
	Stream     string // "stdout" or "stderr"; both when empty
}

// Read writes a log to out. A log that is followed must be given; it may be nil when the container has ended.
func Read(ctx context.Context, path string, live *Log, options Options, out io.Writer) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	defer file.Close()
	r := &reader{options: options, out: out}
	if options.Limit != nil {
		r.out = &limited{out: out, left: *options.Limit}
	}
	for {
		var changed <-chan struct{}
		ended := true
		if live != nil && options.Follow {
			changed, ended = live.state() // before reading, so that nothing comes between
		}
		if err := r.read(file); errors.Is(err, errEnough) {
			return nil
		} else if err != nil {
			return err
		}
		if ended {
			return nil
		}
		if flusher, ok := out.(interface{ Flush() }); ok {
			flusher.Flush()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

type reader struct {
	options Options
	out     io.Writer
	rest    []byte // an entry that was not written to its end yet
	begun   bool
}

// read writes the file's entries from its current offset to its end.
func (r *reader) read(file *os.File) error {
	if !r.begun && r.options.Tail != nil {
		if err := r.skip(file, *r.options.Tail); err != nil {
			return err
		}
	}
	r.begun = true
	buffered := bufio.NewReader(file)
	for {
		entry, err := buffered.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			r.rest = append(r.rest, entry...)
			return nil
		}
		if err != nil {
			return err
		}
		entry = append(r.rest, entry...)
		r.rest = nil
		if err := r.write(entry); err != nil {
			return err
		}
	}
}

// skip moves the file to its last lines.
func (r *reader) skip(file *os.File, lines int64) error {
	var starts []int64 // of the last lines+1 lines
	var at int64
	whole := true
	buffered := bufio.NewReader(file)
	for {
		entry, err := buffered.ReadBytes('\n')
		if len(entry) > 0 {
			_, _, tag, _, ok := parse(entry)
			if whole && lines > 0 {
				starts = append(starts, at)
				starts = starts[max(0, int64(len(starts))-lines):]
			}
			whole = !ok || tag == "F"
			at += int64(len(entry))
		}
		if err != nil {
			break
		}
	}
	if len(starts) > 0 {
		at = starts[0]
	}
	_, err := file.Seek(at, io.SeekStart)
	return err
}

func (r *reader) write(entry []byte) error {
	stamp, stream, tag, text, ok := parse(entry)
	if !ok || r.options.Stream != "" && stream != r.options.Stream {
		return nil
	}
	if !r.options.Since.IsZero() {
		if at, err := time.Parse(time.RFC3339Nano, stamp); err == nil && at.Before(r.options.Since) {
			return nil
		}
	}
	if tag == "P" {
		text = bytes.TrimSuffix(text, []byte("\n"))
	}
	if r.options.Timestamps {
		text = append([]byte(stamp+" "), text...)
	}
	_, err := r.out.Write(text)
	return err
}

// parse takes an entry apart; the text keeps its newline.
func parse(entry []byte) (stamp, stream, tag string, text []byte, ok bool) {
	fields := bytes.SplitN(entry, []byte(" "), 4)
	if len(fields) < 4 {
		return "", "", "", nil, false
	}
	return string(fields[0]), string(fields[1]), string(fields[2]), fields[3], true
}

var errEnough = errors.New("enough")

// limited writes no more than it may.
type limited struct {
	out  io.Writer
	left int64
}

func (l *limited) Write(text []byte) (int, error) {
	if int64(len(text)) >= l.left {
		_, _ = l.out.Write(text[:l.left])
		l.left = 0
		return 0, errEnough
	}
	l.left -= int64(len(text))
	return l.out.Write(text)
}
