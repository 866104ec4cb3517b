package server

import (
	"sync"

	"github.com/pilotmesh/pilot/internal/xds/protocol"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// answers are what the mesh answered and no worker has taken in: of each name the last one, so their number is bounded by that of
// the names a stream may ask for.
type answers struct {
	mu   sync.Mutex
	list []protocol.Answer
	at   map[answerKey]int // places in the list
}

type answerKey struct {
	typ  resource.Type
	name string
}

func (a *answers) add(list []protocol.Answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range list {
		k := answerKey{n.Type, n.Name}
		if i, ok := a.at[k]; ok {
			a.list[i] = n
			continue
		}
		if a.at == nil {
			a.at = map[answerKey]int{}
		}
		a.at[k] = len(a.list)
		a.list = append(a.list, n)
	}
}

func (a *answers) take() []protocol.Answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.list
	a.list, a.at = nil, nil
	return list
}

func (a *answers) empty() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.list) == 0
}
