package server

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
)

// connection is what the streams of one TCP connection share. If a client does not read, the end of its stream's handler does
// not reach it: gRPC queues the trailers behind data that flow control holds back, and keeps that data in memory. Only closing
// the connection helps. The server closes it when no other stream is left on it; a proxy has only one stream.
type connection struct {
	credentials.AuthInfo
	conn net.Conn
	idle *idler // nil if the server does not know the connection
	// read is how many bytes the server has read from the client.
	read atomic.Int64

	mu      sync.Mutex
	streams int
	// abandoned is set if the client of an ended stream has not read all its data.
	abandoned bool
}

// opened notes a new stream.
func (c *connection) opened() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams++; c.streams == 1 {
		c.idle.work()
	}
}

// closed notes the end of a stream.
func (c *connection) closed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams--; c.streams > 0 {
		return
	}
	if c.abandoned {
		c.close()
	}
	c.idle.wait()
}

// close closes the connection. Its client sees Unavailable and reconnects, perhaps to another replica.
func (c *connection) close() { c.conn.Close() }

// abandon makes the connection close with its last stream.
func (c *connection) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abandoned = true
}

// connectionOf is the connection of a stream.
func connectionOf(ctx context.Context) *connection {
	if p, ok := peer.FromContext(ctx); ok {
		if c, ok := p.AuthInfo.(*connection); ok {
			return c
		}
	}
	return &connection{conn: nopConn{}}
}

// nopConn is the placeholder for a connection that the server cannot close, because its credentials are not connectionCredentials.
type nopConn struct{ net.Conn }

func (nopConn) Close() error { return nil }

// connectionCredentials are transport credentials that let streams find their connection.
type connectionCredentials struct {
	credentials.TransportCredentials
	server *Server
}

// transport returns credentials for connections with TLS, or without if there are no settings for it.
func (s *Server) transport(secure *tls.Config) credentials.TransportCredentials {
	if secure == nil {
		return connectionCredentials{insecure.NewCredentials(), s}
	}
	return connectionCredentials{credentials.NewTLS(secure), s}
}

// Inner returns the authentication info of the connection's TLS.
func (c *connection) Inner() credentials.AuthInfo { return c.AuthInfo }

// ServerHandshake stores the connection in the authentication info of the peer.
func (r connectionCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if err := r.server.options.Pace(raw.RemoteAddr()); err != nil {
		return nil, nil, err
	}
	idle := r.server.idlers.enter(raw)
	conn, info, err := r.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		idle.leave()
		return nil, nil, err
	}
	c := &connection{AuthInfo: info, conn: raw, idle: idle}
	conn = counted{watched{conn, idle.leave}, &c.read}
	if t, ok := info.(credentials.TLSInfo); ok && len(t.State.VerifiedChains) > 0 {
		if conn, err = r.server.certify(c, conn, t.State.VerifiedChains); err != nil {
			return nil, nil, err
		}
	}
	return conn, c, nil
}

// counted is a connection that counts the bytes that are read from it.
type counted struct {
	net.Conn
	read *atomic.Int64
}

// Read reads from the connection.
func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

// Clone copies the credentials.
func (r connectionCredentials) Clone() credentials.TransportCredentials {
	return connectionCredentials{r.TransportCredentials.Clone(), r.server}
}

// pooledSize is a buffer size for which gRPC calls the pool's Put; it does not do so for buffers of at most 1 KiB.
const pooledSize = 1<<10 + 1

// notifyingBuffer is a buffer that calls released when the transport has finished with it. If it is the last part of a message,
// that message was then written, or dropped with its stream. SendMsg returns earlier than that: as soon as there is room for
// the first byte.
func notifyingBuffer(b []byte, released func()) mem.Buffer {
	sized := append(make([]byte, 0, pooledSize), b...)
	return mem.NewBuffer(&sized, notifyingPool{released})
}

// notifyingPool is the pool of one buffer.
type notifyingPool struct{ released func() }

// Get is never called, because the buffer already exists.
func (notifyingPool) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put implements mem.BufferPool.
func (p notifyingPool) Put(*[]byte) { p.released() }
