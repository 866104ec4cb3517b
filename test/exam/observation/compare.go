package observation

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/test/exam/casefile"
)

// Verdict is the grade of one case.
type Verdict struct {
	Pass     bool     `json:"pass"`
	Why      string   `json:"why,omitempty"`  // the first thing that differs
	More     []string `json:"more,omitempty"` // and the others
	Requests int      `json:"requests"`
	Passed   int      `json:"requestsPassed"`
	Rejected int      `json:"rejected"` // kinds of updates that Envoy refused
}

// Compare grades what a case met by its stored answer.
func Compare(c *casefile.Case, want, got *Observation) Verdict {
	v := Verdict{Requests: len(c.Requests), Rejected: len(got.Rejected)}
	fail := func(format string, a ...any) {
		if v.Why == "" {
			v.Why = fmt.Sprintf(format, a...)
		} else {
			v.More = append(v.More, fmt.Sprintf(format, a...))
		}
	}
	if got.Failed != "" {
		fail("did not run: %s", got.Failed)
	}
	for i := range c.Requests {
		name := c.Requests[i].Name
		w, g := want.Find(name), got.Find(name)
		switch {
		case w == nil:
			fail("%q has no stored answer: record it", name)
		case g == nil:
			fail("%q was not sent", name)
		default:
			if d := difference(*w, *g, c.Requests[i].Exact); d != "" {
				fail("%q: %s", name, d)
			} else {
				v.Passed++
			}
		}
	}
	if len(got.Rejected) > 0 && len(want.Rejected) == 0 {
		fail("Envoy rejected %s: %s", got.Rejected[0].Type, got.Rejected[0].Reason)
	}
	if len(got.Warming) > 0 && len(want.Warming) == 0 {
		fail("still warming: %s", strings.Join(got.Warming, ", "))
	}
	v.Pass = v.Why == ""
	return v
}

// Wanted is the answer a case brings: of each request the fields that it names, and that there is no error it does not.
func Wanted(c *casefile.Case) *Observation {
	o := &Observation{Title: c.Title}
	for i := range c.Requests {
		r := &c.Requests[i]
		s := Request{Name: r.Name, N: r.Repeat, Fields: map[string]Dist{}, partial: true}
		for field, want := range r.Want {
			total := 0
			for _, share := range want {
				total += share
			}
			d := Dist{}
			for value, share := range want {
				if total > 0 {
					share = share * r.Repeat / total
				} else if len(want) > 1 {
					share = 1
				}
				d[value] = share
			}
			s.Fields[field] = d
		}
		o.Requests = append(o.Requests, s)
	}
	return o
}

// Find is what a request of the given name met, or nil.
func (o *Observation) Find(name string) *Request {
	for i := range o.Requests {
		if o.Requests[i].Name == name {
			return &o.Requests[i]
		}
	}
	return nil
}

// difference says in words how got is not want, or nothing.
func difference(want, got Request, exact bool) string {
	w := Request{Fields: map[string]Dist{}}
	g := Request{Fields: map[string]Dist{}}
	keys := slices.Sorted(maps.Keys(want.Fields))
	for _, k := range slices.Sorted(maps.Keys(got.Fields)) {
		if !slices.Contains(keys, k) && (!want.partial || k == "error") {
			keys = append(keys, k)
		}
	}
	differ := false
	for _, k := range keys {
		if same(want.Fields[k], got.Fields[k], want.N, got.N, exact) {
			continue
		}
		differ = true
		w.Fields[k], g.Fields[k] = want.Fields[k], got.Fields[k]
	}
	if !differ {
		return ""
	}
	for _, k := range []string{"error", "status"} { // what happened, for context
		if d := want.Fields[k]; d != nil {
			w.Fields[k] = d
		}
		if d := got.Fields[k]; d != nil {
			g.Fields[k] = d
		}
	}
	return fmt.Sprintf("want %s – got %s", orNothing(w.describe("path ")), orNothing(g.describe("path ")))
}

func orNothing(s string) string {
	if s == "" {
		return "nothing of that"
	}
	return s
}

const statisticalN = 50

// same compares two distributions of one field: as sets, or, from 50 repetitions on, by shares within four standard deviations, or by exact counts.
func same(want, got Dist, wantN, gotN int, exact bool) bool {
	statistical := wantN >= statisticalN && gotN >= statisticalN && !exact
	if len(want) == 0 || len(got) == 0 {
		// what only few repetitions have (the body of a rare error) may be missing in another run
		n := want.total(0) + got.total(0)
		all := wantN
		if len(want) == 0 {
			all = gotN
		}
		return len(want) == len(got) || statistical && n > 0 && apart(n, all, 0, wantN+gotN-all) <= 4
	}
	wt, gt := want.total(wantN), got.total(gotN)
	for _, k := range slices.Concat(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))) {
		w, inWant := want[k]
		g, inGot := got[k]
		if inWant && w == 0 {
			w = wt
		}
		if inGot && g == 0 {
			g = gt
		}
		if !statistical {
			if inWant != inGot || exact && w != g {
				return false
			}
			continue
		}
		if apart(w, wt, g, gt) > 4 {
			return false
		}
	}
	return true
}

// apart is how many standard deviations lie between the shares a of n and b of m, if both were drawn from the same.
func apart(a, n, b, m int) float64 {
	p := float64(a+b) / float64(n+m)
	if p == 0 || p == 1 {
		return 0
	}
	return math.Abs(float64(a)/float64(n)-float64(b)/float64(m)) / math.Sqrt(p*(1-p)*(1/float64(n)+1/float64(m)))
}

// total is the number of observations in d; a plain string in a file means all n.
func (d Dist) total(n int) int {
	t := 0
	for _, c := range d {
		t += c
	}
	if t == 0 {
		return n
	}
	return t
}

// String puts what matters first: "200 from 10.77.1.1:8080 GET /path of host".
func (s Request) String() string { return s.describe("") }

// describe writes the path behind a label, for sentences without the method before it.
func (s Request) describe(path string) string {
	var out []string
	used := map[string]bool{}
	for _, f := range [][2]string{
		{"error", ""}, {"status", ""}, {"backend", "from "}, {"method", ""}, {"path", path}, {"authority", "host "},
		{"body", "body "}, {"location", "location "},
	} {
		used[f[0]] = true
		if d := s.Fields[f[0]]; len(d) > 0 {
			out = append(out, f[1]+d.String())
		}
	}
	for _, k := range slices.Sorted(maps.Keys(s.Fields)) {
		if !used[k] {
			out = append(out, k+"="+s.Fields[k].String())
		}
	}
	return strings.Join(out, " ")
}
