package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"

	"k8s.io/client-go/rest"

	"github.com/pilotmesh/pilot/internal/api/registry"
	"github.com/pilotmesh/pilot/internal/config"
	"github.com/pilotmesh/pilot/internal/config/logging"
	"github.com/pilotmesh/pilot/internal/run"
	"github.com/pilotmesh/pilot/internal/source"
	"github.com/pilotmesh/pilot/internal/source/consul"
	"github.com/pilotmesh/pilot/internal/source/eureka"
	"github.com/pilotmesh/pilot/internal/source/kept"
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
	return append(sources, one), share, one.Statuses, nil
}

// newRegistries creates the source of the registries outside Kubernetes; nil if there are none. An error is a mistake of the user.
func newRegistries(s *config.Settings, log *slog.Logger) (*registries.Source, error) {
	if s.RegistriesConfig == "" && s.ConsulURL == "" {
		return nil, nil
	}
	o := registries.Options{
		Path: s.RegistriesConfig, Domain: s.Domain, Log: logging.For(log, logRegistries),
		Factories: map[string]registries.Factory{registries.Consul: consul.New, registries.ZooKeeper: zookeeper.New, registries.Nacos: nacos.New, registries.Eureka: eureka.New},
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
	if slices.Contains(s.Registries, "Consul") && !slices.Contains(all.Types(), registries.Consul) {
		return nil, errors.New("--registries: Consul needs the address of a server; set --consulserverURL, or an entry of type consul in --registriesConfig")
	}
	return all, nil
}
