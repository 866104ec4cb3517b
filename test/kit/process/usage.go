package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the CPU times in /proc, USER_HZ, which is part of the kernel's interface: proc(5).
const tick = 10 * time.Millisecond

// CPUTime is the user and system time that a process has used, in steps of 10 ms.
func CPUTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	sum := 0
	for _, f := range fields[11:13] { // utime and stime, numbered from the state on
		n, err := strconv.Atoi(f)
		if err != nil {
			return 0, fmt.Errorf("reading the CPU time: %w", err)
		}
		sum += n
	}
	return time.Duration(sum) * tick, nil
}
