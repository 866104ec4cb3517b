package loop

import (
	"errors"
	"fmt"
	"time"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// errNotReady means that some source has not listed everything yet. A proxy must not receive half a mesh.
var errNotReady = errors.New("the control plane has not read all of its configuration yet; connect again in a moment")

// Watcher is a stream that receives the states of its class, and the answers to the names it asked for. Its methods must not
// block.
type Watcher interface {
	Update(*resource.State)
	Answer([]protocol.Answer)
}

// connection is a connected proxy. All fields but the waiting jobs belong to the loop's goroutine.
type connection struct {
	// id names the connection; node is the id that the proxy sent.
	id      string
	node    string
	watcher Watcher
	// left is set when the connection has left the mesh.
	left bool
	// class is nil until the class is known. place is the index of the connection in class.conns.
	class *class
	place int
	// release ends the observation of the class query; nil before it begins.
	release func()

	// fixed is set when the loop has written which form of certificates the proxy has; see fixOnDemand.
	fixed bool

	// attach is the job that makes the proxy a row. The other jobs have what the stream has reported since the loop took
	// their predecessors.
	attach            *job
	pins              waitingJob[[]pinReport]
	wants             waitingJob[wantChanges]
	unacknowledgedJob waitingJob[[]protocol.Unacknowledged]
	health            waitingJob[connected.Health]
	warming           waitingJob[connected.Warming]

	// rejected and unacknowledged are the keys of the rows about what the proxy rejected and does not acknowledge. These rows are
	// deleted when the connection leaves.
	rejected       map[connected.RejectedContent]struct{}
	unacknowledged map[connected.UnacknowledgedKey]struct{}
	// answers has, for each name that the proxy asks for, the function that ends the observation of its answer.
	answers map[connected.ResourceKey]func()
	// missing are the secrets of a gateway's hosts that do not exist although clients named the hosts. staying are the missing secrets that the proxy has
	// dropped.
	missing, staying map[connected.ResourceKey]struct{}
}

// class is a set of connected proxies that receive the same states.
type class struct {
	key proxy.Class
	// state is the last published state; nil before the first.
	state *resource.State
	conns []*connection
	// release ends the observation of the state query.
	release func()
	// changed is set while the class is in Loop.changed.
	changed bool
	// emptySince is when the last connection left the class.
	emptySince time.Time
}

// move is a connection and its new class.
type move struct {
	conn *connection
	to   proxy.Class
}

// Connection is a proxy in the mesh, from Attach until Close.
type Connection struct {
	loop *Loop
	conn *connection
	// gone is called at the end; it may be nil.
	gone func()
}

// Attach makes a proxy a row. From then on w receives the states of its class.
func (l *Loop) Attach(p *proxy.Proxy, w Watcher) (*Connection, error) {
	select {
	case <-l.synced:
	default:
		return nil, errNotReady
	}
	id := fmt.Sprintf("%s-%d", p.ID, l.next.Add(1))
	c := &connection{id: id, node: p.ID, watcher: w, rejected: map[connected.RejectedContent]struct{}{}}
	c.attach = &job{
		rows: 1,
		write: func(tx *store.Txn) {
			l.tables.Proxies.Set(tx, id, p)
			l.noteShared(tx, p, 1)
		},
		after: func() {
			if c.left {
				return
			}
			l.conns[id] = c
			if p.Role == proxy.Agent && !p.DNS && p.BootstrapOf == "" {
				return
			}
			c.release = l.queries.Class.Observe(id, func(to proxy.Class, ok bool) {
				if ok {
					l.moved = append(l.moved, move{c, to})
					l.fixOnDemand(c, p, to)
				}
			})
		},
	}
	l.queue.add(c.attach)
	return &Connection{loop: l, conn: c}, nil
}

// fixOnDemand writes how a gateway gets its certificates if that followed from the number of hosts: the proxy keeps the form that it has first.
func (l *Loop) fixOnDemand(c *connection, p *proxy.Proxy, first proxy.Class) {
	if p.OnDemand != proxy.OnDemandByCount || c.fixed {
		return
	}
	c.fixed = true
	fixed := *p
	fixed.OnDemand = proxy.OnDemandOff
	if first.OnDemand {
		fixed.OnDemand = proxy.OnDemandOn
	}
	l.queue.add(&job{rows: 1, write: func(tx *store.Txn) {
		if !c.left {
			l.tables.Proxies.Set(tx, c.id, &fixed)
		}
	}})
}

// ID names the connection. It is the node's id and a number.
func (c *Connection) ID() string { return c.conn.id }

// Close removes the proxy from the mesh. Reports that still wait are dropped.
func (c *Connection) Close() {
	if c.gone != nil {
		c.gone()
	}
	l, conn := c.loop, c.conn
	l.queue.edit(func() {
		for _, j := range []*job{conn.pins.job, conn.wants.job, conn.unacknowledgedJob.job, conn.health.job, conn.warming.job} {
			l.queue.remove(j)
		}
		if l.queue.remove(conn.attach) {
			return // The proxy never became a row.
		}
		l.queue.push(l.detach(conn))
	})
}

// detach returns the job that removes a connection from the mesh.
func (l *Loop) detach(conn *connection) *job {
	return &job{
		rows: rejectionRows,
		write: func(tx *store.Txn) {
			conn.left = true
			if p, ok := l.tables.Proxies.Peek(conn.id); ok {
				l.noteShared(tx, p, -1)
			}
			l.tables.Proxies.Delete(tx, conn.id)
			l.deleteRejections(tx, conn)
			l.deleteWants(tx, conn)
			l.tables.Health.Delete(tx, conn.id)
			l.tables.Warming.Delete(tx, conn.id)
			l.tables.Full.Delete(tx, conn.id)
			for k := range conn.unacknowledged {
				l.tables.Unacknowledged.Delete(tx, k)
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
			l.leaveClass(conn)
		},
	}
}

// deliver passes on what the graph has published since the last call: new classes of connections, answers, and new states
// of classes. It counts in info, which may be nil.
func (l *Loop) deliver(info *Commit) {
	moved := l.moved
	l.moved = nil
	for _, m := range moved {
		if !m.conn.left {
			l.joinClass(m.conn, m.to)
		}
	}
	l.deliverAnswers()
	changed := l.changed
	l.changed = nil
	for _, c := range changed {
		c.changed = false
		for _, conn := range c.conns {
			conn.watcher.Update(c.state)
		}
		if info != nil {
			info.Classes++
			info.Streams += len(c.conns)
		}
	}
}

// joinClass adds a connection to a class. The first connection of a class causes its state to be built.
func (l *Loop) joinClass(conn *connection, key proxy.Class) {
	if conn.class != nil && conn.class.key == key {
		return
	}
	l.leaveClass(conn)
	c := l.classes[key]
	if c == nil {
		c = &class{key: key}
		l.classes[key] = c
		c.release = l.queries.State.Observe(key, func(s *resource.State, ok bool) { l.publish(c, s) })
	}
	conn.class, conn.place = c, len(c.conns)
	c.conns = append(c.conns, conn)
	if c.state != nil && !c.changed {
		conn.watcher.Update(c.state)
	}
}

// publish stores a new state of a class for delivery. It adds revision and time to the value of the graph, which is content
// only.
func (l *Loop) publish(c *class, s *resource.State) {
	if s == nil {
		return // The cell never had a good value, so the proxies keep their resources.
	}
	stamped := *s
	stamped.Revision, stamped.Published = l.graph.Revision(), time.Now()
	c.state = &stamped
	if !c.changed {
		c.changed = true
		l.changed = append(l.changed, c)
	}
}

// leaveClass removes a connection from its class. releaseClasses later removes an empty class.
func (l *Loop) leaveClass(conn *connection) {
	c := conn.class
	if c == nil {
		return
	}
	last := len(c.conns) - 1
	c.conns[conn.place] = c.conns[last]
	c.conns[conn.place].place = conn.place
	c.conns[last] = nil
	c.conns = c.conns[:last]
	conn.class = nil
	if last == 0 {
		c.emptySince = time.Now()
	}
}

// releaseClasses removes the classes that have had no connection for classGrace.
func (l *Loop) releaseClasses(now time.Time) {
	for key, c := range l.classes {
		if len(c.conns) == 0 && now.Sub(c.emptySince) > classGrace {
			c.release()
			delete(l.classes, key)
		}
	}
}
