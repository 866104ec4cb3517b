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

// addLookups adds the actors that get what the configuration names outside of the mesh. The channels deliver after commits.
func addLookups(g *run.Group, s *config.Settings, running *loop.Loop, changed, named <-chan struct{}, log *slog.Logger) {
	addKeyFetcher(g, s, running, changed, logging.For(log, logKeys))
	addResolver(g, s, running, named, logging.For(log, logConfig))
}

// addKeyFetcher adds the actor that fetches the keys of issuers of tokens. Without a cluster, local addresses are allowed, because the
// author of the files owns the host. changed delivers after commits.
func addKeyFetcher(g *run.Group, s *config.Settings, running *loop.Loop, changed <-chan struct{}, log *slog.Logger) {
	client := keys.NewClient(keys.Options{Blocked: s.BlockedKeyServers, Local: !s.Kubernetes(), Insecure: s.InsecureKeyServers})
	fetcher := &keys.Fetcher{Mesh: running, Changed: changed, Sink: running, Client: client, Refresh: s.KeyRefresh, Log: log}
	g.Add(run.Actor{Name: "key sets", Run: func(ctx context.Context) error {
		fetcher.Run(ctx)
		return nil
	}})
}

// addFirstCommit adds the actors that proxies wait for: one until all sources are read, and one that fetches the SPIFFE bundles of the mesh
// configuration, until their last good roots are in force. changed delivers after commits.
func addFirstCommit(g *run.Group, s *config.Settings, access *rest.Config, running *loop.Loop, changed <-chan struct{}, log *slog.Logger) error {
	keeper, err := rootKeeper(s, access)
	if err != nil {
		return err
	}
	g.Add(run.Actor{Name: "first commit", Ready: running.Synced(), Run: wait})
	client := keys.NewClient(keys.Options{Blocked: s.BlockedKeyServers, Local: !s.Kubernetes()})
	fetcher := &bundles.Fetcher{
		Mesh: running, Synced: running.Synced(), Changed: changed, Sink: running, Client: client, Keeper: keeper, Ready: make(chan struct{}), Log: log,
	}
	g.Add(run.Actor{Name: bundles.Name, Ready: fetcher.Ready, Run: func(ctx context.Context) error {
		fetcher.Run(ctx)
		return nil
	}})
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

// addResolver adds the actor that looks up the host names of gateways into networks. named delivers after commits.
func addResolver(g *run.Group, s *config.Settings, running *loop.Loop, named <-chan struct{}, log *slog.Logger) {
	client := &names.Client{Servers: names.HostServers, Loopback: !s.Kubernetes()}
	resolver := &names.Resolver{Mesh: running, Changed: named, Sink: running, Client: client, Log: log}
	g.Add(run.Actor{Name: names.Name, Run: func(ctx context.Context) error {
		resolver.Run(ctx)
		return nil
	}})
}

// addPermissions adds the actor that finds out which accounts may read the Secrets of the cluster, and has them read. asked delivers after commits.
func addPermissions(g *run.Group, s *config.Settings, access *rest.Config, sources []source.Source, running *loop.Loop, asked <-chan struct{}, log *slog.Logger) error {
	for _, one := range sources {
		local, ok := one.(*kube.Source)
		if !ok {
			continue
		}
		reviewer, err := cluster.NewAccesses(access)
		if err != nil {
			return err
		}
		keeper := &permission.Keeper{Mesh: running, Changed: asked, Sink: running, Reviewer: reviewer, Cluster: s.ClusterID, Want: local.WantSecrets, Log: log}
		g.Add(run.Actor{Name: permission.Name, Run: func(ctx context.Context) error {
			keeper.Run(ctx)
			return nil
		}})
	}
	return nil
}
