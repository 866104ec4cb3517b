package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"

	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/internal/config"
	"github.com/pilotmesh/pilot/internal/config/logging"
	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/run/statefile"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/source/consul"
	"github.com/pilotmesh/pilot/internal/source/eureka"
	"github.com/pilotmesh/pilot/internal/source/kept"
	"github.com/pilotmesh/pilot/internal/source/mcp"
	"github.com/pilotmesh/pilot/internal/source/nacos"
	"github.com/pilotmesh/pilot/internal/source/registries"
	"github.com/pilotmesh/pilot/internal/source/zookeeper"
)

// allSources creates the sources of newSources and, if there are any registries outside Kubernetes, the source of these. statuses returns the states
// of the registries.
func allSources(s *config.Settings, access *rest.Config, policies *kept.Book, log *slog.Logger) (sources []source.Source, share func(source.Sink) source.Sink, statuses func() []registry.Status, err error) {
	if sources, share, err = newSources(s, access, policies, log); err != nil {
		return nil, nil, nil, err
	}
	one, err := newRegistries(s, log)
	switch {
	case err != nil:
		return nil, nil, nil, run.Usage(err)
	case one == nil:
		return sources, share, func() []registry.Status { return []registry.Status{} }, nil
	}
	settings := share
	return append(sources, one), func(to source.Sink) source.Sink { return settings(registries.Sharing(to, one)) }, one.Statuses, nil
}

// meshFollows reports whether a source reads the mesh configuration, in which there may be servers of configuration.
func meshFollows(s *config.Settings) bool { return s.MeshConfig != "" || s.Kubernetes() }

// newRegistries creates the source of the registries outside Kubernetes; nil if there are none. An error is a mistake of the user.
func newRegistries(s *config.Settings, log *slog.Logger) (*registries.Source, error) {
	if s.RegistriesConfig == "" && s.ConsulURL == "" && !meshFollows(s) {
		return nil, needsEntry(s, nil)
	}
	o := registries.Options{
		Path: s.RegistriesConfig, Domain: s.Domain, Log: logging.For(log, logRegistries),
		WaitMesh: meshFollows(s), State: statefile.Dir(s.CA.StateDir), IgnoreRefused: s.IgnoreRefused,
		Factories: map[string]registries.Factory{
			registries.Consul: consul.New, registries.ZooKeeper: zookeeper.New, registries.Nacos: nacos.New, registries.Eureka: eureka.New,
			registries.MCP: mcp.Factory(mcp.Options{ClusterID: s.ClusterID, Namespace: s.Namespace}),
		},
	}
	if s.ConsulURL != "" {
		u, err := url.Parse(s.ConsulURL)
		if err != nil {
			return nil, fmt.Errorf("--consulserverURL: %w", err)
		}
		o.Flags = append(o.Flags, registries.Entry{Type: registries.Consul, Scheme: u.Scheme, Addresses: []string{u.Host}, ConsulWait: s.ConsulInterval})
	}
	all, err := registries.New(o)
	if err != nil {
		return nil, err
	}
	return all, needsEntry(s, all.Types())
}

// needsEntry returns an error if --registries names a kind that needs a server, and none is described.
func needsEntry(s *config.Settings, types []string) error {
	if slices.Contains(s.Registries, "Consul") && !slices.Contains(types, registries.Consul) {
		return errors.New("--registries: Consul needs the address of a server; set --consulserverURL, or an entry of type consul in --registriesConfig")
	}
	if !slices.Contains(s.Registries, "MCP") || slices.Contains(types, registries.MCP) || s.MeshConfig == "" && s.Kubernetes() {
		return nil
	}
	if s.MeshConfig != "" {
		text, err := os.ReadFile(s.MeshConfig)
		if err != nil {
			return fmt.Errorf("--meshConfig: %w", err)
		}
		if m, _ := api.DecodeMesh(s.MeshConfig, text); len(m.GetConfigSources()) > 0 {
			return nil
		}
	}
	return errors.New("--registries: MCP needs the address of a server; set configSources in the mesh configuration, or an entry of type mcp in --registriesConfig")
}
