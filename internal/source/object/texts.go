// Package object makes the values of package kube: of objects of an API server, and of documents of files.
//
// A workload of a file, such as a Deployment, is the value of a pod without an address, which has the labels of its template. So selectors
// find it like other pods. The package is pure, except for Texts, which several goroutines may use.
package object

import "sync"

// Texts returns one copy of equal texts, so that the name of a node or of a service account is in memory once and not once for
// each pod. It remembers a limited number of texts: the current generation and the previous one. A text that is used
// moves to the current generation.
type Texts struct {
	mu       sync.Mutex
	limit    int
	now, was map[string]string
}

// TextLimit is the number of texts of one generation.
const TextLimit = 1 << 14

// NewTexts returns one that remembers a limited number of texts of each generation.
func NewTexts(limit int) *Texts { return &Texts{limit: limit, now: map[string]string{}} }

// Of returns the copy.
func (t *Texts) Of(s string) string {
	if s == "" {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if one, ok := t.now[s]; ok {
		return one
	}
	if one, ok := t.was[s]; ok {
		s = one
	}
	if len(t.now) >= t.limit {
		t.now, t.was = map[string]string{}, t.now
	}
	t.now[s] = s
	return s
}
