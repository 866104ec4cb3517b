package proxy

import (
	"regexp"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/internal/mesh"
)

// maxVersionPattern is the length of the longest expression for versions that counts.
const maxVersionPattern = 1024

// Condition is what a patch of an EnvoyFilter demands of a proxy: a version that a regular expression matches, and values in its metadata.
type Condition struct {
	Version  string
	Metadata mesh.Labels
}

// Holds reports whether a proxy fulfils the condition. One that cannot be compared holds for no proxy.
func (c Condition) Holds(p *Proxy) bool {
	if c.Version != "" {
		pattern, err := regexp.Compile(c.Version)
		if err != nil || len(c.Version) > maxVersionPattern || p.Version == "" || !pattern.MatchString(p.Version) {
			return false
		}
	}
	for want := range c.Metadata.All() {
		is, text := p.Metadata.GetFields()[want.Name].GetKind().(*structpb.Value_StringValue)
		if !text || is.StringValue != want.Value {
			return false
		}
	}
	return true
}
