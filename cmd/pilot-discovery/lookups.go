package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/config"
	"github.com/pilotmesh/pilot/internal/config/logging"
	"github.com/pilotmesh/pilot/internal/controller/bundles"
	"github.com/pilotmesh/pilot/internal/controller/cluster"
	"github.com/pilotmesh/pilot/internal/controller/keys"
	"github.com/pilotmesh/pilot/internal/controller/names"
	"github.com/pilotmesh/pilot/internal/controller/permission"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/run/statefile"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/source/kube"
)

// addLookups adds the actors that get what the configuration names outside of the mesh: the keys of issuers of tokens, and the addresses of gateways into
// networks. Without a cluster, local addresses are allowed, because the author of the files owns the host.
func addLookups(g *run.Group, s *config.Settings, running *loop.Loop, log *slog.Logger) {
	client := keys.NewClient(keys.Options{Blocked: s.BlockedKeyServers, Local: !s.Kubernetes(), Insecure: s.InsecureKeyServers})
	fetcher := &keys.Fetcher{Sink: running, Client: client, Refresh: s.KeyRefresh, Log: logging.For(log, logKeys)}
	g.Add(actor("key sets", fetcher.Keep(running)))
	resolver := &names.Resolver{Sink: running, Client: &names.Client{Servers: names.HostServers, Loopback: !s.Kubernetes()}, Log: logging.For(log, logConfig)}
	g.Add(actor(names.Name, resolver.Keep(running)))
}

// actor returns an actor that runs until the program ends.
func actor(name string, work func(context.Context)) run.Actor {
	return run.Actor{Name: name, Run: func(ctx context.Context) error {
		work(ctx)
		return nil
	}}
}

// addFirstCommit adds the actors that proxies wait for: one until all sources are read, and one that fetches the SPIFFE bundles of the mesh
// configuration, until their last good roots are in force.
func addFirstCommit(g *run.Group, s *config.Settings, access *rest.Config, running *loop.Loop, log *slog.Logger) error {
	keeper, err := rootKeeper(s, access)
	if err != nil {
		return err
	}
	g.Add(run.Actor{Name: "first commit", Ready: running.Synced(), Run: wait})
	client := keys.NewClient(keys.Options{Blocked: s.BlockedKeyServers, Local: !s.Kubernetes()})
	fetcher := &bundles.Fetcher{Sink: running, Client: client, Keeper: keeper, Ready: make(chan struct{}), Log: log}
	fetching := actor(bundles.Name, fetcher.Keep(running))
	fetching.Ready = fetcher.Ready
	g.Add(fetching)
	return nil
}

// rootKeeper returns where the last good roots of SPIFFE bundles are kept: in a cluster only if the control plane writes to that.
func rootKeeper(s *config.Settings, access *rest.Config) (bundles.Keeper, error) {
	if writes(s) {
		return cluster.NewBundles(access, s.Namespace, s.Revision)
	}
	var of []string
	for _, path := range []string{s.ConfigDir, s.MeshConfig} {
		full, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("the path of the configuration: %w", err)
		}
		of = append(of, full)
	}
	return bundles.Folder{Dir: statefile.Dir(s.CA.StateDir), Of: strings.Join(of, "\x00")}, nil
}

// addPermissions adds the actor that finds out which accounts may read the Secrets of the cluster, and has them read.
func addPermissions(g *run.Group, s *config.Settings, access *rest.Config, sources []source.Source, running *loop.Loop, log *slog.Logger) error {
	for _, one := range sources {
		local, ok := one.(*kube.Source)
		if !ok {
			continue
		}
		reviewer, err := cluster.NewAccesses(access)
		if err != nil {
			return err
		}
		keeper := &permission.Keeper{Sink: running, Reviewer: reviewer, Cluster: s.ClusterID, Want: local.WantSecrets, Log: log}
		g.Add(actor(permission.Name, keeper.Keep(running)))
	}
	return nil
}
