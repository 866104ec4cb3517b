package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/pilotmesh/pilot/test/testbed"
)

// mesh is a control plane and its Envoys.
type mesh struct {
	programs
	dir       string
	discovery *testbed.Discovery
	down      bool // the control plane is
	nodes     []testbed.Node
	agents    []*testbed.Agent // by node; nil if it was killed
}

// start runs everything over the given files and waits until every Envoy has its first configuration.
func (m *mesh) start(ctx context.Context, files map[string]string, envoys int) error {
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return err
	}
	var err error
	if m.discovery, err = testbed.NewDiscovery(m.programs.discovery, m.dir); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if _, err := m.discovery.Write(name, files[name]); err != nil {
			return err
		}
	}
	if err := m.discovery.Start(ctx); err != nil {
		return err
	}
	for i := range envoys {
		m.nodes = append(m.nodes, testbed.Node{
			Name: fmt.Sprintf("client-%d", i), Namespace: namespaces[i%len(namespaces)], IP: fmt.Sprintf("127.1.0.%d", i+1),
			Discovery: m.discovery.GRPC, SotW: i%3 == 2,
		})
		m.agents = append(m.agents, nil)
	}
	return m.mend(ctx)
}

func (m *mesh) startAgent(i int) error {
	a, err := testbed.StartAgent(testbed.AgentOptions{Binary: m.programs.agent, Envoy: m.programs.envoy}, m.dir, m.nodes[i])
	m.agents[i] = a
	return err
}

func (m *mesh) stop() {
	for _, a := range m.agents {
		if a != nil {
			a.Stop()
		}
	}
	if m.discovery != nil && !m.down {
		m.discovery.Stop()
	}
}

// mend starts every process that was killed or has not run yet, and waits until every Envoy is ready.
func (m *mesh) mend(ctx context.Context) error {
	if m.down {
		if err := m.discovery.Start(ctx); err != nil {
			return err
		}
		m.down = false
	}
	for i, a := range m.agents {
		if a == nil {
			if err := m.startAgent(i); err != nil {
				return err
			}
		}
	}
	for _, a := range m.agents {
		if err := a.AwaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// sound returns an error if something has happened that nothing outside accounts for.
func (m *mesh) sound() error {
	errs := []error{m.discovery.Accident(), m.discovery.Alive()}
	for _, a := range m.agents {
		errs = append(errs, a.Alive())
	}
	return errors.Join(errs...)
}
