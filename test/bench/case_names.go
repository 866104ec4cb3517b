package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/pilotmesh/pilot/test/testbed"
)

const (
	namedHosts     = 10_000
	queriesASecond = 5000
	querySockets   = 8
	queryTimeout   = 2 * time.Second
)

// namesInAgent measures the DNS proxy of a real pilot-agent: how long answers take under load, and the memory of the names, which is
// the difference to an agent that does not answer DNS queries.
func namesInAgent(b *bench) error {
	p, err := b.programs()
	if err != nil {
		return err
	}
	defer os.RemoveAll(p.dir)
	d := p.discovery
	if _, err := d.Write("hosts.yaml", namedServices(namedHosts)); err != nil {
		return err
	}
	if err := d.Start(b.ctx); err != nil {
		return err
	}
	defer d.Stop()
	without, err := b.agentMemory(p.agent, p.dir, d, "without", nil)
	if err != nil {
		return err
	}
	with, err := b.agentMemory(p.agent, p.dir, d, "with", func(server string) error { return b.askForNames(server) })
	if err != nil {
		return err
	}
	b.record("names-10k/memory", with)
	b.record("names-10k/memory-of-names", with-without)
	return nil
}

// namedServices are services with addresses of their own.
func namedServices(n int) string {
	var hosts strings.Builder
	for i := range n {
		fmt.Fprintf(&hosts, `---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: s-%05d, namespace: shop}
spec: {hosts: [%s], addresses: [240.240.%d.%d], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 127.0.0.1}]}
`, i, namedHost(i), i>>8, i&255)
	}
	return hosts.String()
}

func namedHost(i int) string { return fmt.Sprintf("s-%05d.some-team.example.com", i) }

// agentMemory runs an agent, has it do something, and returns its memory in MB. If use is nil, it does not answer DNS queries.
func (b *bench) agentMemory(o testbed.AgentOptions, dir string, d *testbed.Discovery, name string, use func(server string) error) (float64, error) {
	ports, err := testbed.FreePorts(1)
	if err != nil {
		return 0, err
	}
	server := testbed.Loopback(ports[0])
	if use != nil {
		o.Env = []string{"ISTIO_META_DNS_CAPTURE=true", "DNS_PROXY_ADDR=" + server}
	}
	a, err := testbed.StartAgent(o, dir, testbed.Node{Name: name, Namespace: "shop", Discovery: d.GRPC})
	if err != nil {
		return 0, err
	}
	defer a.Stop()
	if err := a.AwaitReady(b.ctx); err != nil {
		return 0, err
	}
	if err := b.pause(5 * time.Second); err != nil { // for Envoy
		return 0, err
	}
	if use != nil {
		if err := use(server); err != nil {
			return 0, err
		}
	}
	return residentMemory(a.PID())
}

// residentMemory is the memory of a process in MB.
func residentMemory(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(text), "VmRSS:")
	f := strings.Fields(rest)
	if !ok || len(f) == 0 {
		return 0, errors.New("the status of the process does not have its memory")
	}
	kilobytes, err := strconv.ParseFloat(f[0], 64)
	return kilobytes / 1024, err
}

// askForNames asks at a rate and notes how long each answer takes, from the moment of sending.
func (b *bench) askForNames(server string) error {
	for range b.reps(3) {
		ctx, cancel := context.WithTimeout(b.ctx, b.sizes.queries)
		var all sync.WaitGroup
		took, errs := make([][]float64, querySockets), make([]error, querySockets)
		for i := range querySockets {
			all.Go(func() { took[i], errs[i] = askOn(ctx, server, i) })
		}
		all.Wait()
		cancel()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		list := slices.Concat(took...)
		slices.Sort(list)
		if len(list) < int(queriesASecond*b.sizes.queries.Seconds()*9/10) {
			return fmt.Errorf("only %d answers in %v", len(list), b.sizes.queries)
		}
		b.record("names-10k/rate", float64(len(list))/b.sizes.queries.Seconds())
		b.record("names-10k/answer-p50", list[len(list)/2])
		b.record("names-10k/answer-p99", list[len(list)*99/100])
		b.record("names-10k/answer-max", list[len(list)-1])
	}
	return nil
}

// asked are the queries of a socket by their numbers: when each was sent.
type asked struct {
	mu sync.Mutex
	at [1 << 16]time.Time
}

// askOn asks on one socket until ctx ends, and returns the time of each answer in milliseconds. Every query must be answered.
func askOn(ctx context.Context, server string, socket int) (took []float64, err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	sent := 0
	queries := &asked{}
	received := make(chan error, 1)
	go func() {
		answer := make([]byte, 1500)
		for {
			n, err := conn.Read(answer)
			if err != nil {
				received <- err
				return
			}
			now := time.Now()
			if n < 12 || answer[3]&0xf != 0 || binary.BigEndian.Uint16(answer[6:]) != 1 {
				received <- fmt.Errorf("an answer without an address: % x", answer[:n])
				return
			}
			queries.mu.Lock()
			took = append(took, float64(now.Sub(queries.at[binary.BigEndian.Uint16(answer)]))/1e6)
			queries.mu.Unlock()
		}
	}()
	tick := time.NewTicker(time.Second * querySockets / queriesASecond)
	defer tick.Stop()
	begin := time.Now()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		// A tick that came late is made up for.
		for due := int(time.Since(begin).Seconds() * queriesASecond / querySockets); sent < due; sent++ {
			q, err := questionFor(uint16(sent), namedHost((sent*querySockets+socket)%namedHosts))
			if err != nil {
				return nil, err
			}
			queries.mu.Lock()
			queries.at[uint16(sent)] = time.Now()
			queries.mu.Unlock()
			if _, err := conn.Write(q); err != nil {
				return nil, err
			}
		}
	}
	if err := conn.SetReadDeadline(time.Now().Add(queryTimeout / 4)); err != nil {
		return nil, err
	}
	if err := <-received; !errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, err
	}
	if len(took) != sent {
		return nil, fmt.Errorf("%d of %d queries have no answer", sent-len(took), sent)
	}
	return took, nil
}

// questionFor is a query for the addresses of a host.
func questionFor(id uint16, host string) ([]byte, error) {
	name, err := dnsmessage.NewName(host + ".")
	if err != nil {
		return nil, err
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: id, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	return m.Pack()
}
