package variables

import (
	"slices"
	"testing"
)

func TestVain(t *testing.T) {
	table := []Variable{
		{Name: "PILOT_ACTS", Does: "something"},
		{Name: "PILOT_OFF", Lacks: "there is no such feature"},
		{Name: "PILOT_ON", Lacks: "it is always so", Usual: "true"},
		{Name: "META_*", Lacks: "nobody reads it"},
	}
	for _, c := range []struct{ set, want string }{
		{"PILOT_ACTS=true", ""},
		{"PILOT_OFF=true", "PILOT_OFF=true has no effect: there is no such feature"},
		{"PILOT_OFF=false", ""}, {"PILOT_OFF=", ""}, {"PILOT_OFF=0", ""},
		{"PILOT_ON=false", "PILOT_ON=false has no effect: it is always so"},
		{"PILOT_ON=true", ""}, {"PILOT_ON=", ""},
		{"META_X=1", "META_X=1 has no effect: nobody reads it"},
		{"PILOT_OF=1", "PILOT_OF has no effect: there is no such variable; did you mean PILOT_OFF?"},
		{"PILOT_SOMETHING_ELSE=", "PILOT_SOMETHING_ELSE has no effect: there is no such variable"},
		{"PILOT_A_SERVICE_HOST=10.0.0.1", ""}, {"PILOT_A_PORT_80_TCP=tcp://10.0.0.1:80", ""}, {"PILOT_A_PORT=tcp://10.0.0.1:80", ""}, // Kubernetes
		{"HOME=/", ""},
	} {
		var want []string
		if c.want != "" {
			want = []string{c.want}
		}
		if got := Vain(table, []string{c.set}, "PILOT_"); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", c.set, got, want)
		}
	}
}
