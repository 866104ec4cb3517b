package main

import "testing"

// TestBusy: iowait is idle time, and time of guests counts once.
func TestBusy(t *testing.T) {
	earlier := parseCPU("cpu  100 0 100 1000 100 0 0 0 50 0\ncpu0 1 1 1 1\n")
	if earlier != (cpu{200, 1300}) {
		t.Errorf("%+v", earlier)
	}
	for stat, want := range map[string]string{
		"cpu 140 10 110 1030 110 0 0 0 90 0": "60 %",
		"cpu 100 0 100 1000 100 0 0 0 50 0":  "-",
		"cpu 1 0 x":                          "-",
		"":                                   "-",
	} {
		if got := parseCPU(stat).busySince(earlier); got != want {
			t.Errorf("%q: %s, want %s", stat, got, want)
		}
	}
	if cpuNow().all == 0 {
		t.Error("nothing is read of /proc/stat")
	}
}
