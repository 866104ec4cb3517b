package proof

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const crowd = `apiVersion: apps/v1
kind: Deployment
metadata: {name: crowd}
spec:
  replicas: %d
  selector: {matchLabels: {app: crowd}}
  template:
    metadata: {labels: {app: crowd}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: main, image: registry.k8s.io/pause}
---
apiVersion: v1
kind: Service
metadata: {name: crowd}
spec: {selector: {app: crowd}, ports: [{port: 80}]}
`

// TestTwoHundredPods: the cost of 200 pods. The time depends on the machine, which may be busy with other packages, and has a loose bound; memory and
// processor time of nodes that only hold them are their own.
func TestTwoHundredPods(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	const pods = 200
	s := on(t)
	before := memory(t)
	begin := time.Now()
	s.apply(fmt.Sprintf(crowd, pods))
	s.within(5*time.Minute, "200 ready pods", func(ctx context.Context) error {
		d, err := s.api.AppsV1().Deployments(s.namespace).Get(ctx, "crowd", meta.GetOptions{})
		if err != nil || d.Status.ReadyReplicas < pods {
			return unmet(err, "%d are ready", d.Status.ReadyReplicas)
		}
		return nil
	})
	took := time.Since(begin)
	perPod := (memory(t) - before) / pods
	// What the start set in motion settles first.
	idle := 1.0
	s.within(2*time.Minute, "nodes to idle", func(ctx context.Context) error {
		if idle = load(ctx, t, 5*time.Second); idle > 0.05 {
			return fmt.Errorf("they take %.1f%% of a core", 100*idle)
		}
		return nil
	})
	t.Logf("%d pods were ready after %s; each takes %d KiB of the nodes; the nodes take %.1f%% of a core", pods, took.Round(time.Second/10), perPod>>10, 100*idle)
	if limit := int64(5 << 20); perPod > limit {
		t.Errorf("a pod takes %d bytes, the budget is %d", perPod, limit)
	}
}

// memory is the memory of this process, in which the nodes run, and of the nodes' processes other than containers'.
func memory(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory()
	total := int64(0)
	for _, pid := range append(stages(), "self") {
		text, err := os.ReadFile("/proc/" + pid + "/smaps_rollup")
		if err != nil {
			continue // it has ended
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "Pss:" {
				kb, err := strconv.ParseInt(f[1], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				total += kb << 10
			}
		}
	}
	return total
}

// stages are podrunner's own processes.
func stages() []string {
	var all []string
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	want, _ := filepath.Abs("../../../bin/podrunner-init")
	for _, l := range links {
		if exe, err := os.Readlink(l); err == nil && exe == want {
			all = append(all, filepath.Base(filepath.Dir(l)))
		}
	}
	return all
}

// load is the share of a core that this process and podrunner's own use over a time.
func load(ctx context.Context, t *testing.T, over time.Duration) float64 {
	t.Helper()
	before := ticks(t)
	timer := time.NewTimer(over)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	const perSecond = 100 // USER_HZ, which is part of the kernel's interface
	return float64(ticks(t)-before) / perSecond / over.Seconds()
}

// ticks is the processor time used so far.
func ticks(t *testing.T) int64 {
	t.Helper()
	total := int64(0)
	for _, pid := range append(stages(), "self") {
		text, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			continue
		}
		f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		for _, i := range []int{11, 12} { // utime, stime: fields 14 and 15 of proc(5)
			n, err := strconv.ParseInt(f[i], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			total += n
		}
	}
	return total
}
