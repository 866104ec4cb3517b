package flow

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Top writes a table of the workloads that serve.
func (a Answer) Top(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "WORKLOAD\tREQ/S\tERRORS\tP50\tP95\tP99\tCONN/S\tBYTES/S")
	for _, one := range a.Workloads {
		fmt.Fprintf(t, "%s\t%s\n", one.Workload, one.Flow.columns())
	}
	return t.Flush()
}

// EdgeTable writes a table of the pairs of client and server.
func (a Answer) EdgeTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "CLIENT\tSERVER\tREQ/S\tERRORS\tP50\tP95\tP99\tCONN/S\tBYTES/S")
	for _, e := range a.Edges {
		fmt.Fprintf(t, "%s\t%s\t%s\n", e.From, e.To, e.Flow.columns())
	}
	return t.Flush()
}

func (f Flow) columns() string {
	errors := "-"
	if f.Requests > 0 {
		errors = percent(f.Errors)
	}
	return strings.Join([]string{rate(f.Requests), errors, shown(f.P50), shown(f.P95), shown(f.P99), rate(f.Connections), rate(f.Bytes)}, "\t")
}

// rate returns a number per second for people.
func rate(n float64) string {
	switch {
	case n == 0:
		return "-"
	case n < .1:
		return "<0.1"
	case n < 100:
		return fmt.Sprintf("%.1f", n)
	}
	return fmt.Sprintf("%.0f", n)
}

// Graph writes, for each workload that calls others, the ones that it calls.
func (a Answer) Graph(w io.Writer) error {
	var b strings.Builder
	for i, e := range a.Edges {
		if i == 0 || a.Edges[i-1].From != e.From {
			fmt.Fprintf(&b, "%s\n", e.From)
		}
		branch := "├─"
		if i == len(a.Edges)-1 || a.Edges[i+1].From != e.From {
			branch = "└─"
		}
		fmt.Fprintf(&b, "%s %s  %s\n", branch, e.To, e.Flow.line())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// line describes the traffic in a few words.
func (f Flow) line() string {
	var parts []string
	if f.Requests > 0 {
		parts = append(parts, rate(f.Requests)+" req/s")
		if f.Errors > 0 {
			parts = append(parts, percent(f.Errors)+" errors")
		}
		if f.P95 > 0 {
			parts = append(parts, "p95 "+shown(f.P95))
		}
	}
	if f.Connections > 0 || f.Requests == 0 {
		parts = append(parts, rate(f.Connections)+" conn/s")
	}
	return strings.Join(parts, ", ")
}

// Dot writes the graph in the language of Graphviz.
func (a Answer) Dot(w io.Writer) error {
	var b strings.Builder
	b.WriteString("digraph mesh {\n  rankdir=LR;\n  node [shape=box, style=rounded];\n")
	for _, e := range a.Edges {
		color := ""
		if e.Errors > 0 {
			color = ", color=red"
		}
		fmt.Fprintf(&b, "  %q -> %q [label=%q%s];\n", e.From.String(), e.To.String(), e.Flow.line(), color)
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}
