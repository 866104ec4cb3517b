package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/pilotmesh/pilot/test/demo/tour"
)

// The methods of this file make the stage a tour.Bookstore.
var _ tour.Bookstore = (*stage)(nil)

// sources are the names of the registries of the reviews, in the order of the versions.
func sources() [3]string { return [3]string{"consul", "ServiceEntry", "zookeeper"} }

// weigh puts weights into the migration of a registries file, as an editor would.
func weigh(text string, w tour.Weights) string {
	for i, name := range sources() {
		line := regexp.MustCompile(`(?m)^(    ` + name + `:) \d+`)
		text = line.ReplaceAllString(text, fmt.Sprintf("$1 %d", w[i]))
	}
	return text
}

// welcome opens the shop for customers.
func (s *stage) welcome(ctx context.Context) error {
	flags := s.Flags()
	steps := []tour.Weights{{75, 25}, {50, 50}, {0, 100}}
	if s.zookeeper != nil {
		steps = append(steps, tour.Weights{0, 50, 50}, tour.Weights{34, 33, 33})
	}
	return s.Welcome(ctx, &tour.Tour{
		Bookstore: s, What: "file", First: tour.Weights{100}, Steps: steps, Weigh: weigh,
		Questions: []tour.Question{
			{Why: "how the registries are", Args: append([]string{"registries"}, flags...)},
			{Why: "who has acknowledged what", Args: append([]string{"proxy-status"}, flags...)},
			{Why: "where the reviews live", Args: append([]string{"explain", "shop-v1", "host", "reviews"}, flags...)},
			{Why: "the services as ServiceEntries", Args: append([]string{"export", "consul"}, flags...)},
		},
	})
}

// Shop implements tour.Bookstore: customers ask its sidecar.
func (s *stage) Shop() string {
	return net.JoinHostPort(shop().Address, strconv.Itoa(shop().Port+s.Offset))
}

// Routes implements tour.Bookstore: users edit the registries file.
func (s *stage) Routes() (string, error) {
	text, err := os.ReadFile(filepath.Join(s.Dir, file))
	return string(text), err
}

// Edit implements tour.Bookstore.
func (s *stage) Edit(_ context.Context, text string) (time.Time, error) { return s.write(text) }

// Edited implements tour.Bookstore.
func (s *stage) Edited() (since time.Time, edited bool) {
	return s.Changed(filepath.Join(s.Dir, file), filepath.Join(s.Discovery.ConfigDir, "[^.]*.yaml"))
}

// Control implements tour.Bookstore.
func (s *stage) Control(ctx context.Context) (news []string, err error) { return s.Revive(ctx) }

// next prints suggestions to try while everything runs.
func (s *stage) next() {
	consul := "curl -X PUT http://" + s.consul.Address() + "/v1/catalog"
	v1 := inConsul()[0]
	hints := []tour.Hint{
		{What: "be a customer", How: "curl -i http://" + s.Shop() + "/"},
		{What: "edit the weights", How: "$EDITOR " + file},
		{What: "take an instance away", How: fmt.Sprintf(`%s/deregister -d '{"Node": %q}'`, consul, inConsul()[2].Name())},
		{What: "bring it back", How: fmt.Sprintf(`%s/register -d '{"Node": "n2", "Address": %q, "Service": {"Service": "catalog", "Port": %d, "Meta": {"protocol": "http"}}}'`,
			consul, inConsul()[2].Address, v1.Port+s.Offset)},
		{What: "kill Consul", How: fmt.Sprintf("kill -9 %d   # requests continue", s.consul.PID())},
		{What: "kill the control plane", How: fmt.Sprintf("kill -9 %d   # requests continue; after a while it is started again", s.Discovery.PID())},
		{What: "look inside", How: "curl http://" + s.Discovery.HTTP + "/debug/registries"},
	}
	s.Tour.Next(", in "+s.Dir, "./pilotctl", hints)
}
