package protocol

import (
	"strings"
	"testing"
)

// TestSharedForgetsStates checks that unused results do not keep states in memory.
func TestSharedForgetsStates(t *testing.T) {
	var out strings.Builder
	c := newConversation("delta: x", &out)
	for _, line := range []string{"state 1: CDS a=1", "CDS", "ack CDS", "state 2: CDS a=2", "ack CDS"} {
		must(t, c.command(line))
	}
	c.shared.Forget()
	c.shared.Forget()
	if n := c.shared.moves.Len() + c.shared.pinned.Len() + c.shared.subscriptions.Len(); n != 0 {
		t.Errorf("%d results are kept", n)
	}
}
