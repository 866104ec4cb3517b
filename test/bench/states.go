package main

import (
	"runtime"
	"sync"
	"weak"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// stateLog knows, without keeping them alive, all class states that were given to streams. A namespace is a class here.
type stateLog struct {
	mu    sync.Mutex
	given map[string]map[weak.Pointer[resource.State]]bool
}

func newStateLog() *stateLog {
	return &stateLog{given: make(map[string]map[weak.Pointer[resource.State]]bool)}
}

// watch returns a watcher that records the states that a stream is given, and passes them on.
func (l *stateLog) watch(namespace string, w loop.Watcher) loop.Watcher {
	return &stateWatcher{l, namespace, w}
}

type stateWatcher struct {
	log       *stateLog
	namespace string
	to        loop.Watcher
}

// Update passes a state on.
func (*stateWatcher) Answer([]protocol.Answer) {}

func (w *stateWatcher) Update(s *resource.State) {
	w.log.mu.Lock()
	of := w.log.given[w.namespace]
	if of == nil {
		of = make(map[weak.Pointer[resource.State]]bool)
		w.log.given[w.namespace] = of
	}
	of[weak.Make(s)] = true
	w.log.mu.Unlock()
	w.to.Update(s)
}

// live counts the states that are still referenced, in the namespace that has most of them.
func (l *stateLog) live() int {
	runtime.GC()
	runtime.GC()
	l.mu.Lock()
	defer l.mu.Unlock()
	most := 0
	for _, of := range l.given {
		n := 0
		for p := range of {
			if p.Value() != nil {
				n++
			} else {
				delete(of, p)
			}
		}
		most = max(most, n)
	}
	return most
}
