// Package dns answers the DNS queries of the workload. Names of the mesh are answered from a table that the control plane keeps up to
// date; all others are passed on to the servers in resolv.conf.
//
// Invariants: The table is a value that never changes: each query sees one version of it, and one goroutine replaces it. The last table
// stays in force while the control plane cannot be reached. Until there is a table, no query is answered with NXDOMAIN, because its name
// may be one of the mesh. Nothing is cached but the table. From another server only the answer to the question that it was sent is
// accepted. The number of queries that are passed on at the same time is bounded, and a query that comes back to the agent is not passed on
// again.
//
// Goroutines: the servers' goroutines, one for each query over UDP and each TCP connection, which Run waits for; one per other server under
// query, which the client's query waits for; and the receiving half of the stream to the control plane.
package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/netutil"
)

// Options are the settings of a Proxy.
type Options struct {
	// Host and Port are where queries arrive. The host localhost means the loopback addresses of both IP versions.
	Host string
	Port uint16
	// Domain is the domain of the workload's namespace.
	Domain string
	// ResolvConf is the file with the servers for other names, and with the search list.
	ResolvConf string
	// Parallel queries all servers at the same time. Otherwise one is queried after the other.
	Parallel bool
	// Timeout is how long other servers may take to answer.
	Timeout time.Duration
	Log     *slog.Logger
}

const (
	// maxConnections is the largest number of TCP connections to one address of the agent.
	maxConnections = 256
	// readSize is the size of the largest query over UDP, in bytes. A question takes at most 260 bytes, and options some more.
	readSize = 1232
	// ioTimeout is how long a client over TCP may take to send a query, or to read an answer.
	ioTimeout = 2 * time.Second
	// idleTimeout is how long a TCP connection may be without queries.
	idleTimeout = 8 * time.Second
	// rereadInterval is how often resolv.conf is read again. A change is used if the file is the same confirmInterval later. A file without
	// servers changes nothing: the known servers may still answer.
	rereadInterval  = 5 * time.Second
	confirmInterval = 500 * time.Millisecond
)

// Proxy answers queries.
type Proxy struct {
	o       Options
	servers []*dns.Server
	own     []netip.AddrPort

	table    atomic.Pointer[Table] // nil until the control plane has sent all names
	resolver atomic.Pointer[resolver]
	// connected is true while the table is up to date.
	connected atomic.Bool
	forward   forwarder
	metrics   metrics
}

// Listen opens the sockets of a proxy. Run serves them, and closes them.
func Listen(ctx context.Context, o Options) (*Proxy, error) {
	p := &Proxy{o: o}
	p.forward = forwarder{timeout: o.Timeout, parallel: o.Parallel, metrics: &p.metrics, slots: make(chan struct{}, maxForwarded)}
	hosts := []string{o.Host}
	if o.Host == "localhost" {
		hosts = []string{"127.0.0.1", "::1"}
	}
	for _, host := range hosts {
		err := p.listen(ctx, host)
		if missing := errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT); missing && len(hosts) > 1 {
			continue // the host does not have this IP version
		}
		if err != nil {
			p.close()
			return nil, fmt.Errorf("the DNS proxy has no port: %w; free the port, or set another one with DNS_PROXY_ADDR", err)
		}
	}
	if len(p.servers) == 0 {
		return nil, errors.New("the DNS proxy has no address: the host has no loopback address; set DNS_PROXY_ADDR")
	}
	r, err := readResolver(o.ResolvConf, p.own)
	if err != nil {
		o.Log.Warn("names that are not of the mesh cannot be resolved", "error", err)
		r = &resolver{}
	}
	p.resolver.Store(r)
	return p, nil
}

// listen opens the sockets of one address. If the port is 0, both have the port that TCP gets.
func (p *Proxy) listen(ctx context.Context, host string) error {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(p.o.Port))))
	if err != nil {
		return err
	}
	at := l.Addr().(*net.TCPAddr).AddrPort()
	packets, err := config.ListenPacket(ctx, "udp", at.String())
	if err != nil {
		return errors.Join(err, l.Close())
	}
	if p.o.Port == 0 {
		p.o.Port = at.Port()
	}
	p.own = append(p.own, netip.AddrPortFrom(at.Addr().Unmap(), at.Port()))
	p.servers = append(p.servers,
		&dns.Server{PacketConn: packets, Net: "udp", UDPSize: readSize},
		&dns.Server{
			Listener: netutil.LimitListener(l, maxConnections), Net: "tcp",
			ReadTimeout: ioTimeout, WriteTimeout: ioTimeout, IdleTimeout: func() time.Duration { return idleTimeout },
		})
	return nil
}

func (p *Proxy) close() {
	for _, s := range p.servers {
		if s.Listener != nil {
			_ = s.Listener.Close()
		} else {
			_ = s.PacketConn.Close()
		}
	}
}

// Addresses are the addresses and ports at which queries arrive, each over UDP and TCP.
func (p *Proxy) Addresses() []netip.AddrPort { return p.own }

// Run serves until ctx is cancelled, and follows resolv.conf.
func (p *Proxy) Run(ctx context.Context) error {
	p.o.Log.Info("answering DNS queries", "addresses", p.own)
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, len(p.servers))
	var started, running sync.WaitGroup
	started.Add(len(p.servers))
	for _, s := range p.servers {
		s.Handler, s.NotifyStartedFunc = handler{serving, p, s.Listener != nil}, started.Done
		running.Go(func() { failed <- s.ActivateAndServe() })
	}
	started.Wait()
	err := p.follow(ctx, failed)
	cancel()
	for _, s := range p.servers {
		_ = s.Shutdown() // it waits for queries under way, which the context has ended
	}
	running.Wait()
	return err
}

// follow reads resolv.conf at intervals, until ctx is cancelled or a server fails.
func (p *Proxy) follow(ctx context.Context, failed <-chan error) error {
	tick := time.NewTicker(rereadInterval)
	defer tick.Stop()
	var seen *resolver // differs from the one in use
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return fmt.Errorf("the DNS proxy: %w", err)
		case <-tick.C:
			r, err := readResolver(p.o.ResolvConf, p.own)
			used := p.resolver.Load()
			switch {
			case err != nil || r.equal(used) || len(r.servers) == 0 && len(used.servers) > 0:
				seen = nil
				tick.Reset(rereadInterval)
			case seen == nil || !r.equal(seen): // the file may be half written
				seen = r
				tick.Reset(confirmInterval)
			default:
				p.o.Log.Info("resolv.conf has changed", "servers", r.servers, "search", r.search)
				p.resolver.Store(r)
				seen = nil
				tick.Reset(rereadInterval)
			}
		}
	}
}

// Status is the state of the proxy.
type Status struct {
	// Ready is true if the control plane has sent all names, at some time. Connected is true if they are up to date.
	Ready     bool
	Connected bool
	// Names is the number of names.
	Names int
	// Servers are the servers for other names.
	Servers []netip.AddrPort
}

// Status describes the proxy.
func (p *Proxy) Status() Status {
	s := Status{Connected: p.connected.Load()}
	if t := p.table.Load(); t != nil {
		s.Ready, s.Names = true, t.names.Len()
	}
	s.Servers = p.resolver.Load().servers
	return s
}

// Ready returns nil if the control plane has sent all names.
func (p *Proxy) Ready() error {
	if p.table.Load() == nil {
		return errors.New("the control plane has not sent the names of the mesh yet, so that DNS queries for them have no answers")
	}
	return nil
}

// Names are the names of the mesh with their addresses, for a debug page.
func (p *Proxy) Names() map[string][]netip.Addr {
	t := p.table.Load()
	if t == nil {
		return nil
	}
	all := make(map[string][]netip.Addr, t.names.Len())
	for host, n := range t.names.All() {
		all[string(host)] = append(append([]netip.Addr{}, n.four...), n.six...)
	}
	return all
}
