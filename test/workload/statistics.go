package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pilotmesh/pilot/test/kit/echo"
)

// statistics sums up a load. It may be added to by many goroutines.
type statistics struct {
	mu       sync.Mutex
	began    time.Time
	took     time.Duration
	requests int
	failures int
	first    error // of the failures
	errors   map[string]int
	by       map[string]int // answers by the server's name and version
	times    []time.Duration
}

func newStatistics() *statistics {
	return &statistics{began: time.Now(), errors: map[string]int{}, by: map[string]int{}}
}

func (s *statistics) add(took time.Duration, a answer, err error) {
	var r echo.Report
	if err == nil && json.Unmarshal(a.text, &r) != nil {
		r.Name = "(" + a.status + ")" // something else than a workload answered
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	s.times = append(s.times, took)
	if err != nil {
		s.failures++
		if s.first == nil {
			s.first = err
		}
		s.errors[err.Error()]++
		return
	}
	name := r.Name
	if r.Version != "" {
		name += " " + r.Version
	}
	s.by[name]++
}

// write prints an answer; answers of several workers do not mix.
func (s *statistics) write(w io.Writer, text []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(w, "%s\n", text)
}

// Summary is what `workload call -o json` prints.
type Summary struct {
	Requests int            `json:"requests"`
	Failures int            `json:"failures"`
	Seconds  float64        `json:"seconds"`
	Answers  map[string]int `json:"answers"`          // by who answered
	Errors   map[string]int `json:"errors,omitempty"` // by text
	P50      float64        `json:"p50Milliseconds"`
	P99      float64        `json:"p99Milliseconds"`
	Max      float64        `json:"maxMilliseconds"`
}

func (s *statistics) summary() Summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.times)
	at := func(q float64) float64 {
		if len(s.times) == 0 {
			return 0
		}
		return float64(s.times[int(q*float64(len(s.times)-1))].Microseconds()) / 1000
	}
	return Summary{Requests: s.requests, Failures: s.failures, Seconds: s.took.Seconds(), Answers: s.by, Errors: s.errors, P50: at(0.5), P99: at(0.99), Max: at(1)}
}

func (s *statistics) print(w io.Writer) {
	sum := s.summary()
	fmt.Fprintf(w, "requests  %d in %.2fs, %d failed\n", sum.Requests, sum.Seconds, sum.Failures)
	fmt.Fprintf(w, "latency   p50 %.1fms  p99 %.1fms  max %.1fms\n", sum.P50, sum.P99, sum.Max)
	for _, name := range slices.Sorted(maps.Keys(sum.Answers)) {
		fmt.Fprintf(w, "answered  %6d  %s\n", sum.Answers[name], name)
	}
	for _, text := range slices.Sorted(maps.Keys(sum.Errors)) {
		fmt.Fprintf(w, "failed    %6d  %s\n", sum.Errors[text], text)
	}
}
