package push

import (
	"errors"
	"fmt"
	"time"

	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/store"
	"github.com/pilotmesh/pilot/internal/xds/protocol"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// ErrNotReady says that some source has not listed everything yet: nobody is to be told of half a mesh.
var ErrNotReady = errors.New("the control plane has not read all of its configuration yet; connect again in a moment")

// Watcher is a stream that is told the states of its class, and the answers to what it asked for by name. It never blocks.
type Watcher interface {
	Update(*resource.State)
	Answer([]protocol.Answer)
}

// connection is a connected proxy.
type connection struct {
	id      string
	node    string
	watcher Watcher
	release func() // of its class query
	class   *class
	at      int // place in class.conns
	gone    bool
	attach  *job  // what makes it a row
	pins    *pins // the last that waited; nil if there were none
	telling *job  // the last that tells what is withheld; nil if there was none
	// rejected is what the proxy rejected, as far as that is rows; they go with the connection.
	rejected map[state.Rejected]struct{}
	// withheld are the unacknowledged resources that are rows; they go with the connection, too.
	withheld map[state.WithheldKey]struct{}
	wanting  *wanting              // the last that waited; nil if there were none
	answers  map[state.Sent]func() // releases the answer to what the proxy asks for by name
}

// class is a set of connected proxies that receive the same.
type class struct {
	key     proxy.Class
	state   *resource.State
	conns   []*connection
	release func() // of its state query
	queued  bool   // listed in Loop.fresh
	empty   time.Time
}

// move is a connection and the class it now belongs to.
type move struct {
	conn *connection
	to   proxy.Class
}

// Connection is a proxy's place in the mesh, until Close.
type Connection struct {
	loop *Loop
	conn *connection
}

// Attach makes a proxy a row. Its state, and later ones, arrive at w.
func (l *Loop) Attach(p *proxy.Proxy, w Watcher) (*Connection, error) {
	select {
	case <-l.synced:
	default:
		return nil, ErrNotReady
	}
	id := fmt.Sprintf("%s-%d", p.ID, l.next.Add(1))
	c := &connection{id: id, node: p.ID, watcher: w, rejected: map[state.Rejected]struct{}{}}
	c.attach = &job{
		rows:  1,
		write: func(tx *store.Txn) { l.tables.Proxies.Set(tx, id, p) },
		after: func() {
			if c.gone {
				return
			}
			l.conns[id] = c
			if p.Role == proxy.Agent {
				return
			}
			c.release = l.queries.Class.Observe(id, func(to proxy.Class, ok bool) {
				if ok {
					l.moved = append(l.moved, move{c, to})
				}
			})
		},
	}
	l.queue.add(c.attach)
	return &Connection{l, c}, nil
}

// ID names the connection: the node's id and a number.
func (c *Connection) ID() string { return c.conn.id }

// Close takes the proxy out of the mesh.
func (c *Connection) Close() {
	l, conn := c.loop, c.conn
	l.queue.edit(func() {
		if conn.pins != nil {
			l.queue.remove(conn.pins.job)
		}
		if conn.wanting != nil {
			l.queue.remove(conn.wanting.job)
		}
		l.queue.remove(conn.telling)
		if l.queue.remove(conn.attach) {
			return // it never was in it
		}
		l.queue.push(l.leaving(conn))
	})
}

// leaving is the job that takes a connection out of the mesh.
func (l *Loop) leaving(conn *connection) *job {
	return &job{
		rows: rejectionRows,
		write: func(tx *store.Txn) {
			conn.gone = true
			l.tables.Proxies.Delete(tx, conn.id)
			l.unrejectAll(tx, conn)
			l.unwantAll(tx, conn)
			for k := range conn.withheld {
				l.tables.Withheld.Delete(tx, k)
			}
		},
		after: func() {
			delete(l.conns, conn.id)
			if conn.release != nil {
				conn.release()
			}
			for _, release := range conn.answers {
				release()
			}
			l.leave(conn)
		},
	}
}

// handOut acts upon what the graph published: connections that belong to another class, states that changed.
func (l *Loop) handOut(info *Commit) {
	moved := l.moved
	l.moved = nil
	for _, m := range moved {
		if !m.conn.gone {
			l.join(m.conn, m.to)
		}
	}
	l.tell()
	fresh := l.fresh
	l.fresh = nil
	for _, c := range fresh {
		c.queued = false
		for _, conn := range c.conns {
			conn.watcher.Update(c.state)
		}
		if info != nil {
			info.Classes++
			info.Streams += len(c.conns)
		}
	}
}

// join puts a connection into a class, which is built if it is the first of it.
func (l *Loop) join(conn *connection, key proxy.Class) {
	if conn.class != nil && conn.class.key == key {
		return
	}
	l.leave(conn)
	c := l.classes[key]
	if c == nil {
		c = &class{key: key}
		l.classes[key] = c
		c.release = l.queries.State.Observe(key, func(s *resource.State, ok bool) { l.publish(c, s) })
	}
	conn.class, conn.at = c, len(c.conns)
	c.conns = append(c.conns, conn)
	if c.state != nil && !c.queued {
		conn.watcher.Update(c.state)
	}
}

// publish stamps a class's new state. The graph's own value knows neither revision nor time: it is content only.
func (l *Loop) publish(c *class, s *resource.State) {
	if s == nil {
		return // a cell that never had a good value: its proxies keep what they have
	}
	stamped := *s
	stamped.Revision, stamped.Published = l.graph.Revision(), time.Now()
	c.state = &stamped
	if !c.queued {
		c.queued = true
		l.fresh = append(l.fresh, c)
	}
}

// leave takes a connection out of its class. The class stays for a while.
func (l *Loop) leave(conn *connection) {
	c := conn.class
	if c == nil {
		return
	}
	last := len(c.conns) - 1
	c.conns[conn.at] = c.conns[last]
	c.conns[conn.at].at = conn.at
	c.conns[last] = nil
	c.conns = c.conns[:last]
	conn.class = nil
	if last == 0 {
		c.empty = time.Now()
	}
}

// releaseClasses lets go of the classes that have had no proxy for a while.
func (l *Loop) releaseClasses(now time.Time) {
	for key, c := range l.classes {
		if len(c.conns) == 0 && now.Sub(c.empty) > classGrace {
			c.release()
			delete(l.classes, key)
		}
	}
}
