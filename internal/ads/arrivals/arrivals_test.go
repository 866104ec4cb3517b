package arrivals

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// logged returns a log, and a function that returns the lines written since its last call.
func logged(level slog.Level) (*Log, func() []string) {
	var out bytes.Buffer
	h := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "after" {
			return slog.Attr{}
		}
		return a
	}})
	return New(slog.New(h)), func() []string {
		defer out.Reset()
		return strings.Split(strings.TrimSpace(out.String()), "\n")
	}
}

func visit(i int) Visit {
	name := fmt.Sprintf("web-%d.shop", i)
	return Visit{Proxy: "sidecar~10.0.0.1~" + name + "~x", Name: name, Namespace: "shop", From: "10.0.0.1:4000", Envoy: "1.40.0", Stream: uint64(i), Opened: time.Now()}
}

func TestLines(t *testing.T) {
	l, lines := logged(slog.LevelInfo)
	l.Committed(7)
	l.Came(visit(1))
	l.Went(visit(1), "the proxy closed the stream")
	l.Came(Visit{Name: "web-1.shop", OfAgent: true})
	l.turn()
	const of = ` namespace=shop proxy=sidecar~10.0.0.1~web-%d.shop~x from=10.0.0.1:4000 stream=%d`
	want := []string{
		fmt.Sprintf(`level=INFO msg="proxy connected" name=web-1.shop`+of+` envoy=1.40.0 revision=7`, 1, 1),
		fmt.Sprintf(`level=INFO msg="proxy gone" name=web-1.shop`+of+` reason="the proxy closed the stream" revision=7`, 1, 1),
	}
	if got := lines(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestBound: ten thousand proxies that go and return log a bounded number of lines, which name the first and count the others; the next
// second starts a new count.
func TestBound(t *testing.T) {
	l, lines := logged(slog.LevelInfo)
	for i := range 10_000 {
		l.Went(visit(i), "")
		l.Came(visit(i))
		l.Came(Visit{OfAgent: true}) // hidden by the level, so it does not count against the burst
	}
	l.turn()
	got := lines()
	if len(got) != 2*burst+2 {
		t.Fatalf("%d lines", len(got))
	}
	for i, want := range []string{`msg="and 9980 more proxies connected in the last second"`, `msg="and 9980 more proxies are gone in the last second"`} {
		if !strings.Contains(got[2*burst+i], want) {
			t.Errorf("%s, want %s", got[2*burst+i], want)
		}
	}
	l.turn()
	l.Came(visit(1))
	if got := lines(); len(got) != 1 || !strings.Contains(got[0], `msg="proxy connected"`) {
		t.Errorf("in the next second: %q", got)
	}
}
