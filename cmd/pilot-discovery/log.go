package main

import (
	"io"
	"log/slog"

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
	say := log.Info
	if len(c.Objects) == 0 {
		say = log.Debug
	}
	say("commit", "revision", c.Revision, "jobs", c.Jobs, "objects", objects, "cells", cells,
		"classes", c.Classes, "streams", c.Streams, "ms", float64(c.Duration.Microseconds())/1000)
}

// logProblems logs new problems.
func logProblems(log *slog.Logger, news []admin.Problem) {
	for i, p := range news {
		if i == loggedProblems {
			log.Warn("there are more new problems; /debug/problemz lists all", "more", len(news)-i)
			return
		}
		say := log.Info
		if p.Level == "error" {
			say = log.Warn
		}
		say("problem", "severity", p.Level, "object", p.Object.Key().String(), "file", p.File, "line", p.Line,
			"field", p.Field, "reason", p.Reason)
	}
}
