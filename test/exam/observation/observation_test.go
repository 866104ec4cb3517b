package observation

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/test/exam/backend"
	"github.com/pilotmesh/pilot/test/exam/casefile"
	"github.com/pilotmesh/pilot/test/exam/client"
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
	met := See(&casefile.Request{Name: "a", Watch: []string{"req.x"}}, []client.Outcome{
		{Status: 200, Backend: "10.77.1.1:80", Echo: &backend.Reply{Method: "GET", Path: "/", Authority: "h"}},
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
	other := See(&casefile.Request{Name: "a", Watch: []string{"req.x"}}, []client.Outcome{{Status: 404, Body: "no"}, {Error: "reset"}})
	if d := difference(met, other, false); !strings.Contains(d, "want closed 200 from 10.77.1.1:80") || !strings.Contains(d, "got closed 404") {
		t.Errorf("difference = %s", d)
	}
}

func TestWantedComparesWhatItNames(t *testing.T) {
	c := &casefile.Case{Requests: []casefile.Request{
		{Name: "one", Repeat: 1, Want: map[string]casefile.Want{"status": {"200": 0}}},
		{Name: "set", Repeat: 10, Want: map[string]casefile.Want{"backend": {"a": 0, "b": 0}}},
		{Name: "shares", Repeat: 200, Want: map[string]casefile.Want{"backend": {"a": 80, "b": 20}}},
	}}
	good := func() []Request {
		return []Request{
			{Name: "one", N: 1, Fields: map[string]Dist{"status": {"200": 1}, "path": {"/": 1}}},
			{Name: "set", N: 10, Fields: map[string]Dist{"backend": {"a": 9, "b": 1}}},
			{Name: "shares", N: 200, Fields: map[string]Dist{"backend": {"a": 155, "b": 45}}},
		}
	}
	for name, c2 := range map[string]struct {
		request int
		field   string
		dist    Dist
		passed  int
	}{
		"as wanted":       {0, "status", Dist{"200": 1}, 3},
		"another status":  {0, "status", Dist{"404": 1}, 2},
		"an error":        {0, "error", Dist{"closed": 1}, 2},
		"one of the set":  {1, "backend", Dist{"a": 10}, 2},
		"one too many":    {1, "backend", Dist{"a": 5, "b": 4, "c": 1}, 2},
		"shares that lie": {2, "backend", Dist{"a": 100, "b": 100}, 2},
	} {
		got := &Observation{Requests: good()}
		got.Requests[c2.request].Fields[c2.field] = c2.dist
		if v := Compare(c, Wanted(c), got); v.Passed != c2.passed || v.Pass != (c2.passed == 3) {
			t.Errorf("%s: %d requests passed (%s), want %d", name, v.Passed, v.Why, c2.passed)
		}
	}
}
