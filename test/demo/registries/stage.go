package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pilotmesh/pilot/test/demo/local"
	"github.com/pilotmesh/pilot/test/demo/tour"
	"github.com/pilotmesh/pilot/test/registries/servers"
	"github.com/pilotmesh/pilot/test/testbed"
)

// file is the registries file, in the folder of the run.
const file = "registries.yaml"

// sessionTimeout is how long ZooKeeper keeps the nodes of an instance that is silent.
const sessionTimeout = 2 * time.Second

// The workloads. One that calls others has a sidecar at its address; without a sidecar, the application listens there itself.
func shop() local.Workload {
	return local.Workload{Service: "shop", Version: "v1", Address: "127.1.0.1", Port: 9011, Calls: "catalog=catalog.service.consul:9021,reviews:9030"}
}

// inConsul returns the instances of Consul. The last catalog comes later.
func inConsul() []local.Workload {
	return []local.Workload{
		{Service: "catalog", Version: "v1", Address: "127.1.0.2", Port: 9021},
		{Service: "reviews", Version: "v1", Address: "127.1.0.3", Port: 9031},
		{Service: "catalog", Version: "v2", Address: "127.1.0.7", Port: 9021},
	}
}

// inFiles returns the instances of files and of the memory registry.
func inFiles() []local.Workload {
	return []local.Workload{
		{Service: "reviews", Version: "v2", Address: "127.1.0.4", Port: 9032},
		{Service: "ratings", Version: "v1", Address: "127.1.0.6", Port: 9041},
	}
}

// inZooKeeper returns the instances of ZooKeeper: one of Spring Cloud, and one of Dubbo, which calls through the sidecar of the first one.
func inZooKeeper() []local.Workload {
	return []local.Workload{
		{Service: "reviews", Version: "v3", Address: "127.1.0.5", Port: 9033, Calls: "ratings=ratings.machines:9040"},
		{Service: "reviews", Version: "v3", Address: "127.1.0.8", Port: 9033, Calls: "ratings=ratings.machines:9040"},
	}
}

// instance is how an application writes itself into ZooKeeper: Spring Cloud with a port, Dubbo with its endpoints.
func instance(w local.Workload, port int, dubbo bool) string {
	metadata := fmt.Sprintf(`"app":%q,"version":%q,"instance_status":"UP"`, w.Service, w.Version)
	if dubbo {
		metadata = fmt.Sprintf(`"app":%q,"version":%q,"dubbo.metadata.storage-type":"local","dubbo.endpoints":"[{\"port\":%d,\"protocol\":\"rest\"}]"`, w.Service, w.Version, port)
	}
	return fmt.Sprintf(`{"name":%q,"id":%q,"address":%q,"port":%d,"payload":{"metadata":{%s}},"serviceType":"DYNAMIC"}`, w.Service, w.Address, w.Address, port, metadata)
}

// stage is everything the demo runs.
type stage struct {
	local.Stage
	consul    *servers.Consul
	zookeeper *servers.Server // nil if it is missing
	sessions  []*servers.Session
}

func (s *stage) close() {
	for _, c := range s.sessions {
		c.Close()
	}
	s.Close()
	if s.consul != nil {
		s.consul.Kill()
	}
	if s.zookeeper != nil {
		s.zookeeper.Kill()
	}
}

// open starts all parts. If it fails, close stops the parts that it has started.
func (s *stage) open(ctx context.Context) error {
	if err := s.Prepare(ctx, "demo-registries", "registries"); err != nil {
		return err
	}
	s.Line(s.In(tour.Bold, "A bookstore whose services live in Consul, in ZooKeeper, in files and in a memory registry"))
	s.Picture()
	if err := s.find(); err != nil {
		return err
	}
	zookeeper := s.startZooKeeper
	if s.zookeeper == nil {
		zookeeper = nil
	}
	for _, part := range []struct {
		what  string
		start func(context.Context) error // nil for a part that is left out
	}{
		{"Consul, and the instances that register there: catalog v1, reviews v1", s.startConsul},
		{"ZooKeeper, with two instances of reviews v3: one of Spring Cloud, one of Dubbo", zookeeper},
		{"workloads of files and of the memory registry: shop, reviews v2, ratings", s.startOthers},
		{"the control plane, pilot-discovery, reads them all as samples/registries says", s.control},
		{"sidecars of the services that call others: pilot-agent, each with an Envoy " + s.EnvoyVersion, s.sidecars},
		{"the first customer", s.welcome},
	} {
		if part.start == nil {
			continue
		}
		if err := s.Step(part.what, func() error { return part.start(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

// find finds the servers, and takes the ports. Consul must be there; without ZooKeeper, the demo shows the rest.
func (s *stage) find() (err error) {
	if s.consul, err = servers.NewConsul(s.Root, s.Dir); err != nil {
		return err
	}
	s.zookeeper, err = servers.NewZooKeeper(s.Dir)
	if missing, ok := errors.AsType[*servers.Missing](err); ok {
		s.Line("  " + s.In(tour.Yellow, fmt.Sprintf("no %s, so that reviews v3 are left out: %s", missing.What, missing.Remedy)))
		err = nil
	}
	if err != nil {
		return err
	}
	all := append(append([]local.Workload{shop()}, inConsul()...), inFiles()...)
	return s.TakePorts(append(all, inZooKeeper()...))
}

// at is where the application of a workload without a sidecar listens.
func (s *stage) at(w local.Workload) string { return w.Address + ":" + strconv.Itoa(w.Port+s.Offset) }

// register writes a workload into Consul, as its agent would.
func (s *stage) register(ctx context.Context, w local.Workload) error {
	return s.consul.Register(ctx, servers.Instance{
		Node: w.Name(), Service: w.Service, Address: w.Address, Port: w.Port + s.Offset,
		Meta: map[string]string{"protocol": "http", "version": w.Version},
	})
}

func (s *stage) startConsul(ctx context.Context) error {
	if err := s.consul.Start(ctx); err != nil {
		return err
	}
	for i, w := range inConsul() {
		if _, err := s.App(ctx, w, s.at(w)); err != nil {
			return err
		}
		if i < 2 {
			if err := s.register(ctx, w); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *stage) startZooKeeper(ctx context.Context) error {
	if err := s.zookeeper.Start(ctx); err != nil {
		return err
	}
	for i, w := range inZooKeeper() {
		at := s.at(w)
		if i == 0 {
			at = testbed.Loopback(w.Port + s.Offset) // behind its sidecar
		}
		if _, err := s.App(ctx, w, at); err != nil {
			return err
		}
		c, err := servers.NewSession(s.zookeeper, sessionTimeout)
		if err != nil {
			return err
		}
		s.sessions = append(s.sessions, c)
		if err := c.Put("/services/"+w.Service+"/"+w.Address, instance(w, w.Port+s.Offset, i == 1), zk.FlagEphemeral); err != nil {
			return err
		}
	}
	return nil
}

// startOthers starts the applications that no server of a registry knows. The shop is called by its sidecar.
func (s *stage) startOthers(ctx context.Context) error {
	for _, w := range inFiles() {
		if _, err := s.App(ctx, w, s.at(w)); err != nil {
			return err
		}
	}
	_, err := s.App(ctx, shop(), testbed.Loopback(shop().Port+s.Offset))
	return err
}

// localized puts the addresses of the servers into the registries file, and takes a missing ZooKeeper out of it.
func localized(text, consul, zookeeper string) string {
	text = strings.ReplaceAll(text, "127.0.0.1:8500", consul)
	if zookeeper != "" {
		return strings.ReplaceAll(text, "127.0.0.1:2181", zookeeper)
	}
	before, rest, _ := strings.Cut(text, "- type: zookeeper\n")
	_, after, _ := strings.Cut(rest, "- type: memory\n")
	lines := strings.SplitAfter(before+"- type: memory\n"+after, "\n")
	var kept strings.Builder
	for _, line := range lines {
		if !strings.HasPrefix(strings.TrimSpace(line), "zookeeper:") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// control copies the sample and starts the control plane on the copy.
func (s *stage) control(ctx context.Context) error {
	if err := s.SetUp(); err != nil {
		return err
	}
	sample := filepath.Join(s.Root, "samples", "registries")
	if err := s.Copy(filepath.Join(sample, "config"), s.Discovery.ConfigDir, nil); err != nil {
		return err
	}
	zookeeper := ""
	if s.zookeeper != nil {
		zookeeper = s.zookeeper.Address()
	}
	edit := func(text string) string { return localized(text, s.consul.Address(), zookeeper) }
	if err := s.Copy(sample, s.Dir, edit); err != nil {
		return err
	}
	s.Discovery.Args = []string{"--registriesConfig=" + filepath.Join(s.Dir, file)}
	return s.Discovery.Start(ctx)
}

// sidecars starts the agents, and waits until all are ready.
func (s *stage) sidecars(ctx context.Context) error {
	callers := []local.Workload{shop()}
	if s.zookeeper != nil {
		callers = append(callers, inZooKeeper()[0])
	}
	for _, w := range callers {
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

// write replaces the registries file, whole at once.
func (s *stage) write(text string) (time.Time, error) {
	path := filepath.Join(s.Dir, file)
	if err := os.WriteFile(path+".tmp", []byte(text), 0o600); err != nil {
		return time.Time{}, err
	}
	at := time.Now()
	return at, os.Rename(path+".tmp", path)
}
