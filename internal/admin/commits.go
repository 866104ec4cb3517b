package admin

import (
	"strconv"
	"sync"
	"time"

	"github.com/pilotmesh/pilot/internal/store"
	"github.com/pilotmesh/pilot/internal/xds/push"
)

// remembered is how many commits are kept for people to look at.
const remembered = 100

// Commit is what one commit was and cost.
type Commit struct {
	Revision store.Revision `json:"revision"`
	At       time.Time      `json:"at"`
	Duration Millis         `json:"ms"`
	// Jobs is how many batches, connects and rejections went into it; Objects how many objects, by source.
	Jobs    int            `json:"jobs"`
	Objects map[string]int `json:"objects,omitempty"`
	// Cells is how many cells ran, by query.
	Cells map[string]int `json:"cells,omitempty"`
	// Classes is how many class states changed, Streams how many streams were told.
	Classes int `json:"classes"`
	Streams int `json:"streams"`
}

// Millis is a duration that JSON shows as milliseconds.
type Millis time.Duration

// MarshalJSON writes milliseconds with three digits behind the point.
func (m Millis) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(m)/float64(time.Millisecond), 'f', 3, 64), nil
}

// UnmarshalJSON reads milliseconds.
func (m *Millis) UnmarshalJSON(b []byte) error {
	ms, err := strconv.ParseFloat(string(b), 64)
	*m = Millis(ms * float64(time.Millisecond))
	return err
}

// Commits is the memory of the last commits.
type Commits struct {
	mu   sync.Mutex
	ring [remembered]Commit
	n    int
}

// Observe remembers a commit.
func (c *Commits) Observe(commit push.Commit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ring[c.n%remembered] = Commit{
		Revision: commit.Revision, At: commit.At, Duration: Millis(commit.Duration), Jobs: commit.Jobs,
		Objects: commit.Objects, Cells: commit.Cells, Classes: commit.Classes, Streams: commit.Streams,
	}
	c.n++
}

// Last lists the remembered commits, the latest one first.
func (c *Commits) Last() []Commit {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]Commit, 0, min(c.n, remembered))
	for i := c.n - 1; i >= max(0, c.n-remembered); i-- {
		list = append(list, c.ring[i%remembered])
	}
	return list
}
