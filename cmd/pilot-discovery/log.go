package main

import (
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/pilotmesh/pilot/internal/admin"
	"github.com/pilotmesh/pilot/internal/config"
	"github.com/pilotmesh/pilot/internal/xds/push"
)

// loggedProblems is how many new problems are logged at a time. /debug/problemz lists all of them.
const loggedProblems = 20

// logger returns a logger that writes text or JSON lines.
func logger(w io.Writer, s *config.Settings) *slog.Logger {
	o := &slog.HandlerOptions{Level: s.LogLevel}
	if s.LogJSON {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// logCommit logs a commit in one line. Commits that only connecting or disconnecting proxies have caused have level debug.
func logCommit(log *slog.Logger, c push.Commit) {
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
		say("problem", append([]any{"revision", p.Revision, "severity", p.Level}, describe(p)...)...)
	}
	for i, p := range n.Mended {
		if i == loggedProblems {
			log.Info("more problems are mended; /debug/problemz lists those that are left", "more", len(n.Mended)-i)
			break
		}
		log.Info("problem mended", append([]any{"revision", n.Revision, "after", time.Since(p.Since).Round(time.Millisecond).String()}, describe(p)...)...)
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
	if p.Field != "" {
		list = append(list, "field", p.Field)
	}
	return append(list, "reason", p.Reason)
}
