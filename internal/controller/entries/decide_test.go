package entries

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/view/registration"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// TestDecide reads testdata/decide.txt. Each line is a situation, and after "->" the step that it leads to. Times are seconds; the replica
// is "me" and has started at 10; the grace is 5 seconds, and a replica counts as gone after 20. Words of a situation:
//
//	connected=T       a proxy of this replica asks for the entry since T; "no group" says that it cannot be made
//	healthy unhealthy what the proxy has reported
//	entry=WHO,T,T     the entry in the cluster: its replica, since when its proxy is connected, and since when no more; is-healthy
//	                  and is-unhealthy are its condition
//	foreign           an entry that no control plane has made
//	leading=T         this replica leads since T; pod says that it is a pod, and gone that the entry's replica is none
//	was=T             since when its proxy was connected no more, as this replica has seen it, if the entry in the cluster says otherwise
//	seen=T            since when this replica has seen the entry so
//	now=T             the time
func TestDecide(t *testing.T) {
	const file = "testdata/decide.txt"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(data)) {
		before, want, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "->")
		if !ok {
			out.WriteString(line)
			continue
		}
		got := told(nextStep(situation(t, before)))
		if got != strings.TrimSpace(want) && !*update {
			t.Errorf("%s-> %s, want %s", before, got, strings.TrimSpace(want))
		}
		fmt.Fprintf(&out, "%s-> %s\n", before, got)
	}
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func second(t *testing.T, text string) time.Time {
	if text == "" {
		return time.Time{}
	}
	var n int64
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatal(text, err)
	}
	return time.Unix(n, 0).UTC()
}

func situation(t *testing.T, text string) (registration.Facts, Live, circumstances) {
	f := registration.Facts{Key: api.Key{Kind: api.KindWorkloadEntry, Namespace: "a", Name: "vm-1"}}
	entry := &registration.Entry{Group: api.Key{Kind: api.KindWorkloadGroup, Namespace: "a", Name: "vm"}, Spec: &networking.WorkloadEntry{}}
	var live Live
	s := circumstances{Self: "me", Start: second(t, "10"), Grace: 5 * time.Second, Orphan: 20 * time.Second}
	for word := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "connected":
			f.Connected, f.Entry = second(t, value), entry
		case "nogroup":
			f.Entry = nil
		case "healthy":
			f.Health.State = connected.Healthy
		case "unhealthy":
			f.Health = connected.Health{State: connected.Unhealthy, Message: "down"}
		case "entry":
			parts := append(strings.Split(value, ","), "", "")
			live = Live{true, state.Registered{Group: "vm", Controller: parts[0], Connected: second(t, parts[1]), Disconnected: second(t, parts[2])}}
			f.Registered = live.Registered
		case "is-healthy":
			live.Registered.Health = connected.Healthy
		case "is-unhealthy":
			live.Registered.Health = connected.Unhealthy
		case "foreign":
			live = Live{Exists: true}
		case "leading":
			s.Leading = second(t, value)
		case "pod":
			s.IsPod = true
		case "gone":
			f.Gone = true
		case "seen":
			s.Seen = second(t, value)
		case "was":
			f.Registered.Disconnected = second(t, value)
		case "now":
			s.Now = second(t, value)
		default:
			t.Fatalf("unknown word %q", word)
		}
	}
	return f, live, s
}

func told(s Step) string {
	text := s.Action.String()
	switch s.Action {
	case Create, Adopt, Disconnect:
		text += fmt.Sprintf(" %s,%d", s.Registered.Controller, s.Registered.Connected.Unix())
		if !s.Registered.Disconnected.IsZero() {
			text += fmt.Sprintf(",%d", s.Registered.Disconnected.Unix())
		}
	case SetHealth:
		text += fmt.Sprintf(" %d %s", s.Health.State, s.Health.Message)
	case Nothing:
		if !s.At.IsZero() {
			text += fmt.Sprintf(", look again at %d", s.At.Unix())
		}
	}
	return strings.TrimSpace(text)
}
