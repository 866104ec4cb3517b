package agent

import (
	"fmt"
	"runtime/debug"
)

// Version says which program this is, in one line.
func Version() string {
	version, revision := "unknown", ""
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		version = v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = fmt.Sprintf(" (revision %.12s)", s.Value)
		}
	}
	return fmt.Sprintf("%s%s %s, for Istio %s", version, revision, info.GoVersion, IstioVersion)
}
