package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/pilotmesh/pilot/internal/agent/disk"
	"github.com/pilotmesh/pilot/internal/api/document"
)

// proxyAnnotation is the annotation that holds the pod's own ProxyConfig.
const proxyAnnotation = "proxy.istio.io/config"

// defaultProxy returns the default ProxyConfig.
func defaultProxy() *meshv1alpha1.ProxyConfig {
	return &meshv1alpha1.ProxyConfig{
		ConfigPath: DefaultConfigPath, DiscoveryAddress: "istiod.istio-system.svc:15012",
		ControlPlaneAuthPolicy: meshv1alpha1.AuthenticationPolicy_MUTUAL_TLS,
		DrainDuration:          durationpb.New(45 * time.Second), TerminationDrainDuration: durationpb.New(5 * time.Second),
		ProxyAdminPort: 15000, StatusPort: 15020, StatNameLength: 189,
	}
}

// loadProxy merges ProxyConfig from all its sources.
func (s *Settings) loadProxy(errs *problems) {
	s.Proxy = defaultProxy()
	origins := map[protoreflect.Name]string{}
	s.loadMesh(origins, errs)
	s.overlay("PROXY_CONFIG", s.env["PROXY_CONFIG"], origins, errs)
	path := filepath.Join(s.dir, annotationsFile)
	if text, err := disk.Read(path); err == nil {
		if annotations, err := parseDownward(string(text)); err == nil { // loadPod reports errors in the file
			s.overlay(proxyAnnotation, annotations[proxyAnnotation], origins, errs)
		}
	}
	s.overlayFlags(origins, errs)
	for _, name := range slices.Sorted(maps.Keys(origins)) {
		if reason := unusedFields[name]; reason != "" {
			s.warn("%s: %s has no effect: %s", origins[name], document.LowerCamel(string(name)), reason)
		}
	}
	s.flags.explicitTLS = origins["control_plane_auth_policy"] != ""
}

// loadMesh reads defaultConfig from the mesh configuration file. The rest of the file concerns the control plane only.
func (s *Settings) loadMesh(origins map[protoreflect.Name]string, errs *problems) {
	path := s.flags.meshConfig
	if path == "" {
		return
	}
	text, err := disk.Read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !s.flags.set.Changed("meshConfig"):
		return
	case err != nil:
		errs.add("--meshConfig", "%w; set a file that this user can read, or omit the flag", err)
		return
	}
	for _, doc := range document.Split(text) {
		v, err := doc.Parse()
		if err != nil {
			errs.add(path, "%w", err)
		} else if d := v.Get("defaultConfig"); d != nil {
			s.overlayValue(path, d, (*document.Path)(nil).Field("defaultConfig"), origins, errs)
		}
	}
}

// overlay merges a ProxyConfig in YAML over the present one.
func (s *Settings) overlay(from, text string, origins map[protoreflect.Name]string, errs *problems) {
	for _, doc := range document.Split([]byte(text)) {
		v, err := doc.Parse()
		if err != nil {
			errs.add(from, "%w", err)
		} else if v != nil {
			s.overlayValue(from, v, nil, origins, errs)
		}
	}
}

// overlayValue replaces the fields that v contains, also with empty values. In a map it replaces the entries that v contains.
func (s *Settings) overlayValue(from string, v *document.Value, at *document.Path, origins map[protoreflect.Name]string, errs *problems) {
	var layer meshv1alpha1.ProxyConfig
	wrong := false
	for _, f := range document.Read(&layer, v, at, document.Options{JSON: true, Newer: true}) {
		if f.Warning {
			s.warn("%s: line %d: %s %s", from, f.Line, f.Field, f.Reason)
			continue
		}
		wrong = true
		errs.add(from, "line %d: %s %s", f.Line, f.Field, f.Reason)
	}
	if wrong {
		return
	}
	into, fields := s.Proxy.ProtoReflect(), layer.ProtoReflect()
	for _, m := range v.Members {
		d := into.Descriptor().Fields().ByJSONName(m.Key)
		if d == nil {
			d = into.Descriptor().Fields().ByTextName(m.Key)
		}
		if d == nil {
			continue // an unknown field, about which there is a warning already
		}
		origins[d.Name()] = from
		switch {
		case !fields.Has(d):
			into.Clear(d)
		case d.IsMap():
			fields.Get(d).Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				into.Mutable(d).Map().Set(k, v)
				return true
			})
		default:
			into.Set(d, fields.Get(d))
		}
	}
}

// overlayFlags merges the flags that correspond to fields of ProxyConfig over the present one.
func (s *Settings) overlayFlags(origins map[protoreflect.Name]string, errs *problems) {
	p := s.Proxy
	for _, f := range fieldFlags(p) {
		if !s.flags.set.Changed(f.flag) {
			continue
		}
		origins[f.field] = "--" + f.flag
		if err := f.set(s.flags.set.Lookup(f.flag).Value.String()); err != nil {
			errs.add("--"+f.flag, "%w", err)
		}
	}
	for _, d := range []struct {
		name  string
		value *durationpb.Duration
	}{{"drainDuration", p.DrainDuration}, {"terminationDrainDuration", p.TerminationDrainDuration}} {
		if d.value.AsDuration() < 0 {
			errs.add(d.name, "%v is negative", d.value.AsDuration())
		}
	}
	for _, d := range []struct {
		name  string
		value int32
	}{{"proxyAdminPort", p.ProxyAdminPort}, {"statusPort", p.StatusPort}} {
		if d.value < 0 || d.value > 65535 {
			errs.add(d.name, "%d is not a port; write a number up to 65535", d.value)
		}
	}
}

// fieldFlag is a flag that corresponds to a field of ProxyConfig, and how it is set.
type fieldFlag struct {
	flag  string
	field protoreflect.Name
	set   func(text string) error
}

// fieldFlags are the flags that correspond to fields of p.
func fieldFlags(p *meshv1alpha1.ProxyConfig) []fieldFlag {
	return []fieldFlag{
		{"discoveryAddress", "discovery_address", func(v string) error { p.DiscoveryAddress = v; return nil }},
		{"configPath", "config_path", func(v string) error { p.ConfigPath = v; return nil }},
		{"binaryPath", "binary_path", func(v string) error { p.BinaryPath = v; return nil }},
		{"serviceCluster", "service_cluster", func(v string) error {
			p.ClusterName = &meshv1alpha1.ProxyConfig_ServiceCluster{ServiceCluster: v}
			return nil
		}},
		{"customConfigFile", "custom_config_file", func(v string) error { p.CustomConfigFile = v; return nil }},
		{"statsdUdpAddress", "statsd_udp_address", func(v string) error { p.StatsdUdpAddress = v; return nil }},
		{"zipkinAddress", "tracing", func(v string) error {
			p.Tracing = &meshv1alpha1.Tracing{Tracer: &meshv1alpha1.Tracing_Zipkin_{Zipkin: &meshv1alpha1.Tracing_Zipkin{Address: v}}}
			return nil
		}},
		{"datadogAgentAddress", "tracing", func(v string) error {
			p.Tracing = &meshv1alpha1.Tracing{Tracer: &meshv1alpha1.Tracing_Datadog_{Datadog: &meshv1alpha1.Tracing_Datadog{Address: v}}}
			return nil
		}},
		{"proxyAdminPort", "proxy_admin_port", setPort(&p.ProxyAdminPort)},
		{"statusPort", "status_port", setPort(&p.StatusPort)},
		{"drainDuration", "drain_duration", setDuration(&p.DrainDuration)},
		{"terminationDrainDuration", "termination_drain_duration", setDuration(&p.TerminationDrainDuration)},
		{"controlPlaneAuthPolicy", "control_plane_auth_policy", func(v string) error {
			n, ok := meshv1alpha1.AuthenticationPolicy_value[strings.ToUpper(v)]
			if !ok {
				return fmt.Errorf("%q is neither NONE nor MUTUAL_TLS", v)
			}
			p.ControlPlaneAuthPolicy = meshv1alpha1.AuthenticationPolicy(n)
			return nil
		}},
		{"concurrency", "concurrency", func(v string) error {
			n, err := strconv.ParseInt(v, 10, 32)
			p.Concurrency = wrapperspb.Int32(int32(n))
			return err
		}},
	}
}

func setPort(into *int32) func(string) error {
	return func(text string) error {
		if text == "" {
			text = "0"
		}
		n, err := strconv.ParseInt(text, 10, 32)
		*into = int32(n)
		return err
	}
}

func setDuration(into **durationpb.Duration) func(string) error {
	return func(text string) error {
		d, err := time.ParseDuration(text)
		*into = durationpb.New(d)
		return err
	}
}

// tlsPort is the port at which Istio's control plane accepts TLS only.
const tlsPort = "15012"

// checkDiscovery rejects addresses that cannot work, and decides whether TLS is used: a setting says so, or else the port does.
func (s *Settings) checkDiscovery(errs *problems) {
	address := s.Proxy.DiscoveryAddress
	host, p, err := net.SplitHostPort(address)
	if n, convErr := strconv.ParseUint(p, 10, 16); err != nil || host == "" || convErr != nil || n == 0 {
		errs.add("discoveryAddress", "%q is not host:port", address)
		return
	}
	s.TLS = p == tlsPort
	if s.flags.explicitTLS {
		s.TLS = s.Proxy.ControlPlaneAuthPolicy == meshv1alpha1.AuthenticationPolicy_MUTUAL_TLS
	}
	if s.TLS {
		return
	}
	s.Proxy.ControlPlaneAuthPolicy = meshv1alpha1.AuthenticationPolicy_NONE
	s.warn("xDS to %s uses neither encryption nor authentication; name the control plane's port for TLS, such as %s", address, net.JoinHostPort(host, tlsPort))
}
