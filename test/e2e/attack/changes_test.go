package attack

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// load sends requests that must be refused, over new and over kept connections, until it is stopped.
type load struct {
	stop    context.CancelFunc
	workers sync.WaitGroup

	mu      sync.Mutex
	refused int
	passed  []outcome
}

// pressure starts a load of one request.
func (b *bed) pressure(t *testing.T, h hit) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{stop: cancel}
	for range 2 {
		l.workers.Go(func() {
			for ctx.Err() == nil {
				l.count(ctx, b.strike(ctx, h))
				pause(ctx, 5*time.Millisecond)
			}
		})
	}
	l.workers.Go(func() {
		for ctx.Err() == nil {
			b.repeat(ctx, h, l)
			pause(ctx, 10*time.Millisecond)
		}
	})
	return l
}

// repeat sends a request again and again over one connection.
func (b *bed) repeat(ctx context.Context, h hit, l *load) {
	c, err := b.dial(ctx, h)
	if err != nil {
		return
	}
	defer c.Close()
	in := bufio.NewReader(c)
	for range 200 {
		if _, err := io.WriteString(c, h.text()); err != nil || ctx.Err() != nil {
			return
		}
		_ = c.SetDeadline(time.Now().Add(b.limit()))
		o := readAnswer(in)
		l.count(ctx, o)
		if o.status == 0 {
			return
		}
		pause(ctx, 4*time.Millisecond)
	}
}

func (l *load) count(ctx context.Context, o outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case o.reached():
		l.passed = append(l.passed, o)
	case ctx.Err() == nil:
		l.refused++
	}
}

// end stops a load, and says what passed.
func (l *load) end(t *testing.T, gaps map[string]string, what string) {
	t.Helper()
	l.stop()
	l.workers.Wait()
	var wrong []string
	o := outcome{detail: fmt.Sprintf("%d refused", l.refused)}
	if len(l.passed) > 0 {
		wrong, o = append(wrong, fmt.Sprintf("%d requests passed, %d were refused", len(l.passed), l.refused)), l.passed[0]
	}
	if l.refused == 0 {
		t.Errorf("%s: no request was sent", what)
	}
	verdict(t, gaps, t.Name()+"/"+what, wrong, o)
}

// pause is a part of an attack: the time between two writes or two requests.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// turn is a pair of sets of policies that refuse the same request.
type turn struct {
	what   string
	hit    hit
	one, b []policy
}

func turns(i *issuer) []turn {
	plain := get("/a")
	issuers := func(list ...object) []policy { return []policy{tokensOf(list...), allowPaths("/x")} }
	byPort := mutual("PERMISSIVE").selecting()
	byPort.spec["portLevelMtls"] = object{fmt.Sprint(httpPort): object{"mode": "STRICT"}}
	question := plain.with(refuseHeader, "1")
	return []turn{
		{"DENY is edited", plain, []policy{denyPaths("/a")}, []policy{denyPaths("/a", "/b")}},
		{"DENY is renamed", plain, []policy{denyPaths("/a").called("one")}, []policy{denyPaths("/a").called("other")}},
		{"DENY becomes ALLOW of others", plain, []policy{denyPaths("/a")}, []policy{allowPaths("/b")}},
		{"DENY moves to the mesh", plain, []policy{denyPaths("/a").called("moved")}, []policy{denyPaths("/a").everywhere().called("moved")}},
		{"DENY selects the workload", plain, []policy{denyPaths("/a")}, []policy{denyPaths("/a").selecting()}},
		{"STRICT moves to the mesh", plain, []policy{mutual("STRICT")}, []policy{mutual("STRICT").everywhere()}},
		{"STRICT for a port", plain, []policy{mutual("STRICT")}, []policy{byPort}},
		{"another authorizer", question, []policy{ask("asker", "/a")}, []policy{ask("rpc-asker", "/a")}},
		{"an authorizer becomes DENY", question, []policy{ask("asker", "/a")}, []policy{denyPaths("/a")}},
		{"an issuer more", plain, issuers(i.ruleOne(nil)), issuers(i.ruleOne(nil), i.ruleTwo(nil))},
	}
}

// TestChanges: a request that is refused before and after a change is refused during the change, on new and on kept connections.
func TestChanges(t *testing.T) {
	b := enter(t)
	gaps := readGaps(t)
	for _, c := range turns(b.tokens) {
		b.enforce(t, "", c.one...)
		b.until(t, "the request to be refused", c.hit, refused)
		l := b.pressure(t, c.hit)
		for range 3 {
			b.enforce(t, "", c.b...)
			b.enforce(t, "", c.one...)
		}
		l.end(t, gaps, c.what)
		b.free(t)
	}
}

// free takes all policies away, and waits until it shows.
func (b *bed) free(t *testing.T) {
	t.Helper()
	b.enforce(t, "")
	b.until(t, "no policy to be left", get("/a"), reached)
}

// writing is a way to write a file that is not one step.
type writing struct {
	what  string
	write func(ctx context.Context, path, text string) error
}

func writings() []writing {
	// cut writes a file up to a part of it, and the rest after a while.
	cut := func(share float64, d time.Duration) func(context.Context, string, string) error {
		return func(ctx context.Context, path, text string) error {
			f, err := os.Create(path)
			if err != nil {
				return err
			}
			defer f.Close()
			n := int(share * float64(len(text)))
			if _, err := f.WriteString(text[:n]); err != nil {
				return err
			}
			pause(ctx, d)
			_, err = f.WriteString(text[n:])
			return err
		}
	}
	return []writing{
		{"at once, in place", func(_ context.Context, path, text string) error { return os.WriteFile(path, []byte(text), 0o600) }},
		{"empty for 30 ms", cut(0, 30*time.Millisecond)}, {"empty for 200 ms", cut(0, 200*time.Millisecond)}, {"empty for 2 s", cut(0, 2*time.Second)},
		{"a half for 200 ms", cut(0.5, 200*time.Millisecond)}, {"a tenth for 200 ms", cut(0.1, 200*time.Millisecond)},
	}
}

// TestWrittenInPieces: a file that is written in place, with pauses, takes away no policy that it has before and after.
func TestWrittenInPieces(t *testing.T) {
	b := enter(t)
	gaps := readGaps(t)
	path := filepath.Join(b.plane.ConfigDir, "policies.yaml")
	for _, w := range writings() {
		b.enforce(t, "", allowPaths("/x"), denyPaths("/a"), mutual("STRICT"))
		l := b.pressure(t, get("/a").as("cli"))
		for range 3 {
			b.generation++
			mark := fmt.Sprintf("/set-%d", b.generation)
			if err := w.write(t.Context(), path, written(mark, allowPaths("/x"), denyPaths("/a"), mutual("STRICT"))); err != nil {
				t.Fatal(err)
			}
			b.obeys(t, mark)
		}
		l.end(t, gaps, w.what)
	}
	b.free(t)
}
