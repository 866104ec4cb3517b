package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// silentReaders are clients that ask for everything and never read an answer: each has a TCP connection of its own and
// gives the server no more than the initial flow-control window of HTTP/2. They speak HTTP/2 by hand, because a gRPC
// client cannot be asked whether the other side has hung up.
type silentReaders struct {
	group  sync.WaitGroup
	conns  []net.Conn
	closed []time.Duration // by client: how long until the server closed it; 0: never
	errs   []error
}

// open connects n readers, numbered from first, and returns when their requests are sent.
func (q *silentReaders) open(addr string, n, first int, scripts []*script) error {
	q.closed, q.errs = make([]time.Duration, n), make([]error, n)
	for i := range n {
		conn, err := net.DialTimeout("tcp", addr, patience)
		if err != nil {
			return err
		}
		q.conns = append(q.conns, conn)
		if err := q.subscribe(conn, addr, scripts[i%len(scripts)], first+i); err != nil {
			return err
		}
		begin := time.Now()
		q.group.Go(func() { q.closed[i], q.errs[i] = hungUp(conn, begin) })
	}
	return nil
}

// close ends the readers and waits.
func (q *silentReaders) close() {
	for _, c := range q.conns {
		c.Close()
	}
	q.group.Wait()
}

// slowest is the longest time until the server closed a reader; all is false if some were never closed.
func (q *silentReaders) slowest() (longest time.Duration, all bool) {
	all = true
	for _, d := range q.closed {
		longest = max(longest, d)
		all = all && d > 0
	}
	return longest, all
}

// subscribe opens a stream and sends the requests for all types in one go.
func (q *silentReaders) subscribe(conn net.Conn, addr string, c *script, id int) error {
	var out bytes.Buffer
	out.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&out, nil)
	var head bytes.Buffer
	h := hpack.NewEncoder(&head)
	for _, field := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", delta.method()}, {":authority", addr},
		{"content-type", "application/grpc+proto"}, {"te", "trailers"},
	} {
		if err := h.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
			return err
		}
	}
	err := errors.Join(
		f.WriteSettings(),
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true}),
		f.WriteData(1, false, grpcMessage(nodeField(delta, false, c.namespace, c.workload, id), c.requests[delta][resource.Cluster])),
		f.WriteData(1, false, grpcMessage(c.requests[delta][resource.Listener])),
	)
	if err == nil {
		_, err = conn.Write(out.Bytes())
	}
	return err
}

// grpcMessage frames a message as gRPC does: not compressed, length, bytes.
func grpcMessage(parts ...[]byte) []byte {
	body := bytes.Join(parts, nil)
	n := len(body)
	return append([]byte{0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, body...)
}

// hungUp waits until the server ends the stream or the connection. It reads frames from the socket, but never
// updates the flow-control window, so the server's writes block as if the client did not read.
func hungUp(conn net.Conn, begin time.Time) (time.Duration, error) {
	f := http2.NewFramer(conn, conn)
	f.SetMaxReadFrameSize(1 << 20)
	for {
		frame, err := f.ReadFrame()
		if errors.Is(err, net.ErrClosed) {
			return 0, nil
		}
		if err != nil {
			return time.Since(begin), nil //nolint:nilerr // the end of the connection is the expected result
		}
		switch frame := frame.(type) {
		case *http2.RSTStreamFrame:
			return time.Since(begin), nil
		case *http2.HeadersFrame:
			if frame.StreamEnded() {
				return time.Since(begin), nil
			}
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = f.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				err = f.WritePing(true, frame.Data)
			}
		}
		if err != nil {
			return 0, fmt.Errorf("a silent reader: %w", err)
		}
	}
}
