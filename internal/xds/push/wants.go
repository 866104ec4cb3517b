package push

import (
	"maps"
	"slices"

	"github.com/pilotmesh/pilot/internal/state"
	"github.com/pilotmesh/pilot/internal/store"
	classes "github.com/pilotmesh/pilot/internal/xds/class"
	"github.com/pilotmesh/pilot/internal/xds/protocol"
	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// wanting is the job that makes rows of what a connection asks for by name: of each name the last word.
type wanting struct {
	*job
	wishes map[state.Sent]wish
}

// wish is what came of a name since the last job was taken.
type wish struct {
	asked, dropped bool
	judged         bool
	refused        string // what the proxy said of the answer, if judged
}

// answered is an answer that the graph published and its connection has not been told.
type answered struct {
	conn *connection
	protocol.Answer
}

// Want implements server.Attachment: what the proxy asks for becomes rows, and it is told the answers until it asks no longer.
func (c *Connection) Want(t resource.Type, names, dropped []string) {
	c.wish(func(wishes map[state.Sent]wish) {
		for _, name := range dropped {
			wishes[state.Sent{Type: uint8(t), Name: name}] = wish{dropped: true}
		}
		for _, name := range names {
			wishes[state.Sent{Type: uint8(t), Name: name}] = wish{asked: true}
		}
	})
}

// Refuse implements server.Attachment: the rows say what the proxy rejects.
func (c *Connection) Refuse(t resource.Type, names []string, reason string) {
	c.wish(func(wishes map[state.Sent]wish) {
		for _, name := range names {
			k := state.Sent{Type: uint8(t), Name: name}
			w := wishes[k]
			w.judged, w.refused = true, reason
			wishes[k] = w
		}
	})
}

// wish edits the wishes of the connection that the loop has not taken yet.
func (c *Connection) wish(edit func(map[state.Sent]wish)) {
	l, conn := c.loop, c.conn
	l.queue.edit(func() {
		w := conn.wanting
		if w == nil || w.at == nil {
			w = &wanting{wishes: map[state.Sent]wish{}}
			w.job = &job{write: func(tx *store.Txn) { l.want(tx, conn, w.wishes) }, after: func() { l.awaitAnswers(conn, w.wishes) }}
			conn.wanting = w
			l.queue.push(w.job)
		}
		edit(w.wishes)
		w.rows = len(w.wishes)
	})
}

func ordered(wishes map[state.Sent]wish) []state.Sent {
	return slices.SortedFunc(maps.Keys(wishes), state.Sent.Compare)
}

func (l *Loop) want(tx *store.Txn, conn *connection, wishes map[state.Sent]wish) {
	if conn.gone {
		return
	}
	for _, k := range ordered(wishes) {
		key, w := state.WantKey{Connection: conn.id, Sent: k}, wishes[k]
		row, known := l.tables.Wants.Peek(key)
		switch {
		case w.dropped:
			l.tables.Wants.Delete(tx, key)
			continue
		case w.asked:
			row = state.Want{Proxy: conn.node}
		case !known:
			continue // what it is about was dropped
		}
		if w.judged {
			row.Refused = w.refused
		}
		l.tables.Wants.Set(tx, key, row)
	}
}

// awaitAnswers follows the answers to what a connection asks for now, and to nothing else.
func (l *Loop) awaitAnswers(conn *connection, wishes map[state.Sent]wish) {
	if conn.gone {
		return
	}
	if conn.answers == nil {
		conn.answers = map[state.Sent]func(){}
	}
	for _, k := range ordered(wishes) {
		w := wishes[k]
		if release := conn.answers[k]; release != nil && (w.asked || w.dropped) {
			release() // who asks again is told again
			delete(conn.answers, k)
		}
		if !w.asked {
			continue
		}
		conn.answers[k] = l.queries.Answers.Observe(state.WantKey{Connection: conn.id, Sent: k}, func(a classes.Answer, ok bool) {
			if ok {
				l.answered = append(l.answered, answered{conn, protocol.Answer{Type: resource.Type(k.Type), Name: k.Name, Resource: a.Resource}})
			}
		})
	}
}

// tell hands answers to the connections that asked.
func (l *Loop) tell() {
	all := l.answered
	l.answered = nil
	for len(all) > 0 {
		conn := all[0].conn
		n := slices.IndexFunc(all, func(a answered) bool { return a.conn != conn })
		if n < 0 {
			n = len(all)
		}
		list := make([]protocol.Answer, 0, n)
		for _, a := range all[:n] {
			list = append(list, a.Answer)
		}
		if all = all[n:]; !conn.gone {
			conn.watcher.Answer(list)
		}
	}
}

// unwantAll takes out what a connection that leaves asked for.
func (l *Loop) unwantAll(tx *store.Txn, conn *connection) {
	for k := range l.tables.WantsOf.Peek(conn.id).All() {
		l.tables.Wants.Delete(tx, state.WantKey{Connection: conn.id, Sent: k})
	}
}
