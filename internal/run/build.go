package run

import (
	_ "embed" // the version of a release
	"fmt"
	"regexp"
	"runtime/debug"
	"strings"
)

// release is the version of a release, such as v1.2.3. The file is empty in the repository; the builds of a release overlay it, because a version
// that the linker sets needs a variable that can change.
//
//go:embed version.txt
var release string

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
	if v := strings.TrimSpace(release); v != "" {
		b.Version = v
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Go = info.GoVersion
	if v := info.Main.Version; b.Version == "devel" && v != "" && v != "(devel)" {
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

// released matches the versions of releases. Versions that Go makes up for commits between them do not match.
var released = regexp.MustCompile(`^v(\d+\.\d+\.\d+(?:-(?:alpha|beta|rc)\.\d+)?)$`)

// ImageTag returns the tag of the images that belong to this program, or "" if it is no release: only releases have images.
func (b Build) ImageTag() string {
	if m := released.FindStringSubmatch(b.Version); m != nil {
		return m[1]
	}
	return ""
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
