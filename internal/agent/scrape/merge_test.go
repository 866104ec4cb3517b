package scrape

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestMerge compares merged expositions with golden files: each has expositions (NAME.text or NAME.openmetrics), which are joined in
// their order, and the two answers.
func TestMerge(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			golden, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := &txtar.Archive{Comment: golden.Comment}
			for _, f := range golden.Files {
				if strings.HasSuffix(f.Name, ".text") || strings.HasSuffix(f.Name, ".openmetrics") {
					got.Files = append(got.Files, f)
				}
			}
			sources := got.Files
			for _, openMetrics := range []bool{false, true} {
				var out bytes.Buffer
				m := newMerger(&out, openMetrics)
				for _, f := range sources {
					rep := m.add(bytes.NewReader(f.Data), strings.HasSuffix(f.Name, ".openmetrics"))
					if got := fmt.Sprintf("%s: %d samples, %d invalid lines: %v\n", f.Name, rep.samples, rep.invalid, rep.err); !strings.Contains(string(golden.Comment), got) {
						t.Errorf("the comment of the file does not have\n%s", got)
					}
				}
				if err := m.finish(); err != nil {
					t.Fatal(err)
				}
				name := "answer in the text format"
				if openMetrics {
					name = "answer in OpenMetrics"
				} else {
					parse(t, out.String())
				}
				got.Files = append(got.Files, txtar.File{Name: name, Data: out.Bytes()})
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(txtar.Format(golden)), string(txtar.Format(got))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// parse returns the value of each sample, by the parser of Prometheus' Go clients.
func parse(t *testing.T, text string) map[string]float64 {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%.3000s", err, text)
	}
	values := map[string]float64{}
	for _, family := range families {
		samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{}, family)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range samples {
			values[s.Metric.String()] = float64(s.Value)
		}
	}
	return values
}

// samples are the lines that are not metadata.
func samples(text string) string {
	var out strings.Builder
	for l := range strings.Lines(text) {
		if !strings.HasPrefix(l, "#") {
			out.WriteString(l)
		}
	}
	return out.String()
}

// FuzzMerge: whatever two targets answer, the result in the text format can be read, and merging the result again changes nothing.
func FuzzMerge(f *testing.F) {
	f.Add("# HELP a b\n# TYPE a counter\na{x=\"y\"} 1 2\n", "a 1\n# EOF\n", true)
	f.Add("# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_sum 2\nh_count 3\n", "# TYPE h_count gauge\nh_count 1\n", false)
	f.Add("h_count 1\n# TYPE h summary\nh{quantile=\"x\"} 1\n", "# TYPE c counter\nc_total 1 1.5 # {a=\"b\"} 1 2\n# EOF", true)
	f.Add("a{__name__=\"b\"} 1\na{a=\"\\x\"} 1", "# UNIT a_s s\n# TYPE a_s info\n", true)
	f.Fuzz(func(t *testing.T, first, second string, openMetrics bool) {
		var text, open bytes.Buffer
		for _, c := range []struct {
			out *bytes.Buffer
			in  bool
		}{{&text, false}, {&open, true}} {
			m := newMerger(c.out, c.in)
			m.add(strings.NewReader(first), false)
			m.add(strings.NewReader(second), openMetrics)
			if err := m.finish(); err != nil {
				t.Fatal(err)
			}
			var again bytes.Buffer
			m = newMerger(&again, c.in)
			if rep := m.add(bytes.NewReader(c.out.Bytes()), c.in); rep.err != nil {
				t.Errorf("its own answer has %d invalid lines: %v\n%s", rep.invalid, rep.err, c.out)
			}
			if err := m.finish(); err != nil {
				t.Fatal(err)
			}
			if samples(again.String()) != samples(c.out.String()) {
				t.Errorf("its own answer %q becomes %q", c.out, again.String())
			}
		}
		parser := expfmt.NewTextParser(model.LegacyValidation)
		if _, err := parser.TextToMetricFamilies(&text); err != nil {
			t.Errorf("%v", err)
		}
	})
}

// FuzzParse: an accepted target has a port and a path.
func FuzzParse(f *testing.F) {
	f.Add(`{"scrape":"true","path":"/m","port":"8080"}`)
	f.Add(`{"targets":[{"port":1,"path":"x"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		targets, _, err := Parse(text, map[uint16]string{15020: "the agent"})
		if err != nil {
			return
		}
		for _, target := range targets {
			if target.Port == 0 || target.Port == 15020 || !strings.HasPrefix(target.Path, "/") {
				t.Errorf("%q: %v", text, target)
			}
		}
	})
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ text, want, says string }{
		{`{"scrape":"true","path":"/m?a=b","port":"8080"}`, "8080/m?a=b", ""},
		{`{"scrape":"","path":"","port":""}`, "80/metrics", ""},
		{`{"scrape":"false","path":"/m","port":"8080"}`, "", ""},
		{`{"scrape":"true","path":"m","port":8080}`, "8080/m", ""},
		{`{"port":"1","targets":[{"port":"8080","path":""},{"port":"9100","path":"/x"},{"port":"8080","path":"/metrics"}]}`, "8080/metrics 9100/x", ""},
		{`{"port":"15020"}`, "", "the target 15020/metrics has no effect: the agent has that port; set prometheus.io/port"},
		{`{"targets":[{"port":"15020"},{"port":"1"}]}`, "1/metrics", "the target 15020/metrics has no effect"},
		{`{"port":"web"}`, "", `port: "web" is not a number between 1 and 65535`},
		{`{"port":"0"}`, "", `port: "0" is not a number`},
		{`{"path":"/%zz"}`, "", "path: "},
		{`[]`, "", "it is not a JSON object"},
		{`{"targets":[` + strings.Repeat(`{"port":"1","path":"/a"},`, 32) + `{"port":"1"}]}`, "1/a 1/metrics", ""},
	} {
		targets, remarks, err := Parse(c.text, map[uint16]string{15020: "the agent"})
		var got []string
		for _, target := range targets {
			got = append(got, target.String())
		}
		said := strings.Join(remarks, " ")
		if err != nil {
			said, got = err.Error(), nil
		}
		if strings.Join(got, " ") != c.want || !strings.Contains(said, c.says) || c.says == "" && said != "" {
			t.Errorf("%s: %v %s", c.text, got, said)
		}
	}
}
