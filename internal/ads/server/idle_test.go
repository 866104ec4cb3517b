package server

import (
	"net"
	"testing"
	"time"
)

// peerConn is a connection from an address that notes its end.
type peerConn struct {
	net.Conn
	from   string
	closed bool
}

func (p *peerConn) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.ParseIP(p.from), Port: 1}
}

func (p *peerConn) Close() error { p.closed = true; return nil }

// TestIdleConnections: an address has so many connections without a stream at most, and all together. Its oldest one ends for a new one. Connections
// of other addresses stay, and connections that have a stream do not count.
func TestIdleConnections(t *testing.T) {
	crowded := 0
	l := &idlers{most: 6, mostOf: 4, crowded: func() { crowded++ }}
	open := func(from string) (*peerConn, *idler) {
		p := &peerConn{from: from}
		return p, l.enter(p)
	}
	good, goodIdler := open("10.0.0.2")
	worker, w := open("10.0.0.1")
	w.work()
	var flood []*peerConn
	for range 10 {
		p, _ := open("10.0.0.1")
		flood = append(flood, p)
	}
	for i, p := range flood {
		if p.closed != (i < 6) {
			t.Errorf("connection %d of the flood: closed %v", i, p.closed)
		}
	}
	late, _ := open("10.0.0.3")
	other, _ := open("10.0.0.4")
	if !flood[6].closed || flood[7].closed || good.closed || late.closed || other.closed || worker.closed {
		t.Errorf("the address with the most pays: %v %v %v %v %v %v", flood[6].closed, flood[7].closed, good.closed, late.closed, other.closed, worker.closed)
	}
	w.wait() // it has no stream any more, and is the newest of its address
	if !flood[7].closed || worker.closed {
		t.Errorf("after the end of a stream: %v %v", flood[7].closed, worker.closed)
	}
	goodIdler.leave()
	goodIdler.wait()
	if l.count != 5 || len(l.of) != 3 || crowded != 8 {
		t.Errorf("%d connections of %d addresses, and %d were closed", l.count, len(l.of), crowded)
	}
}

// TestIdleOverTCP: connections of clients that say nothing end when there are too many of them, and one with a stream stays.
func TestIdleOverTCP(t *testing.T) {
	r := newRig(t, Options{MaxIdleOf: 3})
	r.mesh.publish(clusters(1, 1, 1, "x"))
	end, err := r.as(t, "")
	must(t, err)
	idle := func(n int) {
		waitFor(testContext(t), t, "idle connections", func() bool {
			r.server.idlers.mu.Lock()
			defer r.server.idlers.mu.Unlock()
			return r.server.idlers.count == n
		})
	}
	var first net.Conn
	for i := range 5 {
		c, err := net.Dial("tcp", r.addr)
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		if i == 0 {
			first = c
			idle(1) // so that it is the oldest one: the server takes connections in side by side
		}
	}
	must(t, first.SetReadDeadline(time.Now().Add(20*time.Second)))
	b := make([]byte, 1024)
	for err == nil {
		_, err = first.Read(b)
	}
	if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Error("the oldest connection stays open")
	}
	idle(3)
	if n := len(r.server.Streams()); n != 1 {
		t.Errorf("%d streams", n)
	}
	end()
}
