package sandbox

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestWhole: a list that changed while it was written down is asked for again, and another error is one.
func TestWhole(t *testing.T) {
	asked := 0
	list, err := whole(func() ([]int, error) {
		if asked++; asked < 3 {
			return []int{1}, netlink.ErrDumpInterrupted
		}
		return []int{1, 2}, nil
	})
	if err != nil || len(list) != 2 || asked != 3 {
		t.Errorf("%v, %v, asked %d times", list, err, asked)
	}
	broken := errors.New("broken")
	if _, err := whole(func() ([]int, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
	if _, err := whole(func() ([]int, error) { return nil, netlink.ErrDumpInterrupted }); !errors.Is(err, netlink.ErrDumpInterrupted) {
		t.Error(err)
	}
}
