// Command table writes the table of node conformance from reports of test runs.
//
//	go run ./table reasons.yaml report.json... > ../nodeconformance.md
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: table reasons.yaml report.json...")
		os.Exit(2)
	}
	if err := run(os.Stdout, os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

// report is what of ginkgo's JSON report is read.
type report struct {
	SpecReports []struct {
		ContainerHierarchyTexts []string
		LeafNodeText            string
		State                   string
	}
}

// row is a test and what became of it.
type row struct{ name, state, reason string }

func run(out io.Writer, reasonsFile string, files []string) error {
	reasons := make(map[string]string)
	text, err := os.ReadFile(reasonsFile)
	if err != nil {
		return err
	}
	if err := yaml.UnmarshalStrict(text, &reasons); err != nil {
		return fmt.Errorf("%s: %w", reasonsFile, err)
	}
	states := make(map[string]string)
	for _, file := range files {
		if err := read(file, states); err != nil {
			return err
		}
	}
	var rows []row
	counts := make(map[string]int)
	for name, state := range states {
		r := row{name, state, reason(reasons, name)}
		if state != "passed" && r.reason == "" {
			return fmt.Errorf("%s: %q is %s, and no reason is given", reasonsFile, name, state)
		}
		if after, ok := strings.CutPrefix(r.reason, "n/a: "); ok && state != "passed" {
			r.state, r.reason = "not applicable", after
		}
		if state == "passed" {
			r.reason = ""
		}
		counts[r.state]++
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.name, b.name) })
	write(out, rows, counts)
	return nil
}

// read takes the states of the tests that ran; a test that passed in any run has passed.
func read(file string, states map[string]string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var reports []report
	if err := json.Unmarshal(text, &reports); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, report := range reports {
		for _, spec := range report.SpecReports {
			name := strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")
			if strings.Contains(name, "[NodeConformance]") && strings.Contains(name, "[Conformance]") && spec.State != "skipped" && states[name] != "passed" {
				states[name] = spec.State
			}
		}
	}
	return nil
}

// reason is the one given for the longest beginning of the name.
func reason(reasons map[string]string, name string) string {
	best := ""
	for beginning := range reasons {
		if strings.HasPrefix(name, beginning) && len(beginning) > len(best) {
			best = beginning
		}
	}
	return reasons[best]
}

func write(out io.Writer, rows []row, counts map[string]int) {
	fmt.Fprintf(out, "# Node conformance\n\nThe tests are Kubernetes' own (v1.36.3: the tests with `[NodeConformance]` and `[Conformance]` in their names), run as\n"+
		"[nodeconformance/README.md](nodeconformance/README.md) says: %d passed, %d failed, %d not applicable.\n\n", counts["passed"], counts["failed"], counts["not applicable"])
	fmt.Fprint(out, "| Test | Result | Reason |\n|---|---|---|\n")
	drop := strings.NewReplacer(" [NodeConformance]", "", " [Conformance]", "", "[NodeConformance] ", "", "|", "\\|", "*", "\\*")
	for _, r := range rows {
		fmt.Fprintf(out, "| %s | %s | %s |\n", drop.Replace(r.name), r.state, r.reason)
	}
}
