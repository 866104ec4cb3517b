package main

import (
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/admin"
	"github.com/pilotmesh/pilot/internal/config"
	"github.com/pilotmesh/pilot/internal/config/logging"
	"github.com/pilotmesh/pilot/internal/loop"
	"github.com/pilotmesh/pilot/internal/run"
)

// loggedProblems is how many new problems are logged at a time. /debug/problemz lists all of them.
const loggedProblems = 20

// The parts of the log. Their levels are set apart from each other.
const (
	logConfig  = "config"
	logProxies = "proxies"
	logKube    = "kube"
	logCA      = "ca"
	logKeys    = "keys"
	logPages   = "pages"

	logRegistries = "registries"
)

func logParts() []logging.Part {
	return []logging.Part{
		{Name: logConfig, Logs: "commits, problems, and files of configuration", Scopes: []string{"model", "validation", "analysis", "file", "processing", "status"}},
		{Name: logProxies, Logs: "proxies that come, go and reject something, and the names they ask for", Scopes: []string{"ads", "xds", "delta", "grpcgen", "wle"}},
		{Name: logKube, Logs: "Kubernetes clusters: reads and writes", Scopes: []string{"kube", "klog", "krt", "controllers", "secretcontroller", "configmapcontroller", "ingress"}},
		{Name: logCA, Logs: "the certificate authority, and who calls", Scopes: []string{"serverca", "pkica", "rootcertrotator", "trustBundle", "spiffe", "security", "authn", "credentials", "cacrl"}},
		{Name: logKeys, Logs: "key sets of issuers of tokens, and permissions to read Secrets", Scopes: []string{"retry"}},
		{Name: logRegistries, Logs: "registries of services outside Kubernetes: their states", Scopes: []string{"consul", "mcp"}},
		{Name: logPages, Logs: "HTTP pages", Scopes: []string{"server", "monitor", "monitoring"}},
	}
}

// logger returns a logger that writes text or JSON lines. It logs which parts do not exist.
func logger(w io.Writer, s *config.Settings) *slog.Logger {
	log := logging.New(w, s.LogJSON, logParts())
	if err := logging.Of(log).Set(s.LogLevels); err != nil {
		log.Warn("command line", "remark", "--log_output_level: "+strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return log
}

// logCommit logs a commit in one line. Commits that only connecting or disconnecting proxies have caused have level debug.
func logCommit(log *slog.Logger, c loop.Commit) {
	objects, cells := 0, 0
	for _, n := range c.Objects {
		objects += n
	}
	for _, n := range c.Cells {
		cells += n
	}
	if len(c.Changed) > 0 {
		names := make([]string, len(c.Changed))
		for i, k := range c.Changed {
			names[i] = k.String()
		}
		log = log.With("changed", strings.Join(names, ", "))
	}
	say := log.Info
	if len(c.Objects) == 0 {
		say = log.Debug
	}
	say("commit", "revision", c.Revision, "jobs", c.Jobs, "objects", objects, "cells", cells,
		"classes", c.Classes, "streams", c.Streams, "ms", float64(c.Duration.Microseconds())/1000)
}

// logNews logs raised and mended problems: up to loggedProblems lines of each.
func logNews(log *slog.Logger, n admin.News) {
	for i, p := range n.Raised {
		if i == loggedProblems {
			log.Warn("there are more new problems; /debug/problemz lists all", "more", len(n.Raised)-i)
			break
		}
		say := log.Info
		if p.Level == "error" {
			say = log.Warn
		}
		say("problem", append([]any{"revision", p.Revision, "severity", p.Level, "code", string(p.Code)}, describe(p)...)...)
	}
	for i, p := range n.Mended {
		if i == loggedProblems {
			log.Info("more problems are mended; /debug/problemz lists the remaining ones", "more", len(n.Mended)-i)
			break
		}
		log.Info("problem mended", append([]any{"revision", n.Revision, "after", time.Since(p.Since).Round(time.Millisecond).String(), "code", string(p.Code)}, describe(p)...)...)
	}
}

// describe returns the attributes of a problem that are known.
func describe(p admin.Problem) (list []any) {
	if p.Object != (admin.Object{}) {
		list = append(list, "object", p.Object.Key().String())
	}
	if p.File != "" {
		list = append(list, "file", p.File, "line", p.Line)
	}
	if p.Column > 0 {
		list = append(list, "column", p.Column)
	}
	if p.Field != "" {
		list = append(list, "field", p.Field)
	}
	return append(list, "reason", p.Reason)
}

// logStart logs the version and the main settings of the control plane.
func logStart(log *slog.Logger, s *config.Settings, build run.Build) {
	log.Info("starting", "version", build.Version, "revision", build.Revision, "config_dir", s.ConfigDir,
		"mesh_config", s.MeshConfig, "http_addr", s.HTTPAddr, "monitoring_addr", s.MonitoringAddr, "grpc_addr", s.GRPCAddr, "secure_grpc_addr", s.SecureGRPCAddr)
}
