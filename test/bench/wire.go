package main

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pilotmesh/pilot/test/testbed"
)

// contentSize is more than the server sends for a query that found nothing, and less than it sends, compressed, for a service.
const contentSize = 450

// wire is a relay between the control plane and a server. It notes when the server answered, and counts connections.
type wire struct {
	listeners []net.Listener
	least     int  // the length of the shortest answer, in bytes
	repeats   bool // the server may send an answer about the change before this one again
	mu        sync.Mutex
	answers   []time.Time  // of the server, since arm
	content   atomic.Int64 // when it sent an answer with content last
	bytes     atomic.Int64 // from the server
	open      atomic.Int64
	most      atomic.Int64
	group     sync.WaitGroup
}

// newWire returns a relay to a server. If further is not 0, it also relays to the port of the server that is so much higher, and only what the server sends
// there is an answer.
func newWire(to string, further int) (*wire, error) {
	server, err := net.ResolveTCPAddr("tcp", to)
	if err != nil {
		return nil, err
	}
	for range 20 { // until both ports are free
		w := &wire{}
		if err = w.listen(0, server.Port, further == 0); err == nil && further != 0 {
			err = w.listen(w.port()+further, server.Port+further, true)
		}
		if err == nil {
			return w, nil
		}
		w.close()
	}
	return nil, err
}

// port is the port on loopback at which the control plane finds the server.
func (w *wire) port() int { return w.listeners[0].Addr().(*net.TCPAddr).Port }

// listen relays from one port on loopback to another.
func (w *wire) listen(port, to int, answers bool) error {
	l, err := net.Listen("tcp", testbed.Loopback(port))
	if err != nil {
		return err
	}
	w.listeners = append(w.listeners, l)
	w.group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // it was closed
			}
			w.group.Go(func() { w.serve(c, testbed.Loopback(to), answers) })
		}
	})
	return nil
}

// serve relays one connection until one side ends it.
func (w *wire) serve(client net.Conn, to string, answers bool) {
	defer client.Close()
	server, err := net.DialTimeout("tcp", to, 5*time.Second)
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
		if answers && n >= w.least {
			w.answered(time.Unix(0, now))
		}
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

// arm forgets the answers so far.
func (w *wire) arm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers = w.answers[:0]
}

func (w *wire) answered(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers = append(w.answers, at)
}

// answer returns when the server answered about a change whose effect was complete at end: first since arm, or last if it repeats answers.
// It is zero if the server has sent none.
func (w *wire) answer(end time.Time) (at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.answers {
		if a.Before(end) {
			at = a
			if !w.repeats {
				break
			}
		}
	}
	return at
}

// close ends the relay. Its server and clients must have ended, or be about to.
func (w *wire) close() {
	for _, l := range w.listeners {
		l.Close()
	}
	w.group.Wait()
}
