// Package retry paces attempts that failed. Every loop that tries again takes its pauses from here, so that all of them grow alike, and
// so that programs that failed at the same moment do not all try again at the same moment.
//
// The package has no goroutines.
package retry

import (
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Pauses returns the pauses between attempts: about first, then twice as long each time, up to about longest. Each is up to a half shorter or
// longer, by chance. NextBackOff returns the next pause, and Reset begins again. The value is for one goroutine.
func Pauses(first, longest time.Duration) *backoff.ExponentialBackOff {
	const either = 0.5
	p := &backoff.ExponentialBackOff{InitialInterval: first, RandomizationFactor: either, Multiplier: 2, MaxInterval: longest}
	p.Reset()
	return p
}

// Early shortens the time until work that is repeated by up to a tenth, by chance, so that work which began at the same time does not come back at the
// same time.
func Early(d time.Duration) time.Duration { return d - rand.N(max(d/10, 1)) }
