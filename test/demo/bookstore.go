package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/pilotmesh/pilot/test/demo/tour"
	"github.com/pilotmesh/pilot/test/testbed"
)

// The methods of this file make the stage a tour.Bookstore.
var _ tour.Bookstore = (*stage)(nil)

const routes = "routes.yaml"

// welcome opens the shop for customers.
func (s *stage) welcome(ctx context.Context) error {
	return s.Welcome(ctx, &tour.Tour{Bookstore: s, What: "file", Questions: tour.Questions("shop-v1", "catalog-v1", s.Flags()...)})
}

// Shop implements tour.Bookstore: customers ask its sidecar.
func (s *stage) Shop() string {
	shop := bookstore()[0]
	return net.JoinHostPort(shop.Address, strconv.Itoa(shop.Port+s.Offset))
}

// Routes implements tour.Bookstore.
func (s *stage) Routes() (string, error) {
	text, err := os.ReadFile(filepath.Join(s.Discovery.ConfigDir, routes))
	return string(text), err
}

// Edit implements tour.Bookstore.
func (s *stage) Edit(_ context.Context, text string) (time.Time, error) {
	return s.Discovery.Write(routes, text)
}

// Edited implements tour.Bookstore.
func (s *stage) Edited() (since time.Time, edited bool) {
	return s.Changed(filepath.Join(s.Discovery.ConfigDir, "[^.]*.yaml"))
}

// Control implements tour.Bookstore.
func (s *stage) Control(ctx context.Context) (news []string, err error) { return s.Revive(ctx) }

// next prints suggestions to try while everything runs.
func (s *stage) next() {
	const try = "cp try/%s.yaml config/" + routes
	v3 := bookstore()[4]
	s.Tour.Next(", in "+s.Dir, "./pilotctl", []tour.Hint{
		{What: "be a customer", How: "curl -i http://" + s.Shop() + "/"},
		{What: "come in from outside", How: "curl -i --cacert " + authorityFile + " https://" + s.entrance() + "/"},
		{What: "edit the weights", How: "$EDITOR config/" + routes},
		{What: "route by a header", How: fmt.Sprintf(try, "header") + "\ncurl -H 'end-user: alma' http://" + s.Shop() + "/"},
		{What: "inject faults", How: fmt.Sprintf(try, "fault")},
		{What: "mirror", How: fmt.Sprintf(try, "mirror") + "\ncurl http://" + testbed.Loopback(v3.Port+s.Offset) + "/served   # it grows, and no client sees v3's answers"},
		{What: "make a mistake", How: fmt.Sprintf(try, "broken")},
		{What: "kill the control plane", How: fmt.Sprintf("kill -9 %d   # requests continue; after a while it is started again", s.Discovery.PID())},
		{What: "look inside", How: "curl http://" + s.Discovery.HTTP + "/debug"},
	})
}
