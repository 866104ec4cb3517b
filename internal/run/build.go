package run

import (
	"fmt"
	"runtime/debug"
)

// Build identifies the version of the program.
type Build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Time     string `json:"time,omitempty"`
	Go       string `json:"golang_version"`
}

// ReadBuild returns the build information that the Go linker has stored in the program.
func ReadBuild() Build {
	b := Build{Version: "devel"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Go = info.GoVersion
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		case "vcs.time":
			b.Time = s.Value
		}
	}
	return b
}

// String returns the build in one line.
func (b Build) String() string {
	s := b.Version
	if b.Revision != "" {
		s += fmt.Sprintf(" (revision %.12s", b.Revision)
		if b.Modified {
			s += ", modified"
		}
		s += ")"
	}
	return s + " " + b.Go
}
