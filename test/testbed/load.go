package testbed

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Load asks one question at a steady rate until it is stopped, and counts who answered and what failed.
type Load struct {
	ask     func(context.Context) (who string, err error)
	client  *http.Client
	cancel  context.CancelFunc
	workers sync.WaitGroup

	mu    sync.Mutex
	tally Tally
}

// Tally is what a Load has counted.
type Tally struct {
	Answers  map[string]int // by backend
	Failures int
	First    error // of the failures
}

// Total is the number of requests that ended.
func (t Tally) Total() int {
	n := t.Failures
	for _, a := range t.Answers {
		n += a
	}
	return n
}

// StartLoad sends perSecond requests to a host by each of a number of workers, each with one request in flight at a time.
func StartLoad(ctx context.Context, port int, host string, workers, perSecond int) *Load {
	return StartAsking(ctx, workers, perSecond, func(ctx context.Context, client *http.Client) (string, error) {
		a, err := Call(ctx, client, port, host, "/")
		return a.Name, err
	})
}

// StartAsking is StartLoad with a request of any kind: ask sends it and says who answered.
func StartAsking(ctx context.Context, workers, perSecond int, ask func(context.Context, *http.Client) (who string, err error)) *Load {
	ctx, cancel := context.WithCancel(ctx)
	client := NewClient()
	l := &Load{client: client, cancel: cancel, tally: Tally{Answers: map[string]int{}}}
	l.ask = func(ctx context.Context) (string, error) { return ask(ctx, client) }
	for range workers {
		l.workers.Go(func() { l.work(ctx, time.Second/time.Duration(perSecond)) })
	}
	return l
}

// NewClient is an HTTP client that keeps its connections and follows no redirects.
func NewClient() *http.Client {
	return &http.Client{
		Timeout:       10 * time.Second,
		Transport:     &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (l *Load) work(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// Not bound to ctx: a request that was sent is waited for, or stopping would look like a failure.
		who, err := l.ask(context.WithoutCancel(ctx))
		l.mu.Lock()
		if err == nil {
			l.tally.Answers[who]++
		} else if l.tally.Failures++; l.tally.First == nil {
			l.tally.First = fmt.Errorf("%s: %w", time.Now().Format("15:04:05.000"), err)
		}
		l.mu.Unlock()
	}
}

// Take returns the counts since the last Take and resets them.
func (l *Load) Take() Tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tally
	l.tally = Tally{Answers: map[string]int{}}
	return t
}

// Stop ends the load, waits for the requests under way and returns the counts since the last Take.
func (l *Load) Stop() Tally {
	l.cancel()
	l.workers.Wait()
	l.client.CloseIdleConnections()
	return l.Take()
}
