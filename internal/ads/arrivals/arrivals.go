// Package arrivals logs which proxies come and go.
//
// It owns the bound of these lines: of each kind, the first few in a second are logged one by one, and the others of that second in one
// line with their number. So a control plane from which ten thousand proxies part, or to which they return, logs some dozens of lines.
// Lines have the revision of the last commit, by which they are joined with those about commits and problems.
//
// Goroutines: none of its own. Came and Went may be called from many at the same time; Run works in its caller's.
package arrivals

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// burst is how many lines of each kind are logged in a second.
const burst = 20

// Visit is a connected proxy, or the stream of its agent.
type Visit struct {
	// Proxy is the node id, and Name its part name.namespace.
	Proxy, Name, Namespace string
	// From is the address of the client, Envoy and Agent are the versions that it reports, and Identity is its authenticated identity.
	// Each is empty if it is not known.
	From, Envoy, Agent, Identity string
	// OfAgent is true for a stream of an agent beside the stream of its proxy. It is logged at debug level.
	OfAgent bool
	// Stream is the number of the stream, and Opened the time when it was opened.
	Stream uint64
	Opened time.Time
}

// Log logs visits.
type Log struct {
	log      *slog.Logger
	revision atomic.Uint64

	mu         sync.Mutex
	came, went tally
}

// tally counts the lines of a kind in the present second.
type tally struct{ logged, more int }

// take reports whether another line may be logged.
func (t *tally) take() bool {
	if t.logged == burst {
		t.more++
		return false
	}
	t.logged++
	return true
}

// New returns a log that writes to another one.
func New(log *slog.Logger) *Log { return &Log{log: log} }

// Committed notes the revision of the last commit.
func (l *Log) Committed(revision uint64) { l.revision.Store(revision) }

// Came logs that a proxy has connected.
func (l *Log) Came(v Visit) {
	if l.may(&l.came, v) {
		l.log.LogAttrs(context.Background(), v.level(), v.kind()+" connected", append(v.attrs(), //nolint:sloglint // two kinds of clients
			known(slog.String("envoy", v.Envoy), slog.String("agent", v.Agent), slog.String("identity", v.Identity), l.at())...)...)
	}
}

// Went logs that a proxy has gone, and why.
func (l *Log) Went(v Visit, reason string) {
	if l.may(&l.went, v) {
		l.log.LogAttrs(context.Background(), v.level(), v.kind()+" gone", append(v.attrs(), //nolint:sloglint // two kinds of clients
			slog.String("after", time.Since(v.Opened).Round(time.Millisecond).String()), slog.String("reason", reason), l.at())...)
	}
}

// may counts a line, and reports whether it is to be logged. Lines that the level hides are not counted.
func (l *Log) may(t *tally, v Visit) bool {
	if !l.log.Enabled(context.Background(), v.level()) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return t.take()
}

// Run begins a second each second, until ctx ends.
func (l *Log) Run(ctx context.Context) error {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case <-ctx.Done():
			l.turn()
			return nil
		case <-second.C:
			l.turn()
		}
	}
}

// turn ends a second: it logs how many lines were left out.
func (l *Log) turn() {
	l.mu.Lock()
	came, went := l.came.more, l.went.more
	l.came, l.went = tally{}, tally{}
	l.mu.Unlock()
	for _, one := range []struct {
		n    int
		what string
	}{{came, "connected"}, {went, "are gone"}} {
		if one.n > 0 {
			l.log.LogAttrs(context.Background(), slog.LevelInfo, fmt.Sprintf("and %d more proxies %s in the last second", one.n, one.what), l.at()) //nolint:sloglint // the number is part of the sentence
		}
	}
}

func (l *Log) at() slog.Attr { return slog.Uint64("revision", l.revision.Load()) }

func (v Visit) level() slog.Level {
	if v.OfAgent {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

func (v Visit) kind() string {
	if v.OfAgent {
		return "agent"
	}
	return "proxy"
}

func (v Visit) attrs() []slog.Attr {
	return known(slog.String("name", v.Name), slog.String("namespace", v.Namespace), slog.String("proxy", v.Proxy), slog.String("from", v.From), slog.Uint64("stream", v.Stream))
}

// known leaves out attributes without a value.
func known(list ...slog.Attr) []slog.Attr {
	kept := list[:0]
	for _, a := range list {
		if a.Value.Kind() != slog.KindString || a.Value.String() != "" {
			kept = append(kept, a)
		}
	}
	return kept
}
