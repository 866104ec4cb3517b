package server

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
)

// connection is what the streams of one TCP connection share. Ending the handler of a stream whose client does not
// read tells the client nothing: gRPC queues the trailers behind the data that flow control holds back, and keeps
// the data. Only closing the connection ends it. That is done when no other stream is left on it; a proxy has one.
type connection struct {
	credentials.AuthInfo
	conn net.Conn

	mu        sync.Mutex
	streams   int
	abandoned bool // the client of an ended stream has unread data
}

// opened counts a stream in.
func (c *connection) opened() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams++
}

// closed counts a stream out.
func (c *connection) closed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams--; c.streams == 0 && c.abandoned {
		c.cut()
	}
}

// cut closes the connection: its client sees Unavailable, which says "connect again, perhaps to somebody else".
func (c *connection) cut() { c.conn.Close() }

func (c *connection) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abandoned = true
}

// connectionOf is the connection a stream came on.
func connectionOf(ctx context.Context) *connection {
	if p, ok := peer.FromContext(ctx); ok {
		if c, ok := p.AuthInfo.(*connection); ok {
			return c
		}
	}
	return &connection{conn: nopConn{}}
}

// nopConn stands for a connection that cannot be closed from here.
type nopConn struct{ net.Conn }

func (nopConn) Close() error { return nil }

// remembering are transport credentials that let streams find their connection.
type remembering struct {
	credentials.TransportCredentials
}

func plaintext() credentials.TransportCredentials { return remembering{insecure.NewCredentials()} }

// ServerHandshake notes the connection with what the handshake says of the peer.
func (r remembering) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := r.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	return conn, &connection{AuthInfo: info, conn: raw}, nil
}

// Clone copies the credentials.
func (r remembering) Clone() credentials.TransportCredentials {
	return remembering{r.TransportCredentials.Clone()}
}

// pooledSize is above the size from which gRPC gives buffers back to their pool.
const pooledSize = 1<<10 + 1

// notice is a buffer that tells when the transport has let go of the message whose last part it is: written, or dropped
// with its stream. SendMsg returns before that, as soon as there is room for the first byte.
func notice(b []byte, gone func()) mem.Buffer {
	sized := append(make([]byte, 0, pooledSize), b...)
	return mem.NewBuffer(&sized, noticePool{gone})
}

// noticePool is the pool of one buffer.
type noticePool struct{ gone func() }

// Get is never called: the buffer exists.
func (noticePool) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put implements mem.BufferPool.
func (p noticePool) Put(*[]byte) { p.gone() }
