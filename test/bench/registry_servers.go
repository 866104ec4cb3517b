package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pilotmesh/pilot/test/registries/servers"
)

// registryServer is a real registry in which instances come and go.
type registryServer interface {
	Address() string
	Start(ctx context.Context) error
	Kill()
	// Wipe removes what survives a kill.
	Wipe() error
	Register(ctx context.Context, i servers.Instance) error
	Deregister(ctx context.Context, i servers.Instance) error
	RegisterAll(ctx context.Context, list []servers.Instance) error
}

// registryKind is a kind of registry.
type registryKind struct {
	name  string // its type in the file of registries
	start func(root, dir string) (registryServer, error)
	// further is how much higher the second port of the server is; 0 for none.
	further int
	// least is the length of the shortest answer about a change, in bytes. Shorter ones are heartbeats.
	least int
	// repeats says that the server may send an answer about a change again, later.
	repeats bool
}

func consulKind() registryKind {
	return registryKind{"consul", func(root, dir string) (registryServer, error) { return servers.NewConsul(root, dir) }, 0, 0, false}
}

func zooKeeperKind() registryKind {
	return registryKind{"zookeeper", func(_, dir string) (registryServer, error) {
		s, err := servers.NewZooKeeper(dir)
		return &zooKeeper{Server: s}, err
	}, 0, 0, false}
}

func nacosKind() registryKind {
	return registryKind{"nacos", func(root, dir string) (registryServer, error) {
		s, err := servers.NewNacos(root, dir)
		return &nacos{s}, err
	}, servers.NacosOffset, 400, true}
}

// registerEach registers instances one by one.
func registerEach(ctx context.Context, list []servers.Instance, register func(context.Context, servers.Instance) error) error {
	for _, i := range list {
		if err := register(ctx, i); err != nil {
			return fmt.Errorf("registering %s at %s: %w", i.Service, i.Address, err)
		}
	}
	return nil
}

// zooKeeper has instances as Spring Cloud writes them.
type zooKeeper struct {
	*servers.Server
	session *servers.Session
}

// Start implements registryServer.
func (z *zooKeeper) Start(ctx context.Context) (err error) {
	if err = z.Server.Start(ctx); err == nil {
		z.session, err = servers.NewSession(z.Server, 10*time.Second)
	}
	return err
}

// Kill implements registryServer.
func (z *zooKeeper) Kill() {
	z.Server.Kill()
	if z.session != nil {
		z.session.Close()
		z.session = nil
	}
}

func (*zooKeeper) node(i servers.Instance) string { return "/services/" + i.Service + "/" + i.Address }

// Register implements registryServer.
func (z *zooKeeper) Register(_ context.Context, i servers.Instance) error {
	text, err := json.Marshal(map[string]any{"id": i.Address, "name": i.Service, "address": i.Address, "port": i.Port, "payload": map[string]any{"metadata": i.Meta}})
	if err != nil {
		return err
	}
	return z.session.Put(z.node(i), string(text), 0)
}

// Deregister implements registryServer.
func (z *zooKeeper) Deregister(_ context.Context, i servers.Instance) error {
	return z.session.Delete(z.node(i), -1)
}

// RegisterAll implements registryServer.
func (z *zooKeeper) RegisterAll(ctx context.Context, list []servers.Instance) error {
	return registerEach(ctx, list, z.Register)
}

// nacos has persistent instances in the default group.
type nacos struct{ *servers.Nacos }

// Register implements registryServer.
func (n *nacos) Register(ctx context.Context, i servers.Instance) error {
	text, err := json.Marshal(i.Meta)
	if err != nil {
		return err
	}
	return n.Nacos.Register(ctx, i.Service, i.Address, i.Port, map[string]string{"metadata": string(text)})
}

// Deregister implements registryServer.
func (n *nacos) Deregister(ctx context.Context, i servers.Instance) error {
	return n.Nacos.Deregister(ctx, i.Service, i.Address, i.Port, nil)
}

// RegisterAll implements registryServer.
func (n *nacos) RegisterAll(ctx context.Context, list []servers.Instance) error {
	return registerEach(ctx, list, n.Register)
}
