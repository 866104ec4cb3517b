package loop

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/ads/protocol/reject"
	found "github.com/pilotmesh/pilot/internal/api/rejection"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state/connected"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

const (
	// maxOfNode is the largest number of rejections of one node id that are rows, over all its connections. A further one
	// replaces the oldest of the node.
	maxOfNode = 256
	// maxRejections is the largest number of rejections that are rows. A further one replaces one of the node that has most,
	// so that a node with few rejections always gets a row. Of that node's rejections it replaces the oldest whose content
	// some other connection rejected, too, so that the user still learns of that content; else the oldest.
	maxRejections = 16384
	// rejectionRows is what a rejection costs a commit, in rows.
	rejectionRows = 20
)

// rejectionIndex has the rejections that are rows. It belongs to the loop's goroutine.
type rejectionIndex struct {
	nodes    map[string]*nodeRejections
	byCount  byCount
	contents map[connected.RejectedContent]*content
	// total is the number of rejections.
	total int
	// lookups has each content whose objects must be looked up once, and some content that no proxy rejects any more.
	lookups []originLookup
}

// content is content that some connections rejected.
type content struct {
	// count is the number of these connections.
	count int
	// queued is set while the content is in rejectionIndex.lookups.
	queued bool
}

// nodeRejections are the rejections of one node id, the oldest first.
type nodeRejections struct {
	node string
	list []rejection
	// place is the index in rejectionIndex.byCount.
	place int
}

// rejection says that a connection rejected some content.
type rejection struct {
	conn *connection
	what connected.RejectedContent
}

// originLookup is content whose objects must be looked up in the state of a class.
type originLookup struct {
	what  connected.RejectedContent
	class proxy.Class
	// reason is the error text of the proxy that rejected it first.
	reason string
}

// byCount is a heap of nodes. The node with most rejections is the first.
type byCount []*nodeRejections

func (h byCount) Len() int { return len(h) }
func (h byCount) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(len(h[j].list), len(h[i].list)), strings.Compare(h[i].node, h[j].node)) < 0
}
func (h byCount) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *byCount) Push(x any) {
	n := x.(*nodeRejections)
	n.place = len(*h)
	*h = append(*h, n)
}

// Pop implements heap.Interface.
func (h *byCount) Pop() any {
	last := len(*h) - 1
	n := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return n
}

func newRejectionIndex() *rejectionIndex {
	return &rejectionIndex{nodes: make(map[string]*nodeRejections), contents: make(map[connected.RejectedContent]*content)}
}

// toReplace returns the rejection that a further one of a node replaces; false if there is room.
func (x *rejectionIndex) toReplace(node string) (oldest rejection, full bool) {
	n := x.nodes[node]
	switch {
	case n != nil && len(n.list) >= maxOfNode:
		return n.list[0], true
	case x.total >= maxRejections:
		n = x.byCount[0]
		shared := slices.IndexFunc(n.list, func(r rejection) bool { return x.contents[r.what].count > 1 })
		return n.list[max(shared, 0)], true
	}
	return rejection{}, false
}

// add adds a rejection that its connection does not have yet. reason is the proxy's error text.
func (x *rejectionIndex) add(r rejection, reason string) {
	n := x.nodes[r.conn.node]
	if n == nil {
		n = &nodeRejections{node: r.conn.node}
		x.nodes[r.conn.node] = n
		heap.Push(&x.byCount, n)
	}
	n.list = append(n.list, r)
	heap.Fix(&x.byCount, n.place)
	r.conn.rejected[r.what] = struct{}{}
	x.total++
	c := x.contents[r.what]
	if c == nil {
		c = &content{}
		x.contents[r.what] = c
	}
	if c.count++; c.count == 1 && !c.queued {
		c.queued = true
		x.lookups = append(x.lookups, originLookup{r.what, r.conn.class.key, reason})
	}
}

// remove removes a rejection. It reports whether no other connection rejected that content.
func (x *rejectionIndex) remove(r rejection) (last bool) {
	n := x.nodes[r.conn.node]
	n.list = slices.DeleteFunc(n.list, func(o rejection) bool { return o == r })
	if len(n.list) == 0 {
		heap.Remove(&x.byCount, n.place)
		delete(x.nodes, n.node)
	} else {
		heap.Fix(&x.byCount, n.place)
	}
	delete(r.conn.rejected, r.what)
	x.total--
	c := x.contents[r.what]
	if c.count--; c.count == 0 && !c.queued {
		delete(x.contents, r.what)
	}
	return c.count == 0
}

// nextLookup takes the next content that some connection still rejects and whose objects are not known.
func (x *rejectionIndex) nextLookup() (w originLookup, ok bool) {
	for len(x.lookups) > 0 {
		w, x.lookups = x.lookups[0], x.lookups[1:]
		c := x.contents[w.what]
		c.queued = false
		if c.count > 0 {
			return w, true
		}
		delete(x.contents, w.what)
	}
	x.lookups = nil
	return originLookup{}, false
}

// pinReport is content that a proxy rejected with one reason.
type pinReport struct {
	what []connected.RejectedContent
	row  connected.Rejection
}

// Pin implements server.Attachment. The objects from which the rejected content was made get a Problem while the class of the
// proxy has that content. Of the reports that wait for the loop it keeps the last ones, up to maxOfNode rejections.
func (c *Connection) Pin(list []reject.Pin, reason string) {
	l, conn := c.loop, c.conn
	report := pinReport{row: connected.Rejection{Proxy: conn.node, Reason: strings.TrimSpace(reason), At: time.Now()}}
	for _, pin := range list[max(0, len(list)-maxOfNode):] {
		rejectable := connected.Rejectable{Type: uint8(pin.Type), Name: pin.Name, Piece: pin.Piece}
		report.what = append(report.what, connected.RejectedContent{Rejectable: rejectable, Content: pin.Rejected})
	}
	if len(report.what) == 0 {
		return
	}
	conn.pins.add(l.queue, func(work *[]pinReport) *job {
		return &job{report: true, write: func(tx *store.Txn) { l.writeRejections(tx, conn, *work) }}
	}, func(work *[]pinReport) (rows int) {
		reports, count := append(*work, report), 0
		for _, r := range reports {
			count += len(r.what)
		}
		for oldest := len(reports[0].what); count-oldest >= maxOfNode; oldest = len(reports[0].what) {
			reports, count = reports[1:], count-oldest // Later reports would replace all rows of this one.
		}
		*work = reports
		return rejectionRows * count
	})
}

// writeRejections makes rows of what a connection rejected.
func (l *Loop) writeRejections(tx *store.Txn, conn *connection, reports []pinReport) {
	if conn.left || conn.class == nil {
		return
	}
	for _, p := range reports {
		for _, what := range p.what {
			l.setRejection(tx, conn, what, p.row)
		}
		first := p.what[0]
		l.settings.Log.Warn("proxy rejected resources; it keeps their last accepted version, other resources are still updated",
			"connection", conn.id, "count", len(p.what), "type", resource.Type(first.Type).String(), "resource", first.Name,
			"piece", first.Piece, "cause", found.Cause(p.row.Reason, ""))
	}
}

// setRejection writes the row of a rejection. It replaces another row if there are too many.
func (l *Loop) setRejection(tx *store.Txn, conn *connection, what connected.RejectedContent, row connected.Rejection) {
	if _, exists := conn.rejected[what]; !exists {
		if oldest, full := l.rejections.toReplace(conn.node); full {
			l.deleteRejection(tx, oldest)
		}
		l.rejections.add(rejection{conn, what}, row.Reason)
	}
	l.tables.Rejections.Set(tx, connected.RejectionKey{Connection: conn.id, RejectedContent: what}, row)
}

// deleteRejection deletes the row of a rejection, and the objects of its content if no other connection rejected it.
func (l *Loop) deleteRejection(tx *store.Txn, r rejection) {
	l.tables.Rejections.Delete(tx, connected.RejectionKey{Connection: r.conn.id, RejectedContent: r.what})
	if last := l.rejections.remove(r); last {
		l.tables.Origins.Delete(tx, r.what)
	}
}

// deleteRejections deletes the rows of the rejections of a connection.
func (l *Loop) deleteRejections(tx *store.Txn, conn *connection) {
	n := l.rejections.nodes[conn.node]
	if n == nil || len(conn.rejected) == 0 {
		return
	}
	for _, r := range slices.Clone(n.list) {
		if r.conn == conn {
			l.deleteRejection(tx, r)
		}
	}
}

// lookUpOrigins looks up from which objects rejected content was made, and which of them has what the proxy rejects, for at most n
// contents. The next commit writes the rows.
func (l *Loop) lookUpOrigins(n int) {
	for range n {
		w, ok := l.rejections.nextLookup()
		if !ok {
			return
		}
		finding := l.queries.Finding(l.graph, w.class, w.what, w.reason)
		l.writes = append(l.writes, func(tx *store.Txn) {
			if c := l.rejections.contents[w.what]; c != nil && c.count > 0 {
				l.tables.Origins.Set(tx, w.what, finding)
			}
		})
	}
}
