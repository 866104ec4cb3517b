package protocol

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func TestMemoComputesOnceAndForgets(t *testing.T) {
	m := newMemo[int, int](4)
	var computed atomic.Int32
	get := func(k int) int {
		return m.get(k, func() int { computed.Add(1); return -k })
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if v := get(1); v != -1 {
				t.Errorf("got %d", v)
			}
		})
	}
	group.Wait()
	if n := computed.Load(); n != 1 {
		t.Errorf("computed %d times", n)
	}
	m.forget()
	get(1) // asked for, so it stays
	m.forget()
	m.forget()
	if m.len() != 0 {
		t.Errorf("%d are remembered", m.len())
	}
	for k := range 1000 {
		get(k)
	}
	if m.len() > 8 {
		t.Errorf("%d are remembered, the limit is 4 and as many old ones", m.len())
	}
}

func TestMemoSurvivesAPanic(t *testing.T) {
	m := newMemo[int, int](4)
	func() {
		defer func() { _ = recover() }()
		m.get(1, func() int { panic("bug") })
	}()
	if v := m.get(1, func() int { return 7 }); v != 7 {
		t.Errorf("got %d", v)
	}
}

// TestSharedForgetsStates checks that unused results do not keep states in memory.
func TestSharedForgetsStates(t *testing.T) {
	var out strings.Builder
	c := newConversation("delta: x", &out)
	for _, line := range []string{"state 1: CDS a=1", "CDS", "ack CDS", "state 2: CDS a=2", "ack CDS"} {
		must(t, c.command(line))
	}
	c.shared.Forget()
	c.shared.Forget()
	if n := c.shared.moves.len() + c.shared.pinned.len() + c.shared.subscriptions.changes.len(); n != 0 {
		t.Errorf("%d results are kept", n)
	}
}
