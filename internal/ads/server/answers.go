package server

import (
	"sync"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// answers are answers of the mesh that no worker has processed. There is one per name, the last one, so their number is bounded
// by the number of names that a stream may ask for.
type answers struct {
	mu   sync.Mutex
	list []protocol.Answer
	// index is the place of each name in list.
	index map[answerKey]int
}

type answerKey struct {
	typ  resource.Type
	name string
}

// add adds answers. A later answer to a name replaces an earlier one.
func (a *answers) add(list []protocol.Answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range list {
		k := answerKey{n.Type, n.Name}
		if i, ok := a.index[k]; ok {
			a.list[i] = n
			continue
		}
		if a.index == nil {
			a.index = map[answerKey]int{}
		}
		a.index[k] = len(a.list)
		a.list = append(a.list, n)
	}
}

// take removes and returns all answers.
func (a *answers) take() []protocol.Answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.list
	a.list, a.index = nil, nil
	return list
}

func (a *answers) empty() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.list) == 0
}
