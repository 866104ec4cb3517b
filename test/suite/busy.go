package main

import (
	"fmt"
	"os"
	"strings"
)

// cpu is the time that all processors of the machine have spent since its start, in ticks: working, and altogether.
type cpu struct{ worked, all uint64 }

// cpuNow reads /proc/stat; zero where there is none.
func cpuNow() cpu {
	text, _ := os.ReadFile("/proc/stat") // without it the share is not shown
	return parseCPU(string(text))
}

// parseCPU reads the first line of /proc/stat, as proc_stat(5) describes it: user, nice, system, idle and iowait, which is idle time too, and others.
func parseCPU(stat string) (c cpu) {
	first, _, _ := strings.Cut(stat, "\n")
	for i, field := range strings.Fields(first) {
		var ticks uint64
		if i == 0 || i > 8 { // the name of the line, and time of guests, which is in user already
			continue
		}
		if _, err := fmt.Sscan(field, &ticks); err != nil {
			return cpu{}
		}
		c.all += ticks
		if i != 4 && i != 5 {
			c.worked += ticks
		}
	}
	return c
}

// busySince returns which share of the time the processors have worked since an earlier moment, such as "63 %": how much of a step is not waiting.
func (c cpu) busySince(earlier cpu) string {
	if c.all <= earlier.all || c.worked < earlier.worked {
		return "-"
	}
	return fmt.Sprintf("%d %%", 100*(c.worked-earlier.worked)/(c.all-earlier.all))
}
