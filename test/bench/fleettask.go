package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"time"

	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// fleetTask is a fleet of Envoys with virtual hosts as resources of their own, in a process of its own.
type fleetTask struct {
	Addrs            []string // of the servers; each gets an equal part of the clients
	Streams, Classes int
}

// fleetOrder is what a fleet is to do: some clients leave and connect elsewhere with the versions they have, and then all that see a change wait for it.
type fleetOrder struct {
	// Connect lists the servers to which all clients connect; empty if they stay. Replaced is a server whose clients connect to By.
	Connect      []string
	Replaced, By string
	// Assignments is how many assignments each client gets. If it is 0, any resource counts.
	Assignments int
	// Namespaces are the first one, and the one after the last one, whose clients see the change; all if they are equal.
	Namespaces [2]int
}

// formation are the clients of a fleet task, by server.
type formation struct {
	task    fleetTask
	scripts []*script
	addrs   []string
	parts   []*fleet
}

// connect connects the clients to servers. returning is set if they have been connected before.
func (f *formation) connect(addrs []string, returning bool) error {
	f.close()
	f.addrs, f.parts = addrs, nil
	for i := range addrs {
		if err := f.connectPart(i, returning); err != nil {
			return err
		}
	}
	return nil
}

// connectPart connects the clients of one server.
func (f *formation) connectPart(i int, returning bool) error {
	n := f.task.Streams / len(f.addrs)
	part, err := connect(f.addrs[i], fleetSize{streams: n, conns: n, variant: delta, first: i * n, reconnect: returning, split: true, patient: true}, f.scripts)
	if err != nil {
		return err
	}
	if i < len(f.parts) {
		f.parts[i] = part
	} else {
		f.parts = append(f.parts, part)
	}
	return nil
}

// replace makes the clients of one server connect to another one.
func (f *formation) replace(was, by string) error {
	for i, addr := range f.addrs {
		if addr == was {
			f.parts[i].close()
			f.addrs[i] = by
			return f.connectPart(i, true)
		}
	}
	return fmt.Errorf("no client is connected to %s", was)
}

func (f *formation) close() {
	for _, p := range f.parts {
		p.close()
	}
}

// things counts what all clients were sent.
func (f *formation) things() (n int) {
	for _, p := range f.parts {
		n += p.totals().things()
	}
	return n
}

// run prints ready when the clients have all they asked for. For each order it prints ready again, and then when the last client had the change, in
// nanoseconds since 1970, and how many resources the clients were sent beside the assignments.
func (t fleetTask) run(ctx context.Context, in io.Reader, out io.Writer) error {
	conns, err := dial(t.Addrs[0], 1)
	if err != nil {
		return err
	}
	scripts, err := learnAll(ctx, conns[0], 0, t.Classes)
	hangUp(conns)
	if err != nil {
		return err
	}
	f := &formation{task: t, scripts: scripts}
	defer f.close()
	if err := f.come(); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, saysReady); err != nil {
		return err
	}
	for asked := bufio.NewScanner(in); asked.Scan(); {
		var o fleetOrder
		if err := json.Unmarshal(asked.Bytes(), &o); err != nil {
			return err
		}
		if err := f.obey(o, out); err != nil {
			return err
		}
	}
	return nil
}

// come connects the clients, and remembers in the scripts which versions the clients of each class have.
func (f *formation) come() error {
	t := f.task
	known := &versions{by: make(map[*script]*[types]map[string]string)}
	one, err := connectWatched(t.Addrs[0], fleetSize{streams: t.Classes, conns: t.Classes, variant: delta, split: true, patient: true}, f.scripts, known.watch)
	if err != nil {
		return err
	}
	if err := one.wait(one.settled, "the first answers of each class"); err != nil {
		return err
	}
	one.close()
	for c := range maps.Keys(known.by) {
		c.remember(known.by[c])
	}
	if err := f.connect(t.Addrs, false); err != nil {
		return err
	}
	for _, p := range f.parts {
		if err := p.wait(p.settled, "the first answers"); err != nil {
			return err
		}
	}
	return nil
}

// obey carries out an order.
func (f *formation) obey(o fleetOrder, out io.Writer) (err error) {
	before := f.things()
	if len(o.Connect) > 0 {
		err, before = f.connect(o.Connect, true), 0
	}
	if o.Replaced != "" {
		err = f.replace(o.Replaced, o.By)
		before = f.things() // the new part has had nothing yet
	}
	if err != nil {
		return err
	}
	var rounds []*round
	for range f.parts {
		r := &round{any: o.Assignments == 0}
		r.need[resource.Endpoint] = o.Assignments
		if from, to := o.Namespaces[0], o.Namespaces[1]; from != to {
			r.only = func(s *stream) bool { return s.script.namespace >= from && s.script.namespace < to }
		}
		rounds = append(rounds, r)
	}
	for i, p := range f.parts {
		p.begin(rounds[i])
	}
	if _, err := fmt.Fprintln(out, saysReady); err != nil {
		return err
	}
	var last time.Time
	concerned := 0
	for i, p := range f.parts {
		took, failed := p.arrived(rounds[i])
		if at := rounds[i].begin.Add(took); at.After(last) {
			last = at
		}
		err, concerned = errors.Join(err, failed), concerned+rounds[i].concerned
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, last.UnixNano(), f.things()-before-concerned*o.Assignments)
	return err
}
