package inject

import (
	"errors"
	"fmt"
	"maps"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1beta1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pilotmesh/pilot/internal/api"
)

// proxyConfig returns the ProxyConfig of a pod. Later layers go before earlier ones: the mesh configuration, the object of the root
// namespace, the object of the pod's namespace, the annotation, and the object that selects the pod. Of several objects at one place the oldest counts.
func (i *Injector) proxyConfig(j *job, namespace string) (*meshconfig.ProxyConfig, error) {
	merged := &meshconfig.ProxyConfig{}
	if d := i.config.Mesh.GetDefaultConfig(); d != nil {
		merged = proto.CloneOf(d)
	}
	root := i.config.Mesh.GetRootNamespace()
	everyone := func(s *networking.ProxyConfig) bool { return len(s.GetSelector().GetMatchLabels()) == 0 }
	i.lay(merged, root, everyone)
	if namespace != root {
		i.lay(merged, namespace, everyone)
	}
	if text, ok := j.pod.Annotations[configAnnotation]; ok {
		over, found := api.OverlayProxy(merged, text)
		var errs []error
		for _, p := range found {
			if p.Severity == api.Error {
				if errs = append(errs, refuse(configAnnotation, "%s", inConfig(p))); len(errs) == maxMistakes {
					break
				}
			} else {
				j.warn("annotation %s: %s", configAnnotation, inConfig(p))
			}
		}
		if len(errs) > 0 {
			return nil, errors.Join(errs...)
		}
		merged = over
	}
	i.lay(merged, namespace, func(s *networking.ProxyConfig) bool {
		return !everyone(s) && labels.SelectorFromSet(s.Selector.MatchLabels).Matches(labels.Set(j.pod.Labels))
	})
	return merged, checkEnv(merged.ProxyMetadata)
}

// maxMistakes is how many mistakes of one annotation an error lists, so that an answer of the webhook stays readable.
const maxMistakes = 10

// inConfig returns the text of a problem in the annotation with a ProxyConfig, with its place there.
func inConfig(p api.Problem) string {
	if p.Field == "" {
		return fmt.Sprintf("line %d: %s", p.Position.Line, p.Reason)
	}
	return fmt.Sprintf("line %d: %s %s", p.Position.Line, p.Field, p.Reason)
}

// lay lays the oldest object of a namespace that fits over a ProxyConfig.
func (i *Injector) lay(into *meshconfig.ProxyConfig, namespace string, fits func(*networking.ProxyConfig) bool) {
	for _, o := range i.config.ProxyConfigs {
		if o.Namespace != namespace || !fits(o.Spec) {
			continue
		}
		if n := o.Spec.GetConcurrency(); n != nil {
			into.Concurrency = wrapperspb.Int32(n.Value)
		}
		if image := o.Spec.GetImage(); image != nil {
			into.Image = image
		}
		if len(o.Spec.GetEnvironmentVariables()) > 0 {
			all := maps.Clone(into.ProxyMetadata)
			if all == nil {
				all = map[string]string{}
			}
			maps.Copy(all, o.Spec.EnvironmentVariables)
			into.ProxyMetadata = all
		}
		return
	}
}

// checkEnv refuses names of variables that an API server refuses.
func checkEnv(variables map[string]string) error {
	for name := range variables {
		if !isVariable(name) {
			return refuse(configAnnotation, "proxyMetadata has the name %s, which no environment variable can have", quote(name))
		}
	}
	return nil
}

// isVariable reports whether a text can be the name of an environment variable.
func isVariable(name string) bool {
	for _, r := range name {
		if r <= ' ' || r > '~' || r == '=' {
			return false
		}
	}
	return name != ""
}

// proxyJSON returns a ProxyConfig as JSON, without fields that have the value that the agent takes anyway.
func proxyJSON(p *meshconfig.ProxyConfig) (string, error) {
	normal := api.DefaultMesh().DefaultConfig
	p = proto.CloneOf(p)
	m, d := p.ProtoReflect(), normal.ProtoReflect()
	fields := m.Descriptor().Fields()
	for n := range fields.Len() {
		f := fields.Get(n)
		if m.Has(f) && d.Has(f) && m.Get(f).Equal(d.Get(f)) {
			m.Clear(f)
		}
	}
	b, err := protojson.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("encoding the configuration of the proxy: %w", err)
	}
	return compactJSON(b)
}
