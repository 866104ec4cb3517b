package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pilotmesh/pilot/test/testbed"
)

// A second of editing at a real Envoy: so many hosts, edits, and edits each second.
const (
	editedHosts = 1000
	editRate    = 20
	editTime    = 10 * time.Second
	editedFiles = 10 // hosts with files of their own
)

// editedFile is the file of a host.
func editedFile(i int) string { return fmt.Sprintf("edited-%d.yaml", i) }

// editedHost declares a service whose requests Envoy answers itself with a text, or passes on to a backend if that has a port.
func editedHost(i, port, backend int, text string) string {
	route := fmt.Sprintf("  - directResponse: {status: 200, body: {string: %q}}\n", text)
	if backend > 0 {
		route = fmt.Sprintf("  - headers: {response: {set: {x-edit: %q}}}\n    route: [{destination: {host: s%d.shop.svc.cluster.local}}]\n", text, i)
	}
	return fmt.Sprintf("---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: s%[1]d, namespace: shop}\nspec:\n  hosts: [s%[1]d.shop.svc.cluster.local]\n"+
		"  location: MESH_INTERNAL\n  resolution: STATIC\n  ports: [{number: %[2]d, name: http, protocol: HTTP}]\n  endpoints: [{address: 127.0.0.1, ports: {http: %[3]d}}]\n"+
		"---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: s%[1]d, namespace: shop}\nspec:\n  hosts: [s%[1]d.shop.svc.cluster.local]\n  http:\n%[4]s",
		i, port, max(backend, 9), route)
}

// editedMesh starts a control plane with hosts at one port. The first editedFiles hosts have files of their own.
func (b *bench) editedMesh(backend int) (p programs, port int, err error) {
	if p, err = b.programs(); err != nil {
		return p, 0, err
	}
	ports, err := testbed.FreePorts(1)
	if err != nil {
		return p, 0, err
	}
	var rest strings.Builder
	for i := editedFiles; i < editedHosts; i++ {
		rest.WriteString(editedHost(i, ports[0], backend, "0"))
	}
	_, err = p.discovery.Write("rest.yaml", rest.String())
	for i := 0; i < editedFiles && err == nil; i++ {
		_, err = p.discovery.Write(editedFile(i), editedHost(i, ports[0], backend, "0"))
	}
	if err == nil {
		err = p.discovery.Start(b.ctx)
	}
	return p, ports[0], err
}

// editsAtEnvoys measures, with 1,000 hosts and for an Envoy with virtual hosts as resources and one without, how long after the write of a file an edit has effect, and
// how busy the main thread of the Envoy is while another host changes 20 times a second.
func editsAtEnvoys(b *bench) error {
	p, port, err := b.editedMesh(0)
	if p.dir != "" {
		defer os.RemoveAll(p.dir)
	}
	if err != nil {
		return err
	}
	defer p.discovery.Stop()
	median := map[string]float64{}
	for _, name := range []string{"whole", "vhds", "whole", "vhds"} { // by turns, because the other load of the machine changes
		e, err := testbed.StartEnvoy(b.ctx, p.agent.Envoy, p.dir, testbed.Node{
			Name: name, Namespace: "shop", Discovery: p.discovery.GRPC, Metadata: map[string]any{"VHDS": strconv.FormatBool(name == "vhds")},
		})
		if err != nil {
			return err
		}
		took, err := b.editsAtEnvoy(p.discovery, port, "edit-envoy-1k/"+name)
		if err == nil {
			median[name] += took
			err = b.busyWithEdits(p.discovery, e, port, "edit-envoy-1k/"+name)
		}
		e.Stop()
		if err != nil {
			return err
		}
	}
	b.record("edit-envoy-1k/ratio", median["vhds"]/median["whole"])
	return nil
}

// saying asks the first host until it answers with a text.
func saying(ctx context.Context, client *http.Client, port int, text string) error {
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+testbed.Loopback(port)+"/", nil)
		if err != nil {
			return err
		}
		r.Host = "s0.shop.svc.cluster.local"
		if answer, err := client.Do(r); err == nil {
			body, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close() // it was read
			if err == nil && string(body) == text {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the edit %s has no effect: %w", text, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// editsAtEnvoy edits the first host over and over, and returns the median time.
func (b *bench) editsAtEnvoy(d *testbed.Discovery, port int, name string) (float64, error) {
	client := testbed.NewClient()
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	var took []float64
	for i := range b.reps(60) + 1 {
		text := fmt.Sprintf("edit %d", i)
		at, err := d.Write(editedFile(0), editedHost(0, port, 0, text))
		if err == nil {
			err = saying(ctx, client, port, text)
		}
		if err != nil {
			return 0, err
		}
		if i > 0 { // the first one waits for the start of the Envoy
			took = append(took, millis(time.Since(at)))
		}
	}
	b.record(name+"-p50", quantile(took, 0.5))
	b.record(name+"-p99", quantile(took, 0.99))
	return quantile(took, 0.5), nil
}

// busyWithEdits edits the first host at a rate, and records the share of a core that the main thread of the Envoy uses.
func (b *bench) busyWithEdits(d *testbed.Discovery, e *testbed.Envoy, port int, name string) error {
	length := editTime
	if b.quick {
		length /= 5
	}
	before, err := mainThread(e.PID())
	if err != nil {
		return err
	}
	begin := time.Now()
	text := ""
	for n := range int(length.Seconds()) * editRate {
		if err := b.pause(time.Until(begin.Add(time.Duration(n) * time.Second / editRate))); err != nil {
			return err
		}
		text = fmt.Sprintf("quick %d", n)
		if _, err := d.Write(editedFile(0), editedHost(0, port, 0, text)); err != nil {
			return err
		}
	}
	client := testbed.NewClient()
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	if err := saying(ctx, client, port, text); err != nil {
		return err
	}
	took := time.Since(begin)
	after, err := mainThread(e.PID())
	b.record(name+"-main", 100*(after-before).Seconds()/took.Seconds())
	return err
}

// mainThread is the processor time of the first thread of a process.
func mainThread(pid int) (time.Duration, error) {
	return spent(filepath.Join("/proc", strconv.Itoa(pid), "task", strconv.Itoa(pid), "stat"))
}

// spent is the processor time of a process or a thread, by its file stat. See proc(5).
func spent(stat string) (time.Duration, error) {
	text, err := os.ReadFile(stat)
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	const user, system, hertz = 11, 12, 100
	if len(fields) <= system {
		return 0, fmt.Errorf("the times in %s: %q", stat, text)
	}
	var ticks int
	for _, f := range []string{fields[user], fields[system]} {
		n, err := strconv.Atoi(f)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / hertz, nil
}

// edited10k makes 10,000 edits of hosts that a real Envoy is asked for all the time, restarts the control plane during the edits, in order and by a crash, and lets it close
// connections that are older than some seconds. It counts requests that fail. A third of the edits is for an Envoy with virtual hosts as resources, one for an Envoy with hosts on
// demand, and one for an Envoy with whole route configurations.
func edited10k(b *bench) error {
	edits := 10_000
	if b.quick {
		edits /= 10
	}
	backend, err := testbed.StartHTTP("backend", 0)
	if err != nil {
		return err
	}
	defer backend.Close()
	p, port, err := b.editedMesh(backend.Port)
	if p.dir != "" {
		defer os.RemoveAll(p.dir)
	}
	if err != nil {
		return err
	}
	defer p.discovery.Stop()
	p.discovery.Args = append(p.discovery.Args, "--keepaliveMaxServerConnectionAge=7s") // from the next start on
	for name, metadata := range map[string]map[string]any{"vhds": {}, "demand": {"ON_DEMAND_HOSTS": "true"}, "whole": {"VHDS": "false"}} {
		e, err := testbed.StartEnvoy(b.ctx, p.agent.Envoy, p.dir, testbed.Node{Name: name, Namespace: "shop", Discovery: p.discovery.GRPC, Metadata: metadata})
		if err != nil {
			return err
		}
		err = b.editUnderLoad(p.discovery, port, backend.Port, edits/3+1, "edits-10k/"+name)
		e.Stop()
		if err != nil {
			return err
		}
	}
	return nil
}

// editUnderLoad edits the first hosts at a rate while requests for them are sent.
func (b *bench) editUnderLoad(d *testbed.Discovery, port, backend, edits int, name string) error {
	const perSecond, restarts = 100, 4
	client := testbed.NewClient()
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := testbed.Until(ctx, "the first answer", func(ctx context.Context) error {
		_, err := testbed.Call(ctx, client, port, "s0.shop", "/")
		return err
	}); err != nil {
		return err
	}
	var asked atomic.Int64
	load := testbed.StartAsking(b.ctx, 4, 50, func(ctx context.Context, client *http.Client) (string, error) {
		a, err := testbed.Call(ctx, client, port, fmt.Sprintf("s%d.shop", asked.Add(1)%editedFiles), "/")
		return a.Name, err
	})
	err := func() error {
		tick := time.NewTicker(time.Second / perSecond)
		defer tick.Stop()
		for n := range edits {
			<-tick.C
			if _, err := d.Write(editedFile(n%editedFiles), editedHost(n%editedFiles, port, backend, fmt.Sprint(n))); err != nil {
				return err
			}
			if n%(edits/(restarts+1)+1) != edits/(restarts+1) {
				continue
			}
			if n%2 == 0 {
				d.Kill()
			} else {
				d.Stop()
			}
			if err := d.Start(b.ctx); err != nil {
				return err
			}
		}
		return nil
	}()
	t := load.Stop()
	if t.First != nil {
		fmt.Fprintf(b.log, "the first failure: %v ... ", t.First)
	}
	b.record(name+"-requests", float64(t.Total()))
	b.record(name+"-failed", float64(t.Failures))
	return err
}
