package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
)

// The output of the process of an arrivalsTask.
const (
	saysLearned = "learned" // it knows the subscriptions of its clients
	saysBegun   = "begun"   // every client has received something
	saysSettled = "settled" // every client has all it asked for, and all have left
)

// arrivalsTask is new clients that come to one server after the other, one in each of the first namespaces. They have a process
// of their own because they read so much at once that they would take the cores from the goroutines of the server.
type arrivalsTask struct {
	LearnFrom string // the address of a server with the same world
	First     int    // the number of the first client
}

// run learns the subscriptions of the clients. Then each line of in is the address of a server that they connect to.
func (t arrivalsTask) run(ctx context.Context, in io.Reader, out io.Writer) error {
	scripts, err := t.learn(ctx)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, saysLearned); err != nil {
		return err
	}
	addresses := bufio.NewScanner(in)
	for addresses.Scan() {
		if err := t.come(addresses.Text(), scripts, out); err != nil {
			return err
		}
	}
	return addresses.Err()
}

func (t arrivalsTask) learn(ctx context.Context) ([]*script, error) {
	conns, err := dial(t.LearnFrom, 1)
	if err != nil {
		return nil, err
	}
	defer hangUp(conns)
	return learnAll(ctx, conns[0], 0, wide)
}

func (t arrivalsTask) come(addr string, scripts []*script, out io.Writer) error {
	f, err := connect(addr, fleetSize{streams: wide, conns: wide, variant: delta, first: t.First}, scripts)
	if err != nil {
		return err
	}
	err = f.wait(f.begun, "the first answer")
	if err == nil {
		_, err = fmt.Fprintln(out, saysBegun)
	}
	if err == nil {
		err = f.wait(f.settled, "the first answers")
	}
	f.close()
	if err == nil {
		_, err = fmt.Fprintln(out, saysSettled)
	}
	return err
}

// arrivals starts such clients. They learn from a server that is closed before this returns.
func (b *bench) arrivals(services, first int) (*process, error) {
	p, err := serve(b.world(services))
	if err != nil {
		return nil, err
	}
	defer p.close()
	clients, err := b.apart(apartTask{Arrivals: &arrivalsTask{LearnFrom: p.addr, First: first}})
	if err != nil {
		return nil, err
	}
	if err := clients.expect(saysLearned); err != nil {
		return nil, errors.Join(err, clients.end())
	}
	return clients, nil
}

// come lets the clients come to a server. The channel yields one value: nil when every client has received something, or the
// error that prevents it. Until then the caller must not read the output of the process.
func (p *process) come(addr string) (<-chan error, error) {
	if _, err := fmt.Fprintln(p.stdin, addr); err != nil {
		return nil, err
	}
	begun := make(chan error, 1)
	p.reading.Go(func() { begun <- p.expect(saysBegun) })
	return begun, nil
}
