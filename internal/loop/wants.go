package loop

import (
	"maps"
	"slices"
	"strings"

	"github.com/pilotmesh/pilot/internal/ads/protocol"
	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/proxy"
	"github.com/pilotmesh/pilot/internal/state/connected"
	classes "github.com/pilotmesh/pilot/internal/xds/class"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// wantChanges are the changes of what a connection asks for by name, one per name.
type wantChanges map[connected.ResourceKey]wantChange

// wantChange is what happened to a name since the loop took the last job.
type wantChange struct {
	// asked and dropped are set if the last event was a subscription or an unsubscription.
	asked, dropped bool
	// judged is set if the proxy has accepted or rejected an answer. reason is the reason of a rejection; empty if it accepted.
	judged bool
	reason string
}

// newAnswer is an answer that the graph published and the loop has not delivered.
type newAnswer struct {
	conn *connection
	protocol.Answer
}

// Want implements server.Attachment. The names that the proxy asks for become rows, and the proxy receives answers until it drops
// them.
func (c *Connection) Want(t resource.Type, names, dropped []string) {
	c.changeWants(func(changes wantChanges) {
		for _, name := range dropped {
			changes[connected.ResourceKey{Type: uint8(t), Name: name}] = wantChange{dropped: true}
		}
		for _, name := range names {
			changes[connected.ResourceKey{Type: uint8(t), Name: name}] = wantChange{asked: true}
		}
	})
}

// Refuse implements server.Attachment. The rows of the names get the reason.
func (c *Connection) Refuse(t resource.Type, names []string, reason string) {
	c.changeWants(func(changes wantChanges) {
		for _, name := range names {
			k := connected.ResourceKey{Type: uint8(t), Name: name}
			w := changes[k]
			w.judged, w.reason = true, reason
			changes[k] = w
		}
	})
}

// changeWants adds to the changes that wait for the loop.
func (c *Connection) changeWants(change func(wantChanges)) {
	l, conn := c.loop, c.conn
	conn.wants.add(l.queue, func(work *wantChanges) *job {
		*work = wantChanges{}
		return &job{
			write: func(tx *store.Txn) { l.writeWants(tx, conn, *work) },
			after: func() { l.observeAnswers(conn, *work) },
		}
	}, func(work *wantChanges) (rows int) {
		change(*work)
		return len(*work)
	})
}

// sorted lists the names in order, so that commits are reproducible.
func (w wantChanges) sorted() []connected.ResourceKey {
	return slices.SortedFunc(maps.Keys(w), connected.ResourceKey.Compare)
}

// writeWants updates the rows of what a connection asks for.
func (l *Loop) writeWants(tx *store.Txn, conn *connection, changes wantChanges) {
	if conn.left {
		return
	}
	for _, k := range changes.sorted() {
		key, w := connected.WantKey{Connection: conn.id, ResourceKey: k}, changes[k]
		row, exists := l.tables.Wants.Peek(key)
		switch {
		case w.dropped && l.stays(conn, k):
			conn.staying[k] = struct{}{}
			continue
		case w.dropped:
			l.tables.Wants.Delete(tx, key)
			continue
		case w.asked:
			row = connected.Want{Proxy: conn.node}
			if p, ok := l.tables.Proxies.Peek(conn.id); ok {
				row.Asker = connected.Account{Namespace: p.Identity.Namespace, Name: p.Identity.ServiceAccount}
			}
		case !exists:
			continue // The proxy dropped the name before it judged the answer.
		}
		if w.judged {
			row.Refused = w.reason
		}
		l.tables.Wants.Set(tx, key, row)
	}
}

// observeAnswers begins to observe the answers to names that were asked for, and stops for names that were dropped.
func (l *Loop) observeAnswers(conn *connection, changes wantChanges) {
	if conn.left {
		return
	}
	if conn.answers == nil {
		conn.answers = map[connected.ResourceKey]func(){}
	}
	for _, k := range changes.sorted() {
		w := changes[k]
		if _, stays := conn.staying[k]; stays && w.dropped {
			continue
		}
		if release := conn.answers[k]; release != nil && (w.asked || w.dropped) {
			release() // A name that is asked for again is answered again.
			delete(conn.answers, k)
		}
		if !w.asked {
			continue
		}
		delete(conn.staying, k)
		conn.answers[k] = l.queries.Answers.Observe(connected.WantKey{Connection: conn.id, ResourceKey: k}, func(a classes.Answer, ok bool) {
			if ok {
				answer := protocol.Answer{Type: resource.Type(k.Type), Name: k.Name, Resource: a.Resource}
				l.answers = append(l.answers, newAnswer{conn, answer})
				l.noteServed(conn, k, a)
			}
		})
	}
}

// maxStaying bounds how many names of one connection stay that its proxy has dropped.
const maxStaying = 100

// stays reports whether the row of a name stays although the proxy has dropped the name. A gateway that is denied the certificate of a host drops the
// name at once and asks again when the next client names the host; until then users must see the problem.
func (l *Loop) stays(conn *connection, k connected.ResourceKey) bool {
	p, ok := l.tables.Proxies.Peek(conn.id)
	_, missing := conn.missing[k]
	return ok && p.OnDemand == proxy.OnDemandOn && missing && len(conn.staying) < maxStaying
}

// noteServed notes whether the resource of a host, which a client of a gateway named, is missing. A row that has stayed for this reason goes when the
// reason is gone.
func (l *Loop) noteServed(conn *connection, k connected.ResourceKey, a classes.Answer) {
	if resource.Type(k.Type) != resource.Secret || strings.Contains(k.Name, "://") {
		return
	}
	if a.Resource == nil && !a.Unexpected {
		if conn.missing == nil {
			conn.missing, conn.staying = map[connected.ResourceKey]struct{}{}, map[connected.ResourceKey]struct{}{}
		}
		conn.missing[k] = struct{}{}
		return
	}
	delete(conn.missing, k)
	if _, stays := conn.staying[k]; stays {
		l.queue.add(&job{
			rows:  1,
			write: func(tx *store.Txn) { l.writeWants(tx, conn, wantChanges{k: {dropped: true}}) },
			after: func() {
				delete(conn.staying, k)
				l.observeAnswers(conn, wantChanges{k: {dropped: true}})
			},
		})
	}
}

// deliverAnswers gives new answers to the connections that asked.
func (l *Loop) deliverAnswers() {
	all := l.answers
	l.answers = nil
	for len(all) > 0 {
		conn := all[0].conn
		n := slices.IndexFunc(all, func(a newAnswer) bool { return a.conn != conn })
		if n < 0 {
			n = len(all)
		}
		list := make([]protocol.Answer, 0, n)
		for _, a := range all[:n] {
			list = append(list, a.Answer)
		}
		if all = all[n:]; !conn.left {
			conn.watcher.Answer(list)
		}
	}
}

// deleteWants deletes the rows of what a connection asks for.
func (l *Loop) deleteWants(tx *store.Txn, conn *connection) {
	for k := range l.tables.WantsOf.Peek(conn.id).All() {
		l.tables.Wants.Delete(tx, connected.WantKey{Connection: conn.id, ResourceKey: k})
	}
}
