package push

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/store"
	"github.com/pilotmesh/pilot/internal/xds/protocol"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const (
	// maxOfNode is how many rejections of one node id are rows, over all its connections. A further one takes the place of
	// the node's oldest.
	maxOfNode = 256
	// maxRejections is how many are rows in total. A further one takes the place of one of the node that has most: who
	// rejects little always gets in. Of that node's it is the oldest whose content others rejected, too, if there is one,
	// so that the user goes on hearing of that content; else the oldest.
	maxRejections = 16384
	// rejectionRows is what a rejection costs a commit, in rows.
	rejectionRows = 20
)

// ledger knows which rejections are rows. It belongs to the loop's goroutine.
type ledger struct {
	nodes    map[string]*rejecter
	fullest  fullest
	contents map[state.Rejected]*content
	total    int
	wanted   []wanted // of each content once, and of some that nobody rejects any longer
}

// content is what some connection rejected.
type content struct {
	count  int  // of the connections
	wanted bool // listed in ledger.wanted
}

// rejecter is a node with its rejections, the oldest first.
type rejecter struct {
	node string
	list []rejection
	at   int // in ledger.fullest
}

type rejection struct {
	conn *connection
	what state.Rejected
}

// wanted is content of which the objects it is made of are not known yet.
type wanted struct {
	what  state.Rejected
	class proxy.Class
}

// fullest is a heap of the nodes, those with most rejections first.
type fullest []*rejecter

func (f fullest) Len() int { return len(f) }
func (f fullest) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(len(f[j].list), len(f[i].list)), strings.Compare(f[i].node, f[j].node)) < 0
}
func (f fullest) Swap(i, j int) {
	f[i], f[j] = f[j], f[i]
	f[i].at, f[j].at = i, j
}

// Push implements heap.Interface.
func (f *fullest) Push(x any) {
	n := x.(*rejecter)
	n.at = len(*f)
	*f = append(*f, n)
}

// Pop implements heap.Interface.
func (f *fullest) Pop() any {
	last := len(*f) - 1
	n := (*f)[last]
	(*f)[last] = nil
	*f = (*f)[:last]
	return n
}

func newLedger() *ledger {
	return &ledger{nodes: make(map[string]*rejecter), contents: make(map[state.Rejected]*content)}
}

// make room for one more rejection of a node, and return what has to go for it.
func (g *ledger) makeRoom(node string) (gone rejection, ok bool) {
	n := g.nodes[node]
	switch {
	case n != nil && len(n.list) >= maxOfNode:
		return n.list[0], true
	case g.total >= maxRejections:
		n = g.fullest[0]
		shared := slices.IndexFunc(n.list, func(r rejection) bool { return g.contents[r.what].count > 1 })
		return n.list[max(shared, 0)], true
	}
	return rejection{}, false
}

// add notes a rejection that its connection does not have yet.
func (g *ledger) add(r rejection) {
	n := g.nodes[r.conn.node]
	if n == nil {
		n = &rejecter{node: r.conn.node}
		g.nodes[r.conn.node] = n
		heap.Push(&g.fullest, n)
	}
	n.list = append(n.list, r)
	heap.Fix(&g.fullest, n.at)
	r.conn.rejected[r.what] = struct{}{}
	g.total++
	c := g.contents[r.what]
	if c == nil {
		c = &content{}
		g.contents[r.what] = c
	}
	if c.count++; c.count == 1 && !c.wanted {
		c.wanted = true
		g.wanted = append(g.wanted, wanted{r.what, r.conn.class.key})
	}
}

// remove forgets a rejection, and reports whether nobody else rejected that content.
func (g *ledger) remove(r rejection) (last bool) {
	n := g.nodes[r.conn.node]
	n.list = slices.DeleteFunc(n.list, func(o rejection) bool { return o == r })
	if len(n.list) == 0 {
		heap.Remove(&g.fullest, n.at)
		delete(g.nodes, n.node)
	} else {
		heap.Fix(&g.fullest, n.at)
	}
	delete(r.conn.rejected, r.what)
	g.total--
	c := g.contents[r.what]
	if c.count--; c.count == 0 && !c.wanted {
		delete(g.contents, r.what)
	}
	return c.count == 0
}

// nextWanted takes the next content of which the origin is to be found.
func (g *ledger) nextWanted() (w wanted, ok bool) {
	for len(g.wanted) > 0 {
		w, g.wanted = g.wanted[0], g.wanted[1:]
		c := g.contents[w.what]
		c.wanted = false
		if c.count > 0 {
			return w, true
		}
		delete(g.contents, w.what)
	}
	g.wanted = nil
	return wanted{}, false
}

// pinned is what a proxy rejected with one reason.
type pinned struct {
	what []state.Rejected
	row  state.Rejection
}

// pins is the job that makes rows of what a connection rejected.
type pins struct {
	*job
	list []pinned
}

// Pin implements server.Attachment: the proxy rejected content, and its stream holds it back. The objects it was made
// of get a Problem, for as long as the proxy would still be given that content.
func (c *Connection) Pin(list []protocol.Pin, reason string) {
	l, conn := c.loop, c.conn
	p := pinned{row: state.Rejection{Proxy: conn.node, Reason: strings.TrimSpace(reason), At: time.Now()}}
	for _, one := range list[max(0, len(list)-maxOfNode):] {
		part := state.Part{Type: uint8(one.Type), Name: one.Name, Piece: one.Piece}
		p.what = append(p.what, state.Rejected{Part: part, Content: one.Rejected})
	}
	if len(p.what) == 0 {
		return
	}
	l.queue.edit(func() {
		w := conn.pins
		if w == nil || w.at == nil {
			w = &pins{}
			w.job = &job{report: true, write: func(tx *store.Txn) { l.rejectAll(tx, conn, w.list) }}
			conn.pins = w
			l.queue.push(w.job)
		}
		w.list = append(w.list, p)
		w.rows += rejectionRows * len(p.what)
		for oldest := len(w.list[0].what); w.rows-rejectionRows*oldest >= rejectionRows*maxOfNode; oldest = len(w.list[0].what) {
			w.rows -= rejectionRows * oldest // it would not stay
			w.list = w.list[1:]
		}
	})
}

// rejectAll makes rows of what a connection rejected.
func (l *Loop) rejectAll(tx *store.Txn, conn *connection, list []pinned) {
	if conn.gone || conn.class == nil {
		return
	}
	for _, p := range list {
		for _, what := range p.what {
			l.reject(tx, conn, what, p.row)
		}
		first := p.what[0]
		l.settings.Log.Warn("a proxy rejected resources; it keeps what it had, everything else goes on", "connection", conn.id,
			"count", len(p.what), "type", resource.Type(first.Type).String(), "resource", first.Name, "piece", first.Piece, "reason", p.row.Reason)
	}
}

func (l *Loop) reject(tx *store.Txn, conn *connection, what state.Rejected, row state.Rejection) {
	if _, again := conn.rejected[what]; !again {
		if gone, full := l.ledger.makeRoom(conn.node); full {
			l.unreject(tx, gone)
		}
		l.ledger.add(rejection{conn, what})
	}
	l.tables.Rejections.Set(tx, state.RejectionKey{Connection: conn.id, Rejected: what}, row)
}

func (l *Loop) unreject(tx *store.Txn, r rejection) {
	l.tables.Rejections.Delete(tx, state.RejectionKey{Connection: r.conn.id, Rejected: r.what})
	if last := l.ledger.remove(r); last {
		l.tables.Origins.Delete(tx, r.what)
	}
}

// unrejectAll lets go of the rejections of a connection that leaves.
func (l *Loop) unrejectAll(tx *store.Txn, conn *connection) {
	n := l.ledger.nodes[conn.node]
	if n == nil || len(conn.rejected) == 0 {
		return
	}
	for _, r := range slices.Clone(n.list) {
		if r.conn == conn {
			l.unreject(tx, r)
		}
	}
}

// findOrigins looks up what rejected content was made of, of up to n, and notes the rows.
func (l *Loop) findOrigins(n int) {
	for range n {
		w, ok := l.ledger.nextWanted()
		if !ok {
			return
		}
		objects := l.queries.Origin(l.graph, w.class, resource.Type(w.what.Type), w.what.Name, w.what.Piece)
		l.notes = append(l.notes, func(tx *store.Txn) {
			if c := l.ledger.contents[w.what]; c != nil && c.count > 0 {
				l.tables.Origins.Set(tx, w.what, objects)
			}
		})
	}
}
