package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/pilotmesh/pilot/internal/xds/resource"
	"github.com/pilotmesh/pilot/test/testbed"
)

// The load of one namespace against the work of another one.
const (
	hostileBlocks, hostileIssuers, hostileSecrets = 300, 2000, 3000
	hostileCallers, hostileStreams, hostileWants  = 16, 40, 20_000
	hostileMetadata                               = 300 << 10 // bytes of labels
	hostileAddress                                = "127.0.0.66"
	lowestPriority                                = 19
)

// hostileTask is everything that one namespace can do. It has a process of its own with the lowest priority, because its clients
// represent other machines: their work must not take cores from the server and from the namespace that works.
type hostileTask struct {
	Server, ConfigDir, StateDir string
}

// run prints saysReady when everything is under way, and ends with in. It tries refused requests again.
func (t hostileTask) run(ctx context.Context, in io.Reader, out io.Writer) error {
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, lowestPriority); err != nil {
		return err
	}
	d := &testbed.Discovery{Secure: t.Server, ConfigDir: t.ConfigDir, StateDir: t.StateDir}
	if _, err := d.Write("evil.yaml", evilObjects(0)); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	again := func(every time.Duration, do func(n int)) {
		group.Go(func() {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for n := 0; ctx.Err() == nil; n++ {
				do(n)
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	again(2*time.Second, func(n int) { _, _ = d.Write("evil.yaml", evilObjects(n)) })
	for i := range hostileCallers {
		again(5*time.Millisecond, func(n int) { invent(ctx, d, fmt.Sprintf("caller-%d-%d", i, n)) })
	}
	for i := range hostileStreams {
		again(time.Second, func(n int) { demand(ctx, d, i, n) })
	}
	_, err := fmt.Fprintln(out, saysReady)
	if err == nil {
		_, err = io.Copy(io.Discard, in)
	}
	cancel()
	group.Wait()
	return err
}

// evilObjects are wide blocks and issuers whose keys never come.
func evilObjects(generation int) string {
	var text strings.Builder
	for i := range hostileBlocks {
		fmt.Fprintf(&text, `---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: block-%d, namespace: evil, labels: {generation: "%d"}}
spec: {hosts: [block-%d.evil.test], addresses: ["0.0.0.0/%d"], resolution: NONE, exportTo: ["."], ports: [{number: %d, name: tcp, protocol: TCP}]}
`, i, generation, i, i%8, 7000+i+generation%2)
	}
	for i := range hostileIssuers {
		fmt.Fprintf(&text, `---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: issuer-%d, namespace: evil}
spec: {jwtRules: [{issuer: "i-%d", jwksUri: "https://198.51.100.%d/keys-%d", timeout: 60s}]}
`, i, i, i%250, i)
	}
	return text.String()
}

// newHostile is an agent at an address of its own, as clients of another machine are.
func newHostile(d *testbed.Discovery, account string) (*newcomer, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(hostileAddress)}}
	return newNewcomer(d, "evil", account, grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp", addr)
	}))
}

// invent asks for a certificate with an invented token.
func invent(ctx context.Context, d *testbed.Discovery, account string) {
	a, err := newHostile(d, account)
	if err != nil {
		return
	}
	defer a.conn.Close() //nolint:errcheck // nothing is buffered
	a.token = a.token[:len(a.token)-4] + "AAAA"
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_ = a.certify(ctx) // it is refused
}

// demand opens streams with all that a stream may want: labels, Secrets and endpoints without end.
func demand(ctx context.Context, d *testbed.Discovery, stream, n int) {
	a, err := newHostile(d, fmt.Sprint("proxy-", stream))
	if err != nil {
		return
	}
	defer a.conn.Close() //nolint:errcheck // nothing is buffered
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	labels := map[string]any{"app": "evil", "generation": fmt.Sprint(n)}
	kind, prefix, count := resource.Endpoint.URL(), "outbound|80||want-", hostileWants
	switch stream % 3 {
	case 0:
		labels["long"] = strings.Repeat("x", hostileMetadata)
	case 1:
		kind, prefix, count = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "kubernetes://secret-", hostileSecrets
	}
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprint(prefix, stream, "-", i)
	}
	s, err := a.open(ctx, labels, kind, names...)
	for err == nil {
		err = takeAnswer(s) // until it is refused, or the time is over
	}
}
