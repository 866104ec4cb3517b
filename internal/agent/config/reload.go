package config

import (
	"path/filepath"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pilotmesh/pilot/internal/api/document"
)

// Files returns the files that determine the bootstrap of Envoy and may change while the agent runs.
func (s *Settings) Files() []string {
	files := []string{filepath.Join(s.dir, annotationsFile)}
	if s.flags.meshConfig != "" {
		files = append(files, s.flags.meshConfig)
	}
	if path := s.overridePath(); path != "" {
		files = append(files, path)
	}
	if _, path := s.templatePath(); path != "" {
		files = append(files, path)
	}
	return files
}

// ownFields are the fields of ProxyConfig that the agent itself uses from its start on.
var ownFields = []protoreflect.Name{
	"config_path", "binary_path", "discovery_address", "control_plane_auth_policy", "proxy_admin_port", "status_port", "termination_drain_duration",
}

// Reload reads the files again, and returns the settings for another Envoy. Settings that the agent itself uses stay, with a
// warning if they have changed. Labels and annotations stay as well, because pods change theirs often; only ProxyConfig is read from the
// latter.
func (s *Settings) Reload() (*Settings, error) {
	next := New(s.environ)
	next.Role, next.dir = s.Role, s.dir
	flags := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
	next.Flags(flags)
	var errs problems
	s.flags.set.Visit(func(f *pflag.Flag) {
		if err := flags.Set(f.Name, f.Value.String()); err != nil {
			errs.add("--"+f.Name, "%w", err)
		}
	})
	if len(errs) > 0 {
		return nil, errs[0]
	}
	if err := next.Load(); err != nil {
		return nil, err
	}
	if next.Proxy.GetStatsdUdpAddress() == s.Proxy.GetStatsdUdpAddress() && !next.Stats.Statsd.IsValid() {
		next.Stats.Statsd = s.Stats.Statsd // its name cannot be resolved just now
	}
	next.Labels, next.Annotations, next.Addresses = s.Labels, s.Annotations, s.Addresses
	next.warnings = nil
	was, is := s.Proxy.ProtoReflect(), next.Proxy.ProtoReflect()
	for _, name := range ownFields {
		field := was.Descriptor().Fields().ByName(name)
		if was.Get(field).Equal(is.Get(field)) {
			continue
		}
		next.warn("%s has changed, which takes effect when the agent is started again", document.LowerCamel(string(name)))
		if is.Clear(field); was.Has(field) {
			is.Set(field, was.Get(field))
		}
	}
	next.Proxy = proto.CloneOf(next.Proxy) // which shares nothing with s
	return next, nil
}
