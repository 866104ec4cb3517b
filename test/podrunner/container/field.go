package container

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Field is the value of a field of the pod, as the downward API gives it.
func Field(facts Facts, path string) (string, error) {
	pod := facts.Pod
	if base, rest, ok := strings.Cut(path, "['"); ok {
		key := strings.TrimSuffix(rest, "']")
		switch base {
		case "metadata.labels":
			return pod.Labels[key], nil
		case "metadata.annotations":
			return pod.Annotations[key], nil
		}
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return pairs(pod.Labels), nil
	case "metadata.annotations":
		return pairs(pod.Annotations), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return first(facts.HostIPs), nil
	case "status.hostIPs":
		return strings.Join(facts.HostIPs, ","), nil
	case "status.podIP":
		return first(facts.PodIPs), nil
	case "status.podIPs":
		return strings.Join(facts.PodIPs, ","), nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %v", path)
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

func pairs(m map[string]string) string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, key+"="+strconv.Quote(m[key]))
	}
	return strings.Join(lines, "\n")
}

// Resource is the value of a request or limit, in units of the divisor, rounded up. A container without a limit may have
// all that the node has.
func Resource(facts Facts, spec *v1.Container, ref *v1.ResourceFieldSelector) (string, error) {
	if ref.ContainerName != "" && (spec == nil || spec.Name != ref.ContainerName) {
		spec = nil
		for _, list := range [][]v1.Container{facts.Pod.Spec.InitContainers, facts.Pod.Spec.Containers} {
			for i := range list {
				if list[i].Name == ref.ContainerName {
					spec = &list[i]
				}
			}
		}
	}
	if spec == nil {
		return "", fmt.Errorf("container %q not found in pod", ref.ContainerName)
	}
	which, name, ok := strings.Cut(ref.Resource, ".")
	if !ok {
		return "", fmt.Errorf("unsupported container resource: %v", ref.Resource)
	}
	var quantity resource.Quantity
	switch which {
	case "requests":
		quantity = spec.Resources.Requests[v1.ResourceName(name)]
	case "limits":
		var has bool
		if quantity, has = spec.Resources.Limits[v1.ResourceName(name)]; !has {
			quantity = facts.Allocatable[v1.ResourceName(name)]
		}
	default:
		return "", fmt.Errorf("unsupported container resource: %v", ref.Resource)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if name == "cpu" {
		return strconv.FormatInt(up(quantity.MilliValue(), divisor.MilliValue()), 10), nil
	}
	return strconv.FormatInt(up(quantity.Value(), divisor.Value()), 10), nil
}

func up(value, divisor int64) int64 { return (value + divisor - 1) / divisor }
