package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// measured are the samples of a figure, one per repetition.
type measured map[string][]float64

// line is a figure with its measured values and the median of the stored run.
type line struct {
	Key     string   `json:"key"`
	Unit    string   `json:"unit"`
	Median  float64  `json:"median"`
	Max     float64  `json:"max"`
	Samples int      `json:"samples"`
	Bar     *float64 `json:"bar,omitempty"`
	Verdict string   `json:"verdict,omitempty"`
	Istiod  float64  `json:"istiod,omitempty"`
	Last    *float64 `json:"last,omitempty"`
}

// lines joins the table, the samples and the stored medians. Figures that were not measured are left out.
func lines(m measured, last map[string]float64) []line {
	var all []line
	for _, f := range figures() {
		samples := m[f.key]
		if len(samples) == 0 {
			continue
		}
		l := line{Key: f.key, Unit: f.unit, Median: median(samples), Max: quantile(samples, 1), Samples: len(samples), Istiod: f.istiod}
		if f.barred {
			judged := l.Median
			if f.worst {
				judged = l.Max
			}
			l.Bar, l.Verdict = &f.bar, "PASS"
			if judged > f.bar {
				l.Verdict = "MISS"
			}
		}
		if v, ok := last[f.key]; ok {
			l.Last = &v
		}
		all = append(all, l)
	}
	return all
}

// number shows three significant digits.
func number(v float64) string {
	switch a := max(v, -v); {
	case a >= 100 || a == float64(int(a)):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

const absent = "-"

// table prints the lines. The function stored can read its output.
func table(w io.Writer, all []line) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "# figure\tmedian\tmax\tbar\tverdict\tistiod\tlast\tratio\tunit")
	before := ""
	for _, l := range all {
		bar, verdict, istiod, last, ratio := absent, absent, absent, absent, absent
		if l.Bar != nil {
			bar, verdict = number(*l.Bar), l.Verdict
		}
		if l.Istiod != 0 {
			istiod = number(l.Istiod)
		}
		if l.Last != nil {
			last = number(*l.Last)
			if *l.Last != 0 {
				ratio = strconv.FormatFloat(l.Median / *l.Last, 'f', 2, 64)
			}
		}
		name, _, _ := strings.Cut(l.Key, "/")
		if before != "" && name != before {
			fmt.Fprintln(t)
		}
		before = name
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Key, number(l.Median), number(l.Max), bar, verdict, istiod, last, ratio, l.Unit)
	}
	return t.Flush()
}

// header says where and how the figures came about.
func header(w io.Writer, when time.Time, quick bool) {
	fmt.Fprintf(w, "# %s  %s %s/%s  %d cores, %s, load at the end %s\n", when.UTC().Format("2006-01-02 15:04"), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), processor(), load())
	fmt.Fprintln(w, "# CPU is user and system time of one process that holds server and clients. Clients are grpc-go with a raw codec:")
	fmt.Fprintln(w, "# they count and acknowledge resources and decode none. Bars are for the median, or the worst where the figure says so")
	fmt.Fprintln(w, "# (extra, cells-beyond, no-op, building, live states, closed). istiod: its server process alone, measured on a machine like this.")
	if quick {
		fmt.Fprintln(w, "# -quick: few repetitions; good for a look, not for the record.")
	}
}

// processor is the model of the machine's first processor.
func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if name, ok := strings.CutPrefix(s.Text(), "model name"); ok {
			return strings.TrimLeft(name, "\t :")
		}
	}
	return "unknown processor"
}

// load is how many processes wanted to run in the last minutes, this one among them: above the number of cores, wall time
// says little.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	fields := strings.Fields(string(text))
	return strings.Join(fields[:min(3, len(fields))], " ")
}

// resultLine is a line of a stored table.
type resultLine struct {
	text   string
	median float64
}

// stored reads the last table; none is no error.
func stored(dir string) (map[string]resultLine, error) {
	f, err := os.Open(filepath.Join(dir, "latest.txt"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readTable(f)
}

func readTable(r io.Reader) (map[string]resultLine, error) {
	table := make(map[string]resultLine)
	s := bufio.NewScanner(r)
	for n := 1; s.Scan(); n++ {
		fields := strings.Fields(s.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) < 9 {
			return nil, fmt.Errorf("line %d of the stored results has %d columns, want 9: remove it, or the file", n, len(fields))
		}
		v, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			return nil, fmt.Errorf("line %d of the stored results: %w", n, err)
		}
		table[fields[0]] = resultLine{s.Text(), v}
	}
	return table, s.Err()
}

// store writes the table as the latest one and as the one of its day. Figures that were not measured this time
// keep their lines.
func store(dir string, when time.Time, m measured, before map[string]resultLine) error {
	last := make(map[string]float64)
	for k, l := range before {
		last[k] = l.median
	}
	var text strings.Builder
	header(&text, when, false)
	if err := table(&text, lines(m, last)); err != nil {
		return err
	}
	var kept strings.Builder
	for _, f := range figures() {
		if l, ok := before[f.key]; ok && len(m[f.key]) == 0 {
			fmt.Fprintln(&kept, l.text)
		}
	}
	if kept.Len() > 0 {
		text.WriteString("\n# not measured in this run; from an earlier one:\n" + kept.String())
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"latest.txt", when.UTC().Format("2006-01-02") + ".txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func printJSON(w io.Writer, all []line) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(all)
}
