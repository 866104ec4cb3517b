package run

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestBegin: until the work listens, a signal or a start that takes too long ends it; then the work alone decides.
func TestBegin(t *testing.T) {
	failed := errors.New("it broke")
	for name, c := range map[string]struct {
		listens time.Duration // after which the work listens; 0 for never
		ends    time.Duration // after which it ends
		signal  time.Duration // after which a signal comes; 0 for never
		want    string
		after   time.Duration
	}{
		"it ends":                          {0, time.Second, 0, "it broke", time.Second},
		"it listens and ends":              {time.Second, time.Hour, 0, "it broke", time.Hour},
		"a signal while it hangs":          {0, 10 * time.Hour, time.Second, ErrStopped.Error(), time.Second},
		"a signal while it listens":        {time.Second, time.Hour, 2 * time.Second, "it was asked", 2 * time.Second},
		"nothing while it hangs":           {0, 10 * time.Hour, 0, "the start has taken longer than 1m0s; look for", time.Minute},
		"nothing while it hangs but works": {time.Second, 2 * time.Minute, 0, "it broke", 2 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			stop := make(chan os.Signal, 8)
			if c.signal > 0 {
				time.AfterFunc(c.signal, func() { stop <- syscall.SIGTERM })
			}
			began, ended := time.Now(), make(chan struct{})
			err := Begin(stop, time.Minute, func(begun func()) error {
				defer close(ended)
				end := time.After(c.ends)
				if c.listens == 0 {
					<-end
					return failed
				}
				<-time.After(c.listens)
				begun()
				select {
				case <-stop:
					return errors.New("it was asked")
				case <-end:
					return failed
				}
			})
			if err == nil || !strings.Contains(err.Error(), c.want) || time.Since(began) != c.after {
				t.Errorf("%s: %v after %v; want %s after %v", name, err, time.Since(began), c.want, c.after)
			}
			<-ended
		})
	}
}
