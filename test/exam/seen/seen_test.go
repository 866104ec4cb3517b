package seen

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/exam/client"
	"github.com/pilotmesh/pilot/test/exam/echo"
	"github.com/pilotmesh/pilot/test/exam/form"
)

func TestSameComparesSetsOrShares(t *testing.T) {
	for _, c := range []struct {
		name       string
		want, got  Dist
		wantN, gtN int
		exact      bool
		same       bool
	}{
		{"equal", Dist{"200": 1}, Dist{"200": 1}, 1, 1, false, true},
		{"different", Dist{"200": 1}, Dist{"503": 1}, 1, 1, false, false},
		{"missing", Dist{"a": 1}, nil, 1, 1, false, false},
		{"few: counts do not matter", Dist{"a": 9, "b": 1}, Dist{"a": 1, "b": 9}, 10, 10, false, true},
		{"few: sets do", Dist{"a": 9, "b": 1}, Dist{"a": 10}, 10, 10, false, false},
		{"shares alike", Dist{"a": 800, "b": 200}, Dist{"a": 790, "b": 210}, 1000, 1000, false, true},
		{"shares apart", Dist{"a": 800, "b": 200}, Dist{"a": 700, "b": 300}, 1000, 1000, false, false},
		{"one value read from a file", Dist{"a": 0}, Dist{"a": 100}, 100, 100, false, true},
		{"a burst, counted", Dist{"200": 2, "503": 3}, Dist{"200": 3, "503": 2}, 5, 5, true, false},
		{"a burst, counted and equal", Dist{"200": 2, "503": 3}, Dist{"200": 2, "503": 3}, 5, 5, true, true},
		{"a rare one is missing", nil, Dist{"body": 1}, 200, 200, false, true},
		{"a common one is missing", nil, Dist{"body": 60}, 200, 200, false, false},
		{"one of all is missing", Dist{"x": 0}, nil, 200, 200, false, false},
		{"a backend too many", Dist{"a": 0}, Dist{"a": 50, "b": 50}, 100, 100, false, false},
	} {
		if got := same(c.want, c.got, c.wantN, c.gtN, c.exact); got != c.same {
			t.Errorf("%s: same = %v", c.name, got)
		}
	}
}

func TestObservationSurvivesItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.json")
	met := See(&form.Request{Name: "a", Watch: []string{"req.x"}}, []client.Outcome{
		{Status: 200, Backend: "10.77.1.1:80", Echo: &echo.Reply{Method: "GET", Path: "/", Authority: "h"}},
		{Error: "eof"},
	})
	if err := (&Observation{Title: "t", Requests: []Request{met}}).Write(path); err != nil {
		t.Fatal(err)
	}
	o, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := difference(met, o.Requests[0], false); d != "" {
		t.Errorf("after reading: %s", d)
	}
	other := See(&form.Request{Name: "a", Watch: []string{"req.x"}}, []client.Outcome{{Status: 404, Body: "no"}, {Error: "reset"}})
	if d := difference(met, other, false); !strings.Contains(d, "want closed 200 from 10.77.1.1:80") || !strings.Contains(d, "got closed 404") {
		t.Errorf("difference = %s", d)
	}
}
