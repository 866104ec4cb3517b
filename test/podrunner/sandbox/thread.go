package sandbox

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// thread runs functions one after another on one operating-system thread: namespaces and parent-death signals belong to
// threads. The test kit's package process keeps a thread for each process it starts; here one thread starts all processes of a
// host, which die together when it ends.
type thread struct {
	calls chan func()
	ended chan struct{}
}

func newThread() *thread {
	t := &thread{calls: make(chan func()), ended: make(chan struct{})}
	own(func() {
		defer close(t.ended)
		for call := range t.calls {
			call()
		}
	})
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
	own(func() { result <- f() })
	return <-result
}

// own runs f in a goroutine with a thread of its own, which ends with it: a thread that might be in a wrong namespace must
// not be used again. The process's first thread cannot end, and its namespaces show as the process's: it is not used.
func own(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		locked := make(chan struct{})
		go func() {
			runtime.LockOSThread() // another thread, because the first one is taken
			close(locked)
			f()
		}()
		<-locked
		runtime.UnlockOSThread()
	}()
}
