package admin

import (
	"strconv"
	"sync"
	"time"

	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/loop"
)

// remembered is the maximum number of commits in the list.
const remembered = 100

// Commit describes one commit and its cost.
type Commit struct {
	Revision store.Revision `json:"revision"`
	At       time.Time      `json:"at"`
	Duration Millis         `json:"ms"`
	// Jobs is the number of batches, connects and rejections in the commit. Objects is the number of objects by source.
	Jobs    int            `json:"jobs"`
	Objects map[string]int `json:"objects,omitempty"`
	// Cells is the number of cells that ran, by query.
	Cells map[string]int `json:"cells,omitempty"`
	// Classes is the number of class states that changed. Streams is the number of streams that received a new state.
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

// Commits is the list of the last commits.
type Commits struct {
	mu   sync.Mutex
	ring [remembered]Commit
	n    int
}

// Observe adds a commit.
func (c *Commits) Observe(commit loop.Commit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ring[c.n%remembered] = Commit{
		Revision: commit.Revision, At: commit.At, Duration: Millis(commit.Duration), Jobs: commit.Jobs,
		Objects: commit.Objects, Cells: commit.Cells, Classes: commit.Classes, Streams: commit.Streams,
	}
	c.n++
}

// Last returns the commits in the list, the latest one first.
func (c *Commits) Last() []Commit {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]Commit, 0, min(c.n, remembered))
	for i := c.n - 1; i >= max(0, c.n-remembered); i-- {
		list = append(list, c.ring[i%remembered])
	}
	return list
}
