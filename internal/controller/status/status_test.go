package status

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/explain/live"
)

func (s Status) String() string {
	var b strings.Builder
	for _, c := range s.Conditions {
		fmt.Fprintf(&b, "%s=%v %s: %s\n", c.Type, c.True, c.Reason, c.Message)
	}
	for _, m := range s.Messages {
		fmt.Fprintf(&b, "%s %s\n", m.Level, m.Text)
	}
	return b.String()
}

var (
	refusal = api.Problem{Severity: api.Error, Position: api.Position{File: "cluster c1"}, Field: "spec.hosts[0]", Reason: "is no host"}
	warning = api.Problem{Severity: api.Warning, Field: "spec.http[0]", Reason: "is never reached"}
)

// TestOf has the expected status for each situation.
func TestOf(t *testing.T) {
	for _, c := range []struct {
		name     string
		problems []api.Problem
		now      live.Status
		want     string
	}{
		{"in force everywhere", nil, live.Status{Proxies: 3, Live: 3}, `
Accepted=true Accepted: the control plane uses this version
Effective=true NothingIgnored: everything in it has an effect
Live=true Acknowledged: acknowledged by 3 of 3 proxies that need it
`},
		{"nobody needs it, and a part is ignored", []api.Problem{warning}, live.Status{}, `
Accepted=true Accepted: the control plane uses this version
Effective=false HasProblems: spec.http[0]: is never reached
Live=true NotNeeded: no connected proxy needs it
WARNING spec.http[0]: is never reached
`},
		{"a remark, which is no mistake", []api.Problem{{Severity: api.Info, Field: "spec.hosts[0]", Reason: "is of namespace x"}}, live.Status{}, `
Accepted=true Accepted: the control plane uses this version
Effective=true NothingIgnored: everything in it has an effect
Live=true NotNeeded: no connected proxy needs it
INFO spec.hosts[0]: is of namespace x
`},
		{"another object goes before it", []api.Problem{warning, {Severity: api.Warning, Field: "spec.hosts[0]", Reason: "x is older", Conflict: true}}, live.Status{}, `
Accepted=true Accepted: the control plane uses this version
Effective=false Conflict: spec.http[0]: is never reached; spec.hosts[0]: x is older
Live=true NotNeeded: no connected proxy needs it
WARNING spec.http[0]: is never reached
WARNING spec.hosts[0]: x is older
`},
		{"refused, while the version before is in force", []api.Problem{refusal}, live.Status{Proxies: 3, Live: 3}, `
Accepted=false Refused: the last good version stays in force, if there is one: spec.hosts[0]: is no host
Effective=true NothingIgnored: everything in it has an effect
Live=false Refused: this version is not in force
ERROR spec.hosts[0]: is no host
`},
		{"proxies are behind", nil, live.Status{Proxies: 8, Live: 1, Behind: []live.Behind{
			{Proxy: "a.x"}, {Proxy: "b.x"}, {Proxy: "c.x"}, {Proxy: "d.x"}, {Proxy: "e.x"}, {Proxy: "f.x"}, {Proxy: "g.x"},
		}}, `
Accepted=true Accepted: the control plane uses this version
Effective=true NothingIgnored: everything in it has an effect
Live=false Pending: acknowledged by 1 of 8 proxies that need it; not by a.x, b.x, c.x, d.x, e.x, 2 more
`},
		{"a proxy rejects it", nil, live.Status{Proxies: 2, Live: 1, Behind: []live.Behind{{Proxy: "a.x", Rejected: "bad regex"}}}, `
Accepted=true Accepted: the control plane uses this version
Effective=true NothingIgnored: everything in it has an effect
Live=false Rejected: acknowledged by 1 of 2 proxies that need it; not by a.x (rejects it: bad regex)
`},
	} {
		if got := "\n" + statusOf(c.problems, c.now).String(); got != c.want {
			t.Errorf("%s:%swant%s", c.name, got, c.want)
		}
	}
}

// TestManyProblems: a status has room for a few messages, and says how many there are more.
func TestManyProblems(t *testing.T) {
	var all []api.Problem
	for i := range maxMessages + 5 {
		all = append(all, api.Problem{Severity: api.Warning, Field: fmt.Sprintf("spec.http[%d]", i), Reason: "is never reached"})
	}
	got := statusOf(all, live.Status{})
	if len(got.Messages) != maxMessages || !strings.HasSuffix(got.Conditions[1].Message, "; and 5 more") {
		t.Errorf("%d messages, %q", len(got.Messages), got.Conditions[1].Message)
	}
}
