package main

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// contentSize is more than the server sends for a query that found nothing, and less than it sends, compressed, for a service.
const contentSize = 450

// wire is a relay between the control plane and a server. It notes when the server answered, and counts connections.
type wire struct {
	listener net.Listener
	to       string
	first    atomic.Int64 // when the server sent something first since arm, in ns since 1970
	content  atomic.Int64 // when it sent an answer with content last
	bytes    atomic.Int64 // from the server
	open     atomic.Int64
	most     atomic.Int64
	group    sync.WaitGroup
}

func newWire(to string) (*wire, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &wire{listener: l, to: to}
	w.group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // it was closed
			}
			w.group.Go(func() { w.serve(c) })
		}
	})
	return w, nil
}

// serve relays one connection until one side ends it.
func (w *wire) serve(client net.Conn) {
	defer client.Close()
	server, err := net.DialTimeout("tcp", w.to, 5*time.Second)
	if err != nil {
		return
	}
	defer server.Close()
	n := w.open.Add(1)
	defer w.open.Add(-1)
	for most := w.most.Load(); n > most && !w.most.CompareAndSwap(most, n); most = w.most.Load() {
	}
	w.group.Go(func() {
		defer server.Close()
		defer client.Close()
		copyNoting(server, client, func(int) {})
	})
	copyNoting(client, server, func(n int) {
		now := time.Now().UnixNano()
		w.bytes.Add(int64(n))
		w.first.CompareAndSwap(0, now)
		if n >= contentSize {
			w.content.Store(now)
		}
	})
}

// copyNoting copies until one side ends. note is called before each write.
func copyNoting(to, from net.Conn, note func(n int)) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			note(n)
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// arm makes the wire note the next answer.
func (w *wire) arm() { w.first.Store(0) }

// close ends the relay. Its server and clients must have ended, or be about to.
func (w *wire) close() {
	w.listener.Close()
	w.group.Wait()
}
