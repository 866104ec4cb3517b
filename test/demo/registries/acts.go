package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/test/demo/tour"
	"github.com/pilotmesh/pilot/test/testbed"
)

// patience is how long an act may take on the slowest of machines.
const patience = 20 * time.Second

// acts are what happens in the registries while customers ask.
func (s *stage) acts(ctx context.Context) error {
	s.Line("\n" + s.In(tour.Bold, "What happens in the registries, while customers ask"))
	for _, act := range []func(context.Context) (string, error){s.arrive, s.die, s.lose, s.forget, s.recover} {
		within, cancel := context.WithTimeout(ctx, patience)
		news, err := act(within)
		cancel()
		if err != nil {
			return err
		}
		if news != "" {
			s.Line("  " + s.In(tour.Green, "✓") + " " + news)
		}
		if err := s.unharmed(); err != nil {
			return err
		}
	}
	return nil
}

// unharmed returns an error if a request has failed.
func (s *stage) unharmed() error {
	if failures, err := s.Tour.Failures(); failures > 0 {
		return fmt.Errorf("%d requests failed, the first at %w", failures, err)
	}
	return nil
}

// arrive registers an instance in Consul.
func (s *stage) arrive(ctx context.Context) (string, error) {
	w := inConsul()[2]
	before := time.Now()
	if err := s.register(ctx, w); err != nil {
		return "", err
	}
	registered := time.Now()
	settled, err := s.Settled(ctx, before)
	if err != nil {
		return "", err
	}
	client := testbed.NewClient()
	defer client.CloseIdleConnections()
	err = testbed.Until(ctx, "the new instance to serve", func(ctx context.Context) error {
		by, err := tour.Page(ctx, client, s.Shop())
		if err == nil && !slices.Contains(by, w.Name()) {
			err = fmt.Errorf("the page is by %v", by)
		}
		return err
	})
	return fmt.Sprintf("%s registers in Consul: acknowledged after %.1f ms, its first request served after %.1f ms", w.Name(), ms(settled.Took), ms(time.Since(registered))), err
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// die lets an instance of ZooKeeper fall silent. It is gone when the server ends its session.
func (s *stage) die(ctx context.Context) (string, error) {
	if s.zookeeper == nil {
		return "", nil
	}
	if err := s.instances(ctx, "zookeeper", 2); err != nil {
		return "", err
	}
	s.sessions[1].Die()
	died := time.Now()
	if err := s.instances(ctx, "zookeeper", 1); err != nil {
		return "", err
	}
	settled, err := s.Settled(ctx, died)
	return fmt.Sprintf("an instance dies in ZooKeeper: gone after %.1f s; the server waits up to %v of them for its session", settled.Took.Seconds(), sessionTimeout), err
}

// lose kills Consul: all that it has said stays.
func (s *stage) lose(ctx context.Context) (string, error) {
	was, err := s.sent(ctx)
	if err != nil {
		return "", err
	}
	s.consul.Kill()
	if err := s.state(ctx, registry.Stale); err != nil {
		return "", err
	}
	return s.still(ctx, was, "Consul is killed: its state is stale")
}

// forget starts Consul again. It has lost its data, and is not believed at once.
func (s *stage) forget(ctx context.Context) (string, error) {
	was, err := s.sent(ctx)
	if err != nil {
		return "", err
	}
	if err := s.consul.Start(ctx); err != nil {
		return "", err
	}
	if err := s.state(ctx, registry.Held); err != nil {
		return "", err
	}
	return s.still(ctx, was, "Consul is back and lists nothing: its state is held")
}

// recover registers all again, as agents do.
func (s *stage) recover(ctx context.Context) (string, error) {
	was, err := s.sent(ctx)
	if err != nil {
		return "", err
	}
	for _, w := range inConsul() {
		if err := s.register(ctx, w); err != nil {
			return "", err
		}
	}
	if err := s.state(ctx, registry.Synced); err != nil {
		return "", err
	}
	return s.still(ctx, was, "its agents register again: its state is synced")
}

// still confirms that proxies were sent nothing since it was so many responses, while customers were served for a moment.
func (s *stage) still(ctx context.Context, was float64, news string) (string, error) {
	served, err := s.Tour.Sell(ctx, 100)
	if err != nil {
		return "", err
	}
	is, err := s.sent(ctx)
	if err == nil && is != was {
		err = fmt.Errorf("%s, and proxies were sent %v responses, want none", news, is-was)
	}
	return fmt.Sprintf("%s; nothing is sent to proxies, %d pages are served", news, served), err
}

// sent is how many responses proxies were sent.
func (s *stage) sent(ctx context.Context) (float64, error) {
	return s.Discovery.Metric(ctx, "pilot_xds_pushes")
}

// statuses returns the registries by name.
func (s *stage) statuses(ctx context.Context) (map[string]registry.Status, error) {
	page, err := s.Discovery.Get(ctx, "/debug/registries")
	if err != nil {
		return nil, err
	}
	var list []registry.Status
	if err := json.Unmarshal([]byte(page), &list); err != nil {
		return nil, err
	}
	all := map[string]registry.Status{}
	for _, one := range list {
		all[one.Name] = one
	}
	return all, nil
}

// state waits until Consul has a state.
func (s *stage) state(ctx context.Context, want string) error {
	return testbed.Until(ctx, "Consul to be "+want, func(ctx context.Context) error {
		all, err := s.statuses(ctx)
		if err == nil && all["consul"].State != want {
			err = fmt.Errorf("it is %s: %s", all["consul"].State, all["consul"].LastError)
		}
		return err
	})
}

// instances waits until a registry has so many instances.
func (s *stage) instances(ctx context.Context, name string, want int) error {
	return testbed.Until(ctx, fmt.Sprintf("%d instances of %s", want, name), func(ctx context.Context) error {
		all, err := s.statuses(ctx)
		if err == nil && all[name].Instances != want {
			err = fmt.Errorf("it has %d", all[name].Instances)
		}
		return err
	})
}
