package kube

import "sync"

// texts returns one copy of equal texts, so that the name of a node or of a service account is in memory once and not once for
// each pod. It remembers a limited number of texts: those of the current generation and of the one before. A text that is used
// moves to the current generation.
type texts struct {
	mu       sync.Mutex
	limit    int
	now, was map[string]string
}

// textLimit is the number of texts of one generation.
const textLimit = 1 << 14

func newTexts(limit int) *texts { return &texts{limit: limit, now: map[string]string{}} }

// of returns the copy.
func (t *texts) of(s string) string {
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
