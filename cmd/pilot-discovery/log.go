package main

import (
	"io"
	"log/slog"

	"github.com/pilotmesh/pilot/internal/admin"
	"github.com/pilotmesh/pilot/internal/config"
	"github.com/pilotmesh/pilot/internal/xds/push"
)

// loggedProblems is how many new problems are logged at a time. The rest is on the page.
const loggedProblems = 20

// logger writes lines of text, or of JSON.
func logger(w io.Writer, s *config.Settings) *slog.Logger {
	o := &slog.HandlerOptions{Level: s.LogLevel}
	if s.LogJSON {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// logCommit is the one line there is about a commit. One that only proxies caused, by coming or going, is told by others.
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

// logProblems tells problems that have come up.
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
