package inject

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pilotmesh/pilot/internal/inject/probe"
	"github.com/pilotmesh/pilot/internal/inject/scrape"
)

// status is the content of the annotation of an injected pod: the names of all additions.
type status struct {
	InitContainers   []string `json:"initContainers"`
	Containers       []string `json:"containers"`
	Volumes          []string `json:"volumes"`
	ImagePullSecrets []string `json:"imagePullSecrets"`
	Revision         string   `json:"revision"`
}

// own are the containers with names of ours that the user has written.
type own struct {
	Containers     []corev1.Container `json:"containers,omitempty"`
	InitContainers []corev1.Container `json:"initContainers,omitempty"`
	// First says that these containers, which have ports, stood before all others of the pod.
	First bool `json:"first,omitempty"`
}

// find returns a container by its name, wherever it stands; nil if there is none.
func (o own) find(name string) *corev1.Container {
	for _, list := range [][]corev1.Container{o.Containers, o.InitContainers} {
		if n := slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == name }); n >= 0 {
			return &list[n]
		}
	}
	return nil
}

// ours reports whether a container has a name that injection gives.
func ours(name string) bool {
	return slices.Contains([]string{proxyName, captureName, validationName, grpcInitName}, name)
}

// strip returns a copy of the pod as it was before an injection: without the containers, volumes and secrets that were added, and with
// its own probes and Prometheus annotations. Containers with names of ours that the user wrote are taken out of the copy; they are the second
// result. Of an injected pod these are the ones that the annotation remembers.
func strip(injected *corev1.Pod) (*corev1.Pod, own, error) {
	pod := injected.DeepCopy()
	var user own
	text, remembered := pod.Annotations[overridesAnnotation]
	if remembered {
		if err := json.Unmarshal([]byte(text), &user); err != nil {
			return nil, own{}, refuse(overridesAnnotation, "it is not the JSON that an injection writes (%v); remove the annotation", err)
		}
	}
	former, again := pod.Annotations[statusAnnotation]
	if again {
		restore(pod)
		var s status
		if json.Unmarshal([]byte(former), &s) == nil { // otherwise only our containers are recognised, by their names
			pod.Spec.Volumes = slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return slices.Contains(s.Volumes, v.Name) })
			pod.Spec.ImagePullSecrets = slices.DeleteFunc(pod.Spec.ImagePullSecrets, func(r corev1.LocalObjectReference) bool {
				return slices.Contains(s.ImagePullSecrets, r.Name)
			})
		}
		delete(pod.Annotations, statusAnnotation)
	}
	take := func(from []corev1.Container, to *[]corev1.Container) []corev1.Container {
		for _, c := range from {
			if ours(c.Name) && !again && user.find(c.Name) == nil {
				*to = append(*to, c)
			}
		}
		return slices.DeleteFunc(from, func(c corev1.Container) bool { return ours(c.Name) })
	}
	if list := pod.Spec.Containers; !again && len(list) > 1 && ours(list[0].Name) && len(list[0].Ports) > 0 {
		user.First = true
	}
	pod.Spec.Containers = take(pod.Spec.Containers, &user.Containers)
	pod.Spec.InitContainers = take(pod.Spec.InitContainers, &user.InitContainers)
	return pod, user, nil
}

// restore gives the containers their own probes, and the pod its own Prometheus annotations, from the variables of the former proxy.
func restore(pod *corev1.Pod) {
	former := containerIn(&pod.Spec, proxyName)
	if former == nil {
		former = &corev1.Container{} // a template without a proxy
	}
	probe.Restore(pod, proxyName, valueOf(former, probe.Variable))
	if pod.Annotations[scrape.PathName] != mergedPath {
		return
	}
	scrape.Clear(pod.Annotations)
	var s scrape.Settings
	if json.Unmarshal([]byte(valueOf(former, scrapeVariable)), &s) == nil {
		for name, value := range map[string]string{scrape.Name: s.Scrape, scrape.PathName: s.Path, scrape.PortName: s.Port} {
			if value != "" {
				pod.Annotations[name] = value
			}
		}
	}
}

// containerIn returns a container of a pod, nil if there is none with this name.
func containerIn(spec *corev1.PodSpec, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		if n := slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == name }); n >= 0 {
			return &list[n]
		}
	}
	return nil
}

// valueOf returns the text of a variable of a container.
func valueOf(c *corev1.Container, variable string) string {
	for _, e := range c.Env {
		if e.Name == variable {
			return strings.TrimSpace(e.Value)
		}
	}
	return ""
}
