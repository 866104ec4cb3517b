package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// saysReady is the output of the process of a residentsTask when all its clients have the resources they asked for, and before each change.
const saysReady = "ready"

// residentsTask is the old clients of a server, one in each of the scoped namespaces. They have a process of their own because they
// note when they have a change: in the server's process they would wait for a core, and for Go to look at the network.
type residentsTask struct {
	Addr string // of the server
}

// run prints for each line of in when the last client had one more assignment, in nanoseconds since 1970.
func (t residentsTask) run(ctx context.Context, in io.Reader, out io.Writer) error {
	conns, err := dial(t.Addr, 1)
	if err != nil {
		return err
	}
	defer hangUp(conns)
	scripts, err := learnAll(ctx, conns[0], firstScoped, scopes)
	if err != nil {
		return err
	}
	f, err := connect(t.Addr, fleetSize{streams: scopes, conns: scopes, variant: delta}, scripts)
	if err != nil {
		return err
	}
	defer f.close()
	if err := f.wait(f.settled, "the first answers"); err != nil {
		return err
	}
	var said error
	ready := func() { _, said = fmt.Fprintln(out, saysReady) }
	ready()
	for asked := bufio.NewScanner(in); said == nil && asked.Scan(); {
		r := need(0, 1, 0)
		took, err := f.await(r, ready)
		if err != nil {
			return errors.Join(said, err)
		}
		if _, err := fmt.Fprintln(out, r.begin.Add(took).UnixNano()); err != nil {
			return err
		}
	}
	return said
}

// residents starts such clients and waits until they are settled.
func (b *bench) residents(addr string) (*process, error) {
	clients, err := b.apart(apartTask{Residents: &residentsTask{Addr: addr}})
	if err != nil {
		return nil, err
	}
	if err := clients.expect(saysReady); err != nil {
		return nil, errors.Join(err, clients.end())
	}
	return clients, nil
}

// await applies a change and returns when that was, and how long the last of the clients waited for it. Both processes read the
// clock of the machine.
func (p *process) await(apply func()) (begin time.Time, took time.Duration, err error) {
	if _, err := fmt.Fprintln(p.stdin, "next"); err != nil {
		return begin, 0, err
	}
	if err := p.expect(saysReady); err != nil {
		return begin, 0, err
	}
	begin = time.Now()
	apply()
	text, err := p.line()
	if err != nil {
		return begin, 0, err
	}
	at, err := strconv.ParseInt(text, 10, 64)
	return begin, time.Unix(0, at).Sub(begin), err
}
