package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"
)

// cpuTime is the CPU time of the process so far, in user and system mode, on all cores.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // the arguments are constants
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// retained is the memory that a collection does not free: heap and stacks.
func retained() float64 {
	runtime.GC()
	runtime.GC() // the second one frees the content of pools
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// calm lets pending work end before a measurement: acknowledgements, timers, the garbage collector.
func (b *bench) calm() error {
	runtime.GC()
	runtime.GC()
	return b.pause(b.sizes.settle)
}

// pause waits; only the end of the program cuts it short.
func (b *bench) pause(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-b.ctx.Done():
		return context.Cause(b.ctx)
	}
}

// profiled runs the measured part of a case, with a CPU profile around it and a heap profile after it if they are wanted.
// Each repetition has its own CPU profile, so that the profiles contain nothing else; go tool pprof merges them.
func (b *bench) profiled(name string, fn func() error) error {
	if b.profiles == "" {
		return fn()
	}
	b.taken[name]++
	cpu, err := os.Create(filepath.Join(b.profiles, fmt.Sprintf("%s.%d.cpu.pprof", name, b.taken[name])))
	if err != nil {
		return err
	}
	defer cpu.Close()
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return fmt.Errorf("profiling %s: %w", name, err)
	}
	err = fn()
	pprof.StopCPUProfile()
	if err != nil {
		return err
	}
	return b.heapProfile(name)
}

// heapProfile writes a heap profile, if profiles are wanted.
func (b *bench) heapProfile(name string) error {
	if b.profiles == "" {
		return nil
	}
	return heapProfile(filepath.Join(b.profiles, strings.ReplaceAll(name, "/", "-")+".heap.pprof"))
}

// heapProfile writes a heap profile to a file, if one is named.
func heapProfile(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return pprof.Lookup("heap").WriteTo(f, 0)
}

// quantile is the q-th quantile of the samples, the larger neighbour between two.
func quantile(samples []float64, q float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	i := int(q*float64(len(sorted)) + 0.5)
	return sorted[min(max(i, 0), len(sorted)-1)]
}

func median(samples []float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
