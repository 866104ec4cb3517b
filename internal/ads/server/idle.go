package server

import (
	"container/list"
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/pilotmesh/pilot/internal/security/identity"
)

// IdleTime is how long a connection may be without a stream and without a call. Then the server closes it.
const IdleTime = 2 * time.Minute

// handshakeTime is how long a client may take until its connection is established.
const handshakeTime = 10 * time.Second

// idlers are the connections without a stream and without a call. If there are too many, the address with the most loses its oldest one, so
// that no client can take the places of clients at other addresses, and new clients behind a shared address still get through.
type idlers struct {
	most, mostOf int
	// crowded is called for each connection that is closed because there are too many.
	crowded func()

	mu    sync.Mutex
	count int
	// of has the connections of each address, the oldest first.
	of map[string]*list.List
}

// idler is a connection that idlers count.
type idler struct {
	in     *idlers
	conn   net.Conn
	client string
	// place is nil while the connection is not counted. gone is set when it is closed.
	place *list.Element
	gone  bool
}

// enter counts a new connection.
func (l *idlers) enter(conn net.Conn) *idler {
	client := conn.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(client); err == nil {
		client = identity.Network(host)
	}
	i := &idler{in: l, conn: conn, client: client}
	i.wait()
	return i
}

// wait counts a connection that has no stream and no call.
func (i *idler) wait() {
	if i == nil {
		return
	}
	i.in.mu.Lock()
	closing := i.in.add(i)
	i.in.mu.Unlock()
	if closing != nil {
		i.in.crowded()
		_ = closing.conn.Close() // its client sees that
	}
}

// add counts a connection, and returns the one to close in exchange; nil if there is room.
func (l *idlers) add(i *idler) (closing *idler) {
	if i.gone || i.place != nil {
		return nil
	}
	if l.of == nil {
		l.of = map[string]*list.List{}
	}
	own := l.of[i.client]
	if own == nil {
		own = list.New()
		l.of[i.client] = own
	}
	i.place = own.PushBack(i)
	l.count++
	if own.Len() <= l.mostOf && l.count <= l.most {
		return nil
	}
	largest := own
	if own.Len() <= l.mostOf {
		for _, other := range l.of {
			if other.Len() > largest.Len() {
				largest = other
			}
		}
	}
	closing = largest.Front().Value.(*idler)
	closing.gone = true
	l.remove(closing)
	return closing
}

// remove counts a connection no more.
func (l *idlers) remove(i *idler) {
	if i.place == nil {
		return
	}
	own := l.of[i.client]
	own.Remove(i.place)
	if own.Len() == 0 {
		delete(l.of, i.client)
	}
	i.place = nil
	l.count--
}

// work stops counting a connection: it has a stream or a call.
func (i *idler) work() {
	if i == nil {
		return
	}
	i.in.mu.Lock()
	defer i.in.mu.Unlock()
	i.in.remove(i)
}

// leave is the end of a connection.
func (i *idler) leave() {
	i.in.mu.Lock()
	defer i.in.mu.Unlock()
	i.gone = true
	i.in.remove(i)
}

// busy keeps a connection from counting as idle during a call of another service.
func busy(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	c := connectionOf(ctx)
	c.opened()
	defer c.closed()
	return handle(ctx, request)
}
