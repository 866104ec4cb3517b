package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/pilotmesh/pilot/internal/engine/store"
	"github.com/pilotmesh/pilot/internal/loop"
)

// history is one of the last commits, with the rows that it changed.
type history struct {
	Revision store.Revision `json:"revision"`
	At       *time.Time     `json:"at,omitempty"` // absent if it is too long ago
	Rows     []ChangedRow   `json:"rows"`
	// Omitted is the number of changed rows if there were too many to keep.
	Omitted int `json:"omitted,omitempty"`
}

// ChangedRow is a row that a commit changed.
type ChangedRow struct {
	Table  string `json:"table"`
	Key    string `json:"key"`
	Change string `json:"change"` // added, changed or removed
}

// historyz lists the commits of the journal, the last one first.
func (p *Pages) historyz(r *http.Request) (any, error) {
	var wanted store.Revision
	if text := r.URL.Query().Get("revision"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "revision=%s is not a number", text)
		}
		wanted = store.Revision(n)
	}
	entries, err := inspect(r, p, func(v *loop.View) []store.Entry { return v.Tables.DB.Journal() })
	if err != nil {
		return nil, err
	}
	at := make(map[store.Revision]time.Time)
	for _, c := range p.Commits.Last() {
		at[c.Revision] = c.At
	}
	list := []history{}
	for _, e := range slices.Backward(entries) {
		if wanted != 0 && e.Revision != wanted {
			continue
		}
		h := history{Revision: e.Revision, Rows: changedRows(e, r.URL.Query().Get("table")), Omitted: e.Omitted}
		if t, ok := at[e.Revision]; ok {
			h.At = &t
		}
		list = append(list, h)
	}
	if wanted != 0 && len(list) == 0 {
		return nil, refuse(http.StatusNotFound, "revision %d is not remembered: it is too long ago, or has not been yet", wanted)
	}
	return list, nil
}

// changedRows returns the rows of a table, or of all tables, that a commit changed, in the order of the writes.
func changedRows(e store.Entry, table string) []ChangedRow {
	rows := []ChangedRow{}
	for _, c := range e.Changes {
		if table != "" && c.Table() != table {
			continue
		}
		_, had := c.Old()
		_, has := c.New()
		what := "changed"
		switch {
		case !had:
			what = "added"
		case !has:
			what = "removed"
		}
		rows = append(rows, ChangedRow{c.Table(), fmt.Sprint(c.Key()), what})
	}
	return rows
}
