package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestReport(t *testing.T) {
	in := strings.Join([]string{
		`{"Action":"start","Package":"p/good"}`,
		`{"Action":"run","Package":"p/good","Test":"TestA"}`,
		`{"Action":"output","Package":"p/good","Test":"TestA","Output":"quiet\n"}`,
		`{"Action":"pass","Package":"p/good","Test":"TestA/sub","Elapsed":0.1}`,
		`{"Action":"pass","Package":"p/good","Test":"TestA","Elapsed":0.1}`,
		`{"Action":"output","Package":"p/good","Test":"TestB","Output":"=== RUN   TestB\n"}`,
		`{"Action":"output","Package":"p/good","Test":"TestB","Output":"    b_test.go:7: needs root\n"}`,
		`{"Action":"output","Package":"p/good","Test":"TestB","Output":"--- SKIP: TestB (0.00s)\n"}`,
		`{"Action":"skip","Package":"p/good","Test":"TestB","Elapsed":0}`,
		`{"Action":"pass","Package":"p/good","Elapsed":0.25}`,
		`{"Action":"output","Package":"p/bad","Test":"TestC","Output":"c_test.go:1: got 2, want 1\n"}`,
		`{"Action":"fail","Package":"p/bad","Test":"TestC","Elapsed":0.1}`,
		`{"Action":"fail","Package":"p/bad","Elapsed":0.5}`,
		`{"ImportPath":"p/broken [p/broken.test]","Action":"build-output","Output":"x.go:3: undefined: y\n"}`,
		`{"Action":"fail","Package":"p/broken","Elapsed":0,"FailedBuild":"p/broken"}`,
		`{"Action":"output","Package":"p/dead","Test":"TestD","Output":"panic: boom\n"}`,
		`{"Action":"fail","Package":"p/dead","Elapsed":0.1}`,
		`go: a message`,
	}, "\n")
	var out strings.Builder
	r := report(strings.NewReader(in), &out)
	if r.passed != 1 || r.failed != 3 || !slices.Equal(r.skipped, []string{"p/good TestB: b_test.go:7: needs root"}) {
		t.Errorf("result = %+v, want 1 passed, 3 failed, TestB skipped with its reason", r)
	}
	for _, want := range []string{
		"ok  \tp/good\t0.25s\t(1 tests)\n", "got 2, want 1", "FAIL\tp/bad\t0.50s\t(1 of 1 tests failed)\n",
		"undefined: y", "FAIL\tp/broken", "panic: boom", "go: a message",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "quiet") {
		t.Error("the report shows the output of a test that passed")
	}
}

func TestSummary(t *testing.T) {
	for _, c := range []struct {
		results []result
		closing string
		fails   bool
	}{
		{[]result{{name: "a", passed: 2, took: time.Second}, {name: "b", passed: 1, skipped: []string{"x: y"}}}, "3 passed, 0 failed, 1 skipped\n", false},
		{[]result{{name: "a", passed: 2}, {name: "b", failed: 1}}, "2 passed, 1 failed, 0 skipped\n", true},
		{nil, "0 passed, 0 failed, 0 skipped\n", true},
	} {
		var out strings.Builder
		err := summary(&out, c.results)
		if (err != nil) != c.fails || !strings.HasSuffix(out.String(), c.closing) {
			t.Errorf("summary(%v) = %v, %q; want failure %v and the last line %q", c.results, err, out.String(), c.fails, c.closing)
		}
	}
}
