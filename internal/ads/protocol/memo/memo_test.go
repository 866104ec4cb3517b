package memo

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestMemoComputesOnceAndForgets(t *testing.T) {
	m := New[int, int](4)
	var computed atomic.Int32
	get := func(k int) int {
		return m.Get(k, func() int { computed.Add(1); return -k })
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
	m.Forget()
	get(1) // asked for, so it stays
	m.Forget()
	m.Forget()
	if m.Len() != 0 {
		t.Errorf("%d are remembered", m.Len())
	}
	for k := range 1000 {
		get(k)
	}
	if m.Len() > 8 {
		t.Errorf("%d are remembered, the limit is 4 and as many old ones", m.Len())
	}
}

func TestMemoSurvivesAPanic(t *testing.T) {
	m := New[int, int](4)
	func() {
		defer func() { _ = recover() }()
		m.Get(1, func() int { panic("bug") })
	}()
	if v := m.Get(1, func() int { return 7 }); v != 7 {
		t.Errorf("got %d", v)
	}
}
