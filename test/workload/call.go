package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// load is what a run of the calling role is to do.
type load struct {
	target   string
	count    int
	duration time.Duration
	qps      float64
	workers  int
	timeout  time.Duration
	fresh    bool
	insecure bool
	sni      string
	host     string
	method   string
	body     string
	headers  http.Header
}

// call sends requests until their number, the duration or ctx ends, and prints statistics. Requests that fail are an error.
func call(ctx context.Context, args []string, out io.Writer) error {
	l := load{headers: http.Header{}}
	flags := flag.NewFlagSet("workload call", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "usage: workload call [flags] TARGET\n\nTARGET is http://, h2c://, https:// or h2:// (HTTP/2 within TLS) host:port/path, grpc://host:port,\ntcp://host:port (this side speaks first), tcp-server-first://host:port or udp://host:port.\n\n")
		flags.PrintDefaults()
	}
	flags.IntVar(&l.count, "count", 0, "how many requests (default 1, or as many as fit into --duration)")
	flags.DurationVar(&l.duration, "duration", 0, "how long")
	flags.Float64Var(&l.qps, "qps", 0, "requests a second at most, all workers together (0: no limit)")
	flags.IntVar(&l.workers, "workers", 1, "how many at a time")
	flags.DurationVar(&l.timeout, "timeout", 5*time.Second, "of one request")
	flags.BoolVar(&l.fresh, "fresh", false, "a new connection for every request")
	flags.BoolVar(&l.insecure, "insecure", true, "believe any certificate")
	flags.StringVar(&l.sni, "sni", "", "server name in TLS (default: the target's host)")
	flags.StringVar(&l.host, "host", "", "Host header or :authority (default: the target's)")
	flags.StringVar(&l.method, "method", http.MethodGet, "of HTTP requests")
	flags.StringVar(&l.body, "body", "", "what to send")
	flags.Func("header", "a header, `name: value`; may be repeated", func(text string) error {
		name, value, ok := strings.Cut(text, ":")
		if !ok {
			return errors.New("want name: value")
		}
		l.headers.Add(strings.TrimSpace(name), strings.TrimSpace(value))
		return nil
	})
	show := flags.String("o", "text", "what to print: text, json (the statistics), or answers (every answer, then nothing)")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("reading flags: %w", err)
	}
	if flags.NArg() != 1 {
		return errors.New("want one target, for instance http://localhost:8080/")
	}
	l.target = flags.Arg(0)
	if l.count == 0 && l.duration == 0 {
		l.count = 1
	}
	return l.report(ctx, *show, out)
}

// report runs the load and prints the output that show selects.
func (l load) report(ctx context.Context, show string, out io.Writer) error {
	var answers io.Writer
	if show == "answers" {
		answers = out
	}
	s, err := l.run(ctx, answers)
	if err != nil {
		return err
	}
	switch show {
	case "text":
		s.print(out)
	case "json":
		if err := json.NewEncoder(out).Encode(s.summary()); err != nil {
			return fmt.Errorf("printing: %w", err)
		}
	case "answers":
	default:
		return fmt.Errorf("-o %s: want text, json or answers", show)
	}
	if s.failures > 0 {
		return fmt.Errorf("%d of %d requests failed, the first: %w", s.failures, s.requests, s.first)
	}
	return nil
}

// run drives the workers. Each has a caller of its own, which is a connection where the protocol has such.
func (l load) run(ctx context.Context, answers io.Writer) (*statistics, error) {
	if l.workers < 1 || l.qps < 0 {
		return nil, errors.New("--workers must be at least 1, --qps at least 0")
	}
	open, err := l.dialer()
	if err != nil {
		return nil, err
	}
	sending := ctx
	if l.duration > 0 {
		// Ends the sending only: requests under way may finish.
		var cancel context.CancelFunc
		sending, cancel = context.WithTimeout(ctx, l.duration)
		defer cancel()
	}
	tickets := l.tickets(sending)
	s := newStatistics()
	var working sync.WaitGroup
	for range l.workers {
		working.Go(func() {
			c := open()
			defer c.close()
			for range tickets {
				begin := time.Now()
				a, err := l.once(ctx, c)
				s.add(time.Since(begin), a, err)
				if err == nil && answers != nil {
					s.write(answers, a.text)
				}
			}
		})
	}
	working.Wait()
	s.took = time.Since(s.began)
	return s, nil
}

func (l load) once(ctx context.Context, c caller) (answer, error) {
	// A load that is interrupted is to report complete counts: requests under way may finish.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.timeout)
	defer cancel()
	return c.call(ctx)
}

// tickets hands out the right to send one request each, at the rate that was asked for. A slow server does not slow the
// rate down more than the workers are few: late tickets are handed out at once.
func (l load) tickets(ctx context.Context) <-chan struct{} {
	tickets := make(chan struct{})
	go func() {
		defer close(tickets)
		begin := time.Now()
		timer := time.NewTimer(0)
		defer timer.Stop()
		for i := 0; l.count == 0 || i < l.count; i++ {
			if l.qps > 0 {
				timer.Reset(time.Until(begin.Add(time.Duration(float64(i) / l.qps * float64(time.Second)))))
				select {
				case <-timer.C:
				case <-ctx.Done():
					return
				}
			}
			select {
			case tickets <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return tickets
}
