// Package logs keeps what containers write: a file for each life of a container, in the form that container runtimes
// agreed on ("time stream tag text"), and readers that may follow it. One goroutine per stream of a container copies;
// it belongs to the caller of Copy.
package logs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Log is the log of a container's present life.
type Log struct {
	path string

	mu        sync.Mutex
	file      *os.File
	changed   chan struct{} // closed and replaced when there is more to read
	ended     bool
	listeners map[*Listener]bool
}

// Listener gets what a container writes, as it writes it.
type Listener struct {
	Stream string
	Output io.Writer
	done   chan struct{}
}

// Done is closed when the container writes no more, or the listener cannot take more.
func (l *Listener) Done() <-chan struct{} { return l.done }

// Create begins a log.
func Create(path string) (*Log, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	return &Log{path: path, file: file, changed: make(chan struct{}), listeners: make(map[*Listener]bool)}, nil
}

// longest is how long a line may be before it is stored in parts.
const longest = 16 << 10

// Copy stores what comes from the reader, until its end.
func (l *Log) Copy(stream string, from io.Reader) {
	chunk := make([]byte, 4096)
	var line []byte
	for {
		n, err := from.Read(chunk)
		if n > 0 {
			l.hear(stream, chunk[:n])
			line = l.split(stream, append(line, chunk[:n]...))
		}
		if err != nil {
			break
		}
	}
	if len(line) > 0 {
		l.store(stream, "P", [][]byte{line})
	}
}

// split stores the whole lines of a text and returns the rest.
func (l *Log) split(stream string, text []byte) []byte {
	var lines [][]byte
	for {
		end := bytes.IndexByte(text, '\n')
		if end < 0 {
			break
		}
		lines = append(lines, text[:end])
		text = text[end+1:]
	}
	if len(lines) > 0 {
		l.store(stream, "F", lines)
	}
	for len(text) >= longest {
		l.store(stream, "P", [][]byte{text[:longest]})
		text = text[longest:]
	}
	if len(text) == 0 {
		return nil // an idle container keeps no buffer
	}
	return bytes.Clone(text)
}

func (l *Log) store(stream, tag string, lines [][]byte) {
	var out bytes.Buffer
	now := time.Now().UTC().Format(time.RFC3339Nano)
	for _, line := range lines {
		out.WriteString(now + " " + stream + " " + tag + " ")
		out.Write(line)
		out.WriteByte('\n')
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	_, _ = l.file.Write(out.Bytes()) // a full disk costs the log, not the container
	close(l.changed)
	l.changed = make(chan struct{})
}

// hear hands a text to the listeners; a slow one holds the container up, as a slow terminal would.
func (l *Log) hear(stream string, text []byte) {
	l.mu.Lock()
	var ears []*Listener
	for listener := range l.listeners {
		if listener.Stream == stream {
			ears = append(ears, listener)
		}
	}
	l.mu.Unlock()
	for _, listener := range ears {
		if _, err := listener.Output.Write(text); err != nil {
			l.Leave(listener)
		}
	}
}

// Listen copies all further writes to a stream.
func (l *Log) Listen(stream string, to io.Writer) *Listener {
	listener := &Listener{Stream: stream, Output: to, done: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		close(listener.done)
	} else {
		l.listeners[listener] = true
	}
	return listener
}

// Leave ends a listener.
func (l *Log) Leave(listener *Listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listeners[listener] {
		delete(l.listeners, listener)
		close(listener.done)
	}
}

// Close ends the log; its readers see the end.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil
	}
	l.ended = true
	close(l.changed)
	for listener := range l.listeners {
		close(listener.done)
	}
	l.listeners = nil
	return l.file.Close()
}

// state is what a follower waits for.
func (l *Log) state() (changed <-chan struct{}, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed, l.ended
}

// Tail is the end of a log as plain text: at most so many lines and bytes.
func Tail(path string, lines int, size int) (string, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer file.Close()
	var out bytes.Buffer
	n := int64(lines)
	if err := (&reader{options: Options{Tail: &n}, out: &out}).read(file); err != nil {
		return "", err
	}
	text := out.Bytes()
	return string(text[max(0, len(text)-size):]), nil
}
