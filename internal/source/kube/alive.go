package kube

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// living is a watch that ends when it has delivered nothing for a time. A connection may be dead without either side noticing.
type living struct {
	inner watch.Interface
	out   chan watch.Event
	stop  chan struct{}
	once  sync.Once
}

// alive returns the watch with this limit. It calls silent before it ends the watch for this reason. running counts the goroutine
// that passes events on, which ends when the watch is stopped.
func alive(inner watch.Interface, limit time.Duration, running *sync.WaitGroup, silent func()) watch.Interface {
	l := &living{inner: inner, out: make(chan watch.Event), stop: make(chan struct{})}
	running.Add(1)
	go func() {
		defer running.Done()
		l.forward(limit, silent)
	}()
	return l
}

// forward passes events on until the watch ends, is stopped, or is silent for too long.
func (l *living) forward(limit time.Duration, silent func()) {
	defer close(l.out)
	defer l.inner.Stop()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case e, ok := <-l.inner.ResultChan():
			if !ok {
				return
			}
			select {
			case l.out <- e:
			case <-l.stop:
				return
			}
			timer.Reset(limit)
		case <-timer.C:
			silent()
			return
		case <-l.stop:
			return
		}
	}
}

// Stop implements watch.Interface.
func (l *living) Stop() { l.once.Do(func() { close(l.stop) }) }

// ResultChan implements watch.Interface.
func (l *living) ResultChan() <-chan watch.Event { return l.out }
