package standard

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/test/cluster"
)

// Traces are everything that a cluster has on the machine, which is to be gone when it is closed.
type Traces struct {
	devices    string // what their names begin with
	dir        string
	namespaces map[string]bool // network namespaces of this process's descendants, by the link in /proc
}

// TracesOf notes what belongs to a cluster that runs; own is the network namespace in which it was started.
func TracesOf(c *cluster.Cluster, own string) Traces {
	t := Traces{devices: c.Devices(), dir: c.Dir(), namespaces: map[string]bool{}}
	for _, pid := range descendants(os.Getpid()) {
		if ns := namespace(strconv.Itoa(pid)); ns != "" && ns != own {
			t.namespaces[ns] = true
		}
	}
	return t
}

// Namespace is the network namespace of this process.
func Namespace() string { return namespace("self") }

func namespace(pid string) string {
	link, err := os.Readlink("/proc/" + pid + "/ns/net")
	if err != nil {
		return "" // it has ended
	}
	return link
}

// processes returns parents by process.
func processes() map[int]int {
	all := map[int]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// The name, in parentheses, may hold anything.
		_, rest, ok := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
		fields := strings.Fields(rest)
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if !ok || err != nil || len(fields) < 2 {
			continue
		}
		if parent, err := strconv.Atoi(fields[1]); err == nil {
			all[pid] = parent
		}
	}
	return all
}

func descendants(of int) []int {
	parents := processes()
	var all []int
	for pid := range parents {
		for p := pid; p > 1; p = parents[p] {
			if p == of && pid != of {
				all = append(all, pid)
				break
			}
		}
	}
	return all
}

// Left gives the kernel time to end threads and namespaces, and lists what remains after that.
func (t Traces) Left(ctx context.Context) []string {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		left := t.left()
		if len(left) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return left
		}
	}
}

// Left waits until nothing is left of a cluster whose process has ended, by its devices and its folder, and returns what remains when ctx ends.
func Left(ctx context.Context, devices, dir string) []string {
	return Traces{devices: devices, dir: dir}.Left(ctx)
}

// left lists what remains.
func (t Traces) left() []string {
	var all []string
	if _, err := os.Stat(t.dir); err == nil {
		all = append(all, "folder "+t.dir)
	}
	if interfaces, err := net.Interfaces(); err == nil {
		for _, i := range interfaces {
			if strings.HasPrefix(i.Name, t.devices) {
				all = append(all, "device "+i.Name)
			}
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		for line := range strings.Lines(string(mounts)) {
			if strings.Contains(line, t.dir) || strings.Contains(line, "/netns/"+t.devices) {
				all = append(all, "mount "+strings.TrimSpace(line))
			}
		}
	}
	table := "pilot-" + strings.TrimPrefix(t.devices, "pk")
	if out, err := exec.Command("nft", "list", "tables").Output(); err == nil && strings.Contains(string(out), "inet "+table+"\n") {
		all = append(all, "nftables table "+table)
	}
	for pid := range processes() {
		if ns := namespace(strconv.Itoa(pid)); t.namespaces[ns] {
			all = append(all, fmt.Sprintf("process %d in %s", pid, ns))
		}
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && strings.Contains(string(line), t.dir) {
			all = append(all, fmt.Sprintf("process %d: %s", pid, strings.ReplaceAll(string(line), "\x00", " ")))
		}
	}
	threads, _ := filepath.Glob("/proc/self/task/*/ns/net")
	for _, f := range threads {
		if link, err := os.Readlink(f); err == nil && t.namespaces[link] {
			all = append(all, "a thread of this process in "+link)
		}
	}
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + t.devices + "*")
	for _, g := range groups {
		all = append(all, "cgroup "+g)
	}
	return all
}

// Machine lists what a cluster that runs has on the machine at this moment: devices, routing rules, mounts, cgroups, the
// content of its nftables table, network namespaces, processes, and folders of pods. Two lists, of before and after
// something, can be compared.
func Machine(c *cluster.Cluster) ([]string, error) {
	all := Traces{devices: c.Devices(), dir: c.Dir()}.left()
	rules, err := exec.Command("ip", "rule").Output()
	if err != nil {
		return nil, fmt.Errorf("listing rules: %w", err)
	}
	for line := range strings.Lines(string(rules)) {
		if strings.Contains(line, "iif "+c.Devices()) {
			all = append(all, "rule "+strings.TrimSpace(line))
		}
	}
	table, err := exec.Command("nft", "list", "table", "inet", "pilot-"+strings.TrimPrefix(c.Devices(), "pk")).Output()
	if err != nil {
		return nil, fmt.Errorf("listing nftables: %w", err)
	}
	// Elements of sets and rules of chains, in no order.
	for part := range strings.FieldsFuncSeq(string(table), func(r rune) bool { return strings.ContainsRune(",{}\n", r) }) {
		if part = strings.TrimSpace(part); part != "" {
			all = append(all, "nft "+part)
		}
	}
	inside, _ := filepath.Glob("/sys/fs/cgroup/*/" + c.Devices() + "*/*/cgroup.procs")
	for _, g := range inside {
		pids, err := os.ReadFile(g)
		if err != nil {
			continue // it has been removed
		}
		all = append(all, "cgroup "+filepath.Dir(g))
		for pid := range strings.FieldsSeq(string(pids)) {
			all = append(all, "process "+pid+" in "+filepath.Dir(g), "namespace "+namespace(pid))
		}
	}
	held, _ := filepath.Glob("/proc/self/fd/*")
	for _, f := range held {
		if link, err := os.Readlink(f); err == nil && strings.HasPrefix(link, "net:[") {
			all = append(all, "namespace "+link)
		}
	}
	pods, _ := filepath.Glob(filepath.Join(c.Dir(), "*", "pods", "*"))
	for _, p := range pods {
		all = append(all, "folder "+p)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
