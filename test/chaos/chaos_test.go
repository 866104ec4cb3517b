package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/test/testbed"
)

// TestShort is one round of what `make chaos` does for ten minutes.
func TestShort(t *testing.T) {
	o := options{length: time.Second, seed: rand.Uint64()>>32 | 1, envoys: 2}
	if err := run(t.Context(), o, t.Output()); err != nil {
		t.Fatal(err)
	}
}

// TestFollowers is many short rounds of it with clients that hold what a sidecar would, in the place of Envoys.
func TestFollowers(t *testing.T) {
	seed := rand.Uint64()>>32 | 1
	t.Logf("seed %d", seed)
	programs, err := build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	m := &mayhem{Rand: rand.New(rand.NewPCG(seed, seed)), files: newFiles(), w: t.Output(), counted: map[string]int{}}
	m.mesh = &mesh{programs: programs, dir: filepath.Join(dir, "hot")}
	defer m.mesh.stop()
	if err := m.mesh.start(t.Context(), m.files.draw(m.Rand), 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var hot []*follower
	defer func() {
		cancel()
		running.Wait()
		for _, f := range hot {
			for _, fault := range f.faults {
				t.Errorf("%s: %s", fault.Rule, fault.Text)
			}
		}
	}()
	for i := range namespaces {
		hot = append(hot, follow(ctx, t, &running, m.mesh, i))
	}
	for round := range 8 {
		for range 5 + m.IntN(20) {
			if err := m.act(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := m.pause(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.rest(t.Context()); err != nil {
			t.Fatal(err)
		}
		compareFollowers(t, m, filepath.Join(dir, fmt.Sprint("cold-", round)), hot)
	}
}

// follow starts the follower of a node of a mesh.
func follow(ctx context.Context, t *testing.T, running *sync.WaitGroup, m *mesh, i int) *follower {
	t.Helper()
	f, err := newFollower(m.discovery.GRPC, testbed.Node{Name: fmt.Sprint("client-", i), Namespace: namespaces[i], IP: fmt.Sprintf("127.1.0.%d", i+1)})
	if err != nil {
		t.Fatal(err)
	}
	running.Go(func() { f.run(ctx) })
	return f
}

// compareFollowers starts a mesh cold on the files as they are, and waits until the hot followers hold the same as the followers there.
func compareFollowers(t *testing.T, m *mayhem, dir string, hot []*follower) {
	t.Helper()
	served, err := m.served()
	if err != nil {
		t.Fatal(err)
	}
	cold := &mesh{programs: m.mesh.programs, dir: dir}
	defer cold.stop()
	if err := cold.start(t.Context(), served, 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for i, h := range hot {
		twin := follow(ctx, t, &running, cold, i)
		err := testbed.Until(ctx, "the same as after a cold start", func(context.Context) error {
			if text := h.differs(twin); text != "" {
				return errors.New(text)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestDrawnFilesAreValid: files drawn as valid are valid; files drawn as broken are not always broken.
func TestDrawnFilesAreValid(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	refused := 0
	for range 500 {
		text := newFiles().content(r)
		for _, d := range api.Decode("drawn.yaml", []byte(text)) {
			d.Check()
			if api.Failed(d.Problems) {
				t.Fatalf("%v\n%s", d.Problems, text)
			}
		}
		for _, d := range api.Decode("broken.yaml", []byte(broken(r, text))) {
			d.Check()
			if api.Failed(d.Problems) {
				refused++
			}
		}
	}
	if refused < 250 {
		t.Errorf("%d of 500 broken files are refused", refused)
	}
}
