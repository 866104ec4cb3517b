package vm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	networking "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"github.com/pilotmesh/pilot/internal/api"
)

// ReadGroup reads the WorkloadGroup of a file. If the name or the namespace is empty, the only WorkloadGroup of the file is it.
func ReadGroup(file string, text []byte, namespace, name string) (*api.Object, error) {
	var found []*api.Object
	var errs []error
	for _, d := range api.Decode(file, text) {
		o := d.Object
		if d.Key.Kind == api.KindWorkloadGroup || d.Key.Kind == "" {
			errs = append(errs, mistakes(file, d)...)
		}
		if o == nil || o.Kind != api.KindWorkloadGroup || name != "" && o.Name != name || namespace != "" && o.Namespace != namespace {
			continue
		}
		found = append(found, o)
	}
	switch {
	case len(errs) > 0:
		return nil, errors.Join(errs...)
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0:
		return nil, fmt.Errorf("%s has no WorkloadGroup%s", file, called(namespace, name))
	}
	return nil, fmt.Errorf("%s has %d WorkloadGroups%s; choose one with --name and --namespace", file, len(found), called(namespace, name))
}

// SetGroup takes the name, the namespace and the content of a WorkloadGroup, which ReadGroup has returned.
func (f *Facts) SetGroup(group *api.Object) {
	f.Group, f.Namespace, f.Spec = group.Name, group.Namespace, group.Spec.(*networking.WorkloadGroup) //nolint:forcetypeassert // ReadGroup returns nothing else
}

// mistakes are the reasons for which an API server would refuse a document.
func mistakes(file string, d api.Document) (errs []error) {
	problems := d.Problems
	if d.Object != nil {
		problems = append(problems, api.Validate(d.Object)...)
	}
	for _, p := range problems {
		if p.Severity == api.Error {
			errs = append(errs, fmt.Errorf("%s:%d: %s: %s: %s", file, p.Position.Line, d.Key, p.Field, p.Reason))
		}
	}
	return errs
}

func called(namespace, name string) string {
	text := ""
	if name != "" {
		text += " " + name
	}
	if namespace != "" {
		text += " in the namespace " + namespace
	}
	return text
}

// Group has the fields of a WorkloadGroup.
type Group struct {
	Name, Namespace, ServiceAccount string
	// Labels, Annotations and Ports are NAME=VALUE each.
	Labels, Annotations, Ports []string
}

// YAML returns the WorkloadGroup.
func (g Group) YAML() ([]byte, error) {
	if g.Name == "" || g.Namespace == "" {
		return nil, errors.New("a WorkloadGroup needs a name (--name) and a namespace (--namespace)")
	}
	labels, err := pairs("--labels", g.Labels)
	if err != nil {
		return nil, err
	}
	annotations, err := pairs("--annotations", g.Annotations)
	if err != nil {
		return nil, err
	}
	texts, err := pairs("--ports", g.Ports)
	if err != nil {
		return nil, err
	}
	template := &networking.WorkloadEntry{ServiceAccount: g.ServiceAccount}
	for name, text := range texts {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("--ports: %s=%s: %q is not a port", name, text, text)
		}
		if template.Ports == nil {
			template.Ports = map[string]uint32{}
		}
		template.Ports[name] = uint32(n)
	}
	spec := &networking.WorkloadGroup{Template: template}
	if len(labels)+len(annotations) > 0 {
		spec.Metadata = &networking.WorkloadGroup_ObjectMeta{Labels: labels, Annotations: annotations}
	}
	text, err := protojson.Marshal(spec)
	if err != nil {
		return nil, err
	}
	whole, err := yaml.JSONToYAML(fmt.Appendf(nil, `{"apiVersion": "networking.istio.io/v1", "kind": %q, "metadata": {"name": %q, "namespace": %q}, "spec": %s}`,
		api.KindWorkloadGroup, g.Name, g.Namespace, text))
	if err != nil {
		return nil, err
	}
	_, err = ReadGroup("the WorkloadGroup", whole, "", "") // which the API server would refuse, too
	return whole, err
}

// pairs reads NAME=VALUE.
func pairs(flag string, list []string) (map[string]string, error) {
	m := map[string]string{}
	for _, text := range list {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%s: %q is not NAME=VALUE", flag, text)
		}
		m[name] = value
	}
	return m, nil
}
