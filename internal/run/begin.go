package run

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// ErrStopped says that a program was asked to stop before its start was complete.
var ErrStopped = errors.New("asked to stop before the start was complete")

// Begin runs work and returns its error. work calls begun when it receives from stop itself. Before that, a request to stop makes Begin return
// ErrStopped, and a start that takes longer than limit makes it return an error. Then work is left running, because whatever holds it, such as
// a file system that does not answer, may hold it for ever; the program must exit.
func Begin(stop chan os.Signal, limit time.Duration, work func(begun func()) error) error {
	listening, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- work(func() { close(listening) }) }()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-listening:
		return <-done
	case signal := <-stop:
		select {
		case <-listening: // both happened at once; work decides
			stop <- signal
			return <-done
		default:
			return ErrStopped
		}
	case <-late.C:
		return fmt.Errorf("the start has taken longer than %v; look for a file system, a name server or a program that does not answer", limit)
	}
}
