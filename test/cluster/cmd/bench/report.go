package main

import (
	"fmt"
	"slices"
	"time"
)

// show prints a figure: one value, or p50, p99 and the worst of several. A bar of 0 is none.
func show(name, unit string, bar float64, values ...float64) {
	slices.Sort(values)
	text := fmt.Sprintf("%10.2f", values[0])
	decides := values[0]
	if len(values) > 1 {
		decides = quantile(values, 0.99)
		text = fmt.Sprintf("%10.2f %10.2f %10.2f", quantile(values, 0.5), decides, values[len(values)-1])
	}
	verdict := ""
	if bar > 0 {
		verdict = fmt.Sprintf("  bar %g: ok", bar)
		if decides > bar {
			verdict = fmt.Sprintf("  bar %g: MISS", bar)
		}
	}
	fmt.Printf("%-34s %-34s %s%s\n", name, text, unit, verdict)
}

// exactly prints a count that must have one value.
func exactly(name, unit string, want, is float64) {
	verdict := "ok"
	if is != want {
		verdict = "MISS"
	}
	fmt.Printf("%-34s %-34s %s  must be %g: %s\n", name, fmt.Sprintf("%10g", is), unit, want, verdict)
}

// quantile returns a quantile of sorted values.
func quantile(sorted []float64, q float64) float64 {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
