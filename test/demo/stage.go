package main

import (
	"context"
	"path/filepath"

	"github.com/pilotmesh/pilot/test/demo/local"
	"github.com/pilotmesh/pilot/test/demo/tour"
	"github.com/pilotmesh/pilot/test/kit/certs"
	"github.com/pilotmesh/pilot/test/testbed"
)

// bookstore are the workloads, as samples/bookstore/config/services.yaml has them: an address of each sidecar, and the port of the application
// and of its sidecar. The first is what customers see.
func bookstore() []local.Workload {
	return []local.Workload{
		{Service: "shop", Version: "v1", Address: "127.1.0.1", Port: 9011, Calls: "catalog:9020,reviews:9030"},
		{Service: "catalog", Version: "v1", Address: "127.1.0.2", Port: 9021},
		{Service: "reviews", Version: "v1", Address: "127.1.0.3", Port: 9031},
		{Service: "reviews", Version: "v2", Address: "127.1.0.4", Port: 9032},
		{Service: "reviews", Version: "v3", Address: "127.1.0.5", Port: 9033, Calls: "ratings:9040"},
		{Service: "ratings", Version: "v1", Address: "127.1.0.6", Port: 9041},
	}
}

// stage is everything the demo runs.
type stage struct {
	local.Stage
	authority *certs.Authority // of the gateway's certificates
}

// open starts all parts. If it fails, close stops the parts that it has started.
func (s *stage) open(ctx context.Context) error {
	if err := s.Prepare(ctx, "demo", "bookstore"); err != nil {
		return err
	}
	s.Line(s.In(tour.Bold, "A bookstore: four services, one of them in three versions, and a sidecar beside each workload"))
	s.Picture()
	for _, part := range []struct {
		what  string
		start func(context.Context) error
	}{
		{"the control plane, pilot-discovery, serves a copy of samples/bookstore", s.control},
		{"six workloads", s.workloads},
		{"six sidecars: pilot-agent, each with an Envoy " + s.EnvoyVersion, s.sidecars},
		{"a gateway, which serves the shop over HTTPS", s.ingress},
		{"the first customer", s.welcome},
	} {
		if err := s.Step(part.what, func() error { return part.start(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

// control copies the sample and starts the control plane on the copy.
func (s *stage) control(ctx context.Context) (err error) {
	if err = s.TakePorts(bookstore(), ingressPort); err != nil {
		return err
	}
	if err := s.SetUp(); err != nil {
		return err
	}
	for from, to := range map[string]string{"config": s.Discovery.ConfigDir, "try": filepath.Join(s.Dir, "try")} {
		if err := s.Copy(filepath.Join(s.Root, "samples", "bookstore", from), to, nil); err != nil {
			return err
		}
	}
	if err := s.credentials(); err != nil {
		return err
	}
	s.Discovery.Args = []string{"--credentialsDir=" + s.secrets()}
	return s.Discovery.Start(ctx)
}

// workloads starts the applications.
func (s *stage) workloads(ctx context.Context) error {
	for _, w := range bookstore() {
		if _, err := s.App(ctx, w, testbed.Loopback(w.Port+s.Offset)); err != nil {
			return err
		}
	}
	return nil
}

// sidecars starts an agent for each workload, and waits until all are ready.
func (s *stage) sidecars(ctx context.Context) error {
	for _, w := range bookstore() {
		if _, err := s.Agent(ctx, "", w.Service, testbed.Node{Name: w.Name(), Namespace: "bookstore", IP: w.Address}); err != nil {
			return err
		}
	}
	for _, a := range s.Agents {
		if err := a.AwaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}
