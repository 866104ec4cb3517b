package dashboards

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/pilotmesh/pilot/internal/admin/dashboard"
)

// The input and the answers of test/prometheus.
type (
	input struct {
		Scrapes []scrape `json:"scrapes"`
		At      int64    `json:"at"`
		Queries []string `json:"queries"`
	}
	scrape struct {
		At     int64             `json:"at"`
		Type   string            `json:"type"`
		Text   string            `json:"text"`
		Target map[string]string `json:"target"`
	}
	answer struct {
		Error  string
		Series []value
	}
	value struct {
		Labels map[string]string
		Value  string
	}
)

// query is one entry of testdata/queries.txt.
type query struct {
	title, text string
	want        []expectation
	// none is why there is no answer; empty if there must be one.
	none string
}

// expectation is a series that must be in the answer: some of its labels, and the bounds of its value.
type expectation struct {
	labels    map[string]string
	low, high float64
}

// TestQueries: every query of the table has the series that it must have, or none, for the reason that the table gives. Every query of the dashboard that
// comes with Pilot has an answer.
func TestQueries(t *testing.T) {
	t.Parallel()
	queries := parse(t, "testdata/queries.txt")
	in := input{At: 30, Scrapes: scene(t)}
	for _, q := range queries {
		in.Queries = append(in.Queries, q.text)
	}
	own := panels()
	for _, p := range own {
		in.Queries = append(in.Queries, p.Query)
	}
	answers := ask(t, in)
	for i, q := range queries {
		t.Run(q.title, func(t *testing.T) { q.check(t, answers[i]) })
	}
	for i, p := range own {
		t.Run("Pilot: "+p.Title, func(t *testing.T) {
			if a := answers[len(queries)+i]; a.Error != "" || len(a.Series) == 0 {
				t.Errorf("%s\nhas no answer: %s", p.Query, a.Error)
			}
		})
	}
}

// panels returns the panels of the dashboard that comes with Pilot, with values for the variables in their queries.
func panels() (list []dashboard.Panel) {
	for _, row := range dashboard.Rows() {
		for _, p := range row.Panels {
			p.Query = strings.ReplaceAll(p.Query, dashboard.Interval, "1m")
			for name, value := range dashboard.Variables() {
				p.Query = strings.ReplaceAll(p.Query, name, value)
			}
			list = append(list, p)
		}
	}
	return list
}

// check compares an answer with the expectations.
func (q query) check(t *testing.T, a answer) {
	t.Helper()
	if a.Error != "" {
		t.Fatalf("%s\nPrometheus refuses it: %s", q.text, a.Error)
	}
	if q.none != "" {
		if len(a.Series) > 0 {
			t.Errorf("%s\nhas an answer, and the table says that it has none: %s\n%s", q.text, q.none, show(a))
		}
		return
	}
	for _, want := range q.want {
		found := false
		for _, got := range a.Series {
			n, err := strconv.ParseFloat(got.Value, 64)
			found = found || err == nil && has(got.Labels, want.labels) && n >= want.low-1e-6 && n <= want.high+1e-6
		}
		if !found {
			t.Errorf("%s\nhas no series %v from %v to %v, but these:\n%s", q.text, want.labels, want.low, want.high, show(a))
		}
	}
}

func has(labels, some map[string]string) bool {
	for name, value := range some {
		if labels[name] != value {
			return false
		}
	}
	return true
}

func show(a answer) string {
	var text strings.Builder
	for _, s := range a.Series {
		fmt.Fprintf(&text, "%v %s\n", s.Labels, s.Value)
	}
	return text.String()
}

// ask runs test/prometheus.
func ask(t *testing.T, in input) (answers []answer) {
	t.Helper()
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, promBinary)
	cmd.Stdin = bytes.NewReader(text)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("asking Prometheus: %v\n%s", err, out)
	}
	if err := json.Unmarshal(out, &answers); err != nil || len(answers) != len(in.Queries) {
		t.Fatalf("reading %d answers: %v", len(answers), err)
	}
	return answers
}

// parse reads a table of queries. A line "# TITLE" begins an entry, lines without a mark are its query, "= {LABEL=VALUE, …} LOW [HIGH]" is
// a series that must be in the answer, and "! REASON" says that there is none. Lines that begin with "//" are comments.
func parse(t *testing.T, file string) (list []query) {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(file))
	if err != nil {
		t.Fatal(err)
	}
	for n, line := range strings.Split(string(text), "\n") {
		mark, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "" || mark == "//":
		case mark == "#":
			list = append(list, query{title: rest})
		case len(list) == 0:
			t.Fatalf("%s:%d: a line before the first title", file, n+1)
		case mark == "!":
			list[len(list)-1].none = rest
		case mark == "=":
			want, err := expect(rest)
			if err != nil {
				t.Fatalf("%s:%d: %v", file, n+1, err)
			}
			list[len(list)-1].want = append(list[len(list)-1].want, want)
		default:
			list[len(list)-1].text = strings.TrimSpace(list[len(list)-1].text + " " + line)
		}
	}
	for _, q := range list {
		if q.text == "" || (len(q.want) > 0) == (q.none != "") {
			t.Errorf("%s: the entry %q needs a query, and either series or the reason why there are none", file, q.title)
		}
	}
	return list
}

// expect reads "{LABEL=VALUE, …} LOW [HIGH]". Without HIGH, the value is LOW; the HIGH "more" is no bound.
func expect(text string) (e expectation, err error) {
	inside, numbers, ok := strings.Cut(strings.TrimPrefix(text, "{"), "}")
	bounds := strings.Fields(numbers)
	if !ok || len(bounds) < 1 || len(bounds) > 2 {
		return e, fmt.Errorf("%q is not {LABEL=VALUE, …} LOW [HIGH]", text)
	}
	e.labels = map[string]string{}
	for pair := range strings.SplitSeq(inside, ",") {
		if name, value, ok := strings.Cut(strings.TrimSpace(pair), "="); ok {
			e.labels[name] = value
		}
	}
	if e.low, err = strconv.ParseFloat(bounds[0], 64); err != nil {
		return e, err
	}
	e.high = e.low
	if len(bounds) == 2 && bounds[1] == "more" {
		e.high = math.Inf(1)
	} else if len(bounds) == 2 {
		e.high, err = strconv.ParseFloat(bounds[1], 64)
	}
	return e, err
}
