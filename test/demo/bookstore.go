package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/test/demo/tour"
	"github.com/pilotmesh/pilot/test/testbed"
)

// The methods of this file make the stage a tour.Bookstore.
var _ tour.Bookstore = (*stage)(nil)

const routes = "routes.yaml"

// welcome opens the shop for customers.
func (s *stage) welcome(ctx context.Context) error {
	var flags []string
	if s.discovery.HTTP != usualHTTP {
		flags = append(flags, "--address="+s.discovery.HTTP)
	}
	s.tour = &tour.Tour{Screen: s.Screen, Bookstore: s, What: "file", Pilotctl: s.bin("pilotctl"), Questions: tour.Questions("shop-v1", "catalog-v1", flags...)}
	return s.tour.Open(ctx, func() error {
		for _, a := range s.agents {
			if err := a.Alive(); err != nil {
				return err
			}
		}
		return nil
	})
}

// Shop implements tour.Bookstore: customers ask its sidecar.
func (s *stage) Shop() string {
	shop := bookstore()[0]
	return net.JoinHostPort(shop.address, strconv.Itoa(shop.port+s.offset))
}

// Routes implements tour.Bookstore.
func (s *stage) Routes() (string, error) {
	text, err := os.ReadFile(filepath.Join(s.discovery.ConfigDir, routes))
	return string(text), err
}

// Edit implements tour.Bookstore.
func (s *stage) Edit(_ context.Context, text string) (time.Time, error) {
	return s.discovery.Write(routes, text)
}

// Settled implements tour.Bookstore.
func (s *stage) Settled(ctx context.Context, edited time.Time) (testbed.Settled, error) {
	return s.discovery.AwaitSettled(ctx, edited)
}

// Edited implements tour.Bookstore.
func (s *stage) Edited() (since time.Time, edited bool) {
	before, was := s.looked, s.seen
	s.looked = time.Now()
	s.seen = s.snapshot()
	return before, s.seen != was
}

// snapshot changes with every change of a file.
func (s *stage) snapshot() string {
	var b strings.Builder
	files, _ := filepath.Glob(filepath.Join(s.discovery.ConfigDir, "[^.]*.yaml")) // the pattern is right
	for _, f := range files {
		if info, err := os.Stat(f); err == nil { // else it is gone, which is a change too
			fmt.Fprintln(&b, f, info.Size(), info.ModTime().UnixNano())
		}
	}
	return b.String()
}

// Problems implements tour.Bookstore.
func (s *stage) Problems(ctx context.Context) ([]string, error) {
	list, err := s.discovery.Problems(ctx)
	for i := range list {
		list[i] = strings.ReplaceAll(list[i], s.dir+"/", "")
	}
	return list, err
}

// Control implements tour.Bookstore: it starts a control plane that was killed, a few rows after it was missed, so that its
// absence can be watched.
func (s *stage) Control(ctx context.Context) (news []string, err error) {
	if s.discovery.Alive() == nil {
		return nil, nil
	}
	if !s.missing {
		s.missing = true
		return []string{s.In(tour.Yellow, "the control plane is gone; requests go on")}, nil
	}
	if err := s.discovery.Start(ctx); err != nil {
		return nil, err
	}
	s.missing = false
	return []string{s.In(tour.Green, fmt.Sprintf("the control plane is back, as process %d", s.discovery.PID()))}, nil
}

// Rejected implements tour.Bookstore.
func (s *stage) Rejected(ctx context.Context) error {
	var errs []error
	for _, a := range s.agents {
		errs = append(errs, a.Rejected(ctx))
	}
	return errors.Join(errs...)
}

// next prints suggestions to try while everything runs.
func (s *stage) next() {
	const try = "cp try/%s.yaml config/" + routes
	v3 := bookstore()[4]
	s.tour.Next(", in "+s.dir, "./pilotctl", []tour.Hint{
		{What: "be a customer", How: "curl -i http://" + s.Shop() + "/"},
		{What: "come in from outside", How: "curl -i --cacert " + authorityFile + " https://" + s.entrance() + "/"},
		{What: "edit the weights", How: "$EDITOR config/" + routes},
		{What: "route by a header", How: fmt.Sprintf(try, "header") + "\ncurl -H 'end-user: alma' http://" + s.Shop() + "/"},
		{What: "inject faults", How: fmt.Sprintf(try, "fault")},
		{What: "mirror", How: fmt.Sprintf(try, "mirror") + "\ncurl http://" + testbed.Loopback(v3.port+s.offset) + "/served   # it grows, and nobody sees v3's answers"},
		{What: "make a mistake", How: fmt.Sprintf(try, "broken")},
		{What: "kill the control plane", How: fmt.Sprintf("kill -9 %d   # requests go on; after a while it is started again", s.discovery.PID())},
		{What: "look inside", How: "curl http://" + s.discovery.HTTP + "/debug"},
	})
}
