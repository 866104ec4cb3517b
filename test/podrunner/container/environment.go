package container

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/pilotmesh/pilot/test/podrunner/image"
)

// ErrNotFound is what Sources return for an object that is not there.
var ErrNotFound = errors.New("not found")

// Sources are the objects of the pod's namespace.
type Sources interface {
	ConfigMap(name string) (*v1.ConfigMap, error)
	Secret(name string) (*v1.Secret, error)
}

// Facts are the facts of its surroundings that a pod's environment may use.
type Facts struct {
	Pod         *v1.Pod
	HostIPs     []string
	PodIPs      []string
	Allocatable v1.ResourceList
	// Services are the Services of the pod's namespace, and "kubernetes" of the default one.
	Services []*v1.Service
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Environment returns the variables of a container, by name.
func Environment(facts Facts, spec *v1.Container, img image.Image, sources Sources) (map[string]string, error) {
	env := map[string]string{"PATH": defaultPath, "HOSTNAME": facts.Pod.Spec.Hostname}
	if env["HOSTNAME"] == "" {
		env["HOSTNAME"] = facts.Pod.Name
	}
	maps.Copy(env, img.Env)
	links := serviceLinks(facts)
	maps.Copy(env, links)
	for _, from := range spec.EnvFrom {
		values, err := fromObject(from, sources)
		if err != nil {
			return nil, err
		}
		for key, value := range values {
			env[from.Prefix+key] = value
		}
	}
	for _, variable := range spec.Env {
		value := Expand(variable.Value, env)
		if variable.ValueFrom != nil {
			var found bool
			var err error
			if value, found, err = fromReference(variable.ValueFrom, facts, spec, sources); err != nil {
				return nil, err
			} else if !found {
				continue
			}
		}
		env[variable.Name] = value
	}
	return env, nil
}

// List is the environment as a process is given it.
func List(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

func fromObject(from v1.EnvFromSource, sources Sources) (map[string]string, error) {
	values := make(map[string]string)
	switch {
	case from.ConfigMapRef != nil:
		object, err := sources.ConfigMap(from.ConfigMapRef.Name)
		if err != nil {
			return nil, unlessOptional(err, from.ConfigMapRef.Optional, "configmap", from.ConfigMapRef.Name)
		}
		maps.Copy(values, object.Data)
	case from.SecretRef != nil:
		object, err := sources.Secret(from.SecretRef.Name)
		if err != nil {
			return nil, unlessOptional(err, from.SecretRef.Optional, "secret", from.SecretRef.Name)
		}
		for key, value := range object.Data {
			values[key] = string(value)
		}
	}
	return values, nil
}

func unlessOptional(err error, optional *bool, kind, name string) error {
	if errors.Is(err, ErrNotFound) {
		if optional != nil && *optional {
			return nil
		}
		return fmt.Errorf("%s %q not found", kind, name)
	}
	return err
}

func fromReference(from *v1.EnvVarSource, facts Facts, spec *v1.Container, sources Sources) (value string, found bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = Field(facts, from.FieldRef.FieldPath)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err = Resource(facts, spec, from.ResourceFieldRef)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		object, err := sources.ConfigMap(ref.Name)
		if err != nil {
			return "", false, unlessOptional(err, ref.Optional, "configmap", ref.Name)
		}
		value, found = object.Data[ref.Key]
		return value, found, missingKey(found, ref.Optional, ref.Key, "ConfigMap", object.Namespace, ref.Name)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		object, err := sources.Secret(ref.Name)
		if err != nil {
			return "", false, unlessOptional(err, ref.Optional, "secret", ref.Name)
		}
		bytes, found := object.Data[ref.Key]
		return string(bytes), found, missingKey(found, ref.Optional, ref.Key, "Secret", object.Namespace, ref.Name)
	}
	return "", false, errors.New("podrunner knows no such source of an environment variable (it has fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef)")
}

func missingKey(found bool, optional *bool, key, kind, namespace, name string) error {
	if found || optional != nil && *optional {
		return nil
	}
	return fmt.Errorf("couldn't find key %s in %s %s/%s", key, kind, namespace, name)
}

// Expand replaces $(NAME) by the variable's value. An undefined $(NAME) stays as it is, and so does $$(NAME), less a $.
func Expand(text string, env map[string]string) string {
	var out strings.Builder
	for {
		at := strings.IndexByte(text, '$')
		if at < 0 || at+1 == len(text) {
			out.WriteString(text)
			return out.String()
		}
		out.WriteString(text[:at])
		text = text[at:]
		end := strings.IndexByte(text, ')')
		switch {
		case text[1] == '$':
			out.WriteByte('$')
			text = text[2:]
		case text[1] == '(' && end > 0:
			if value, ok := env[text[2:end]]; ok {
				out.WriteString(value)
			} else {
				out.WriteString(text[:end+1])
			}
			text = text[end+1:]
		default:
			out.WriteByte('$')
			text = text[1:]
		}
	}
}

// serviceLinks are the variables that describe Services, in the form that Docker once gave links.
func serviceLinks(facts Facts) map[string]string {
	env := make(map[string]string)
	links := facts.Pod.Spec.EnableServiceLinks == nil || *facts.Pod.Spec.EnableServiceLinks
	for _, service := range facts.Services {
		api := service.Namespace == "default" && service.Name == "kubernetes"
		if !api && (!links || service.Namespace != facts.Pod.Namespace) {
			continue
		}
		ip := service.Spec.ClusterIP
		if ip == "" || ip == v1.ClusterIPNone || len(service.Spec.Ports) == 0 {
			continue
		}
		name := strings.ToUpper(strings.ReplaceAll(service.Name, "-", "_"))
		host := ip
		if strings.Contains(ip, ":") {
			host = "[" + ip + "]"
		}
		env[name+"_SERVICE_HOST"] = ip
		for n, port := range service.Spec.Ports {
			number, protocol := fmt.Sprint(port.Port), string(port.Protocol)
			address := fmt.Sprintf("%s://%s:%s", strings.ToLower(protocol), host, number)
			if n == 0 {
				env[name+"_SERVICE_PORT"], env[name+"_PORT"] = number, address
			}
			if port.Name != "" {
				env[name+"_SERVICE_PORT_"+strings.ToUpper(strings.ReplaceAll(port.Name, "-", "_"))] = number
			}
			prefix := name + "_PORT_" + number + "_" + strings.ToUpper(protocol)
			env[prefix], env[prefix+"_PROTO"], env[prefix+"_PORT"], env[prefix+"_ADDR"] = address, strings.ToLower(protocol), number, ip
		}
	}
	return env
}
