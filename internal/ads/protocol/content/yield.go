package content

import "runtime"

// Yielder counts the steps of a large move and lets other goroutines run after every 256 of them. A stream that has
// little to send must not wait for one that is sent everything.
type Yielder int

// Step counts one step.
func (y *Yielder) Step() {
	if *y++; *y%256 == 0 {
		runtime.Gosched()
	}
}
