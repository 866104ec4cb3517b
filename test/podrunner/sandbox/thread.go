package sandbox

import "runtime"

// thread runs functions one after another on one operating-system thread: namespaces and parent-death signals belong to
// threads.
type thread struct {
	calls chan func()
	ended chan struct{}
}

func newThread() *thread {
	t := &thread{calls: make(chan func()), ended: make(chan struct{})}
	go func() {
		// Never unlocked: a thread that might be in a wrong namespace must end with its goroutine, not be used again.
		runtime.LockOSThread()
		defer close(t.ended)
		for call := range t.calls {
			call()
		}
	}()
	return t
}

// do runs f on the thread and returns what f does.
func (t *thread) do(f func() error) error {
	result := make(chan error, 1)
	t.calls <- func() { result <- f() }
	return <-result
}

func (t *thread) close() {
	close(t.calls)
	<-t.ended
}

// once runs f on a thread that is thrown away afterwards.
func once(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		result <- f()
	}()
	return <-result
}
