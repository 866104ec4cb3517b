package object

import (
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pilotmesh/pilot/internal/api/kube"
	"github.com/pilotmesh/pilot/internal/engine/intern"
	"github.com/pilotmesh/pilot/internal/mesh"
)

// The labels and annotations that are read.
const (
	sliceControllerName   = "endpointslice-controller.k8s.io"
	podHashLabel          = "pod-template-hash"
	rolloutHashLabel      = "rollouts-pod-template-hash"
	deploymentConfigLabel = "openshift.io/deployment-config.name" // an annotation
)

// Converter makes values of objects. Its methods may be called from any goroutine.
type Converter struct {
	Texts *Texts
	// Written is true if no API server has completed the objects: a Service may have no address, and its endpoints are the pods that it
	// selects if there are no slices.
	Written bool
}

func isNotReady(c core.PodCondition) bool {
	return c.Type == core.PodReady && c.Status == core.ConditionFalse
}

// Slice returns the value of an EndpointSlice; nil if it has none.
func (c *Converter) Slice(s *discovery.EndpointSlice) *kube.Slice {
	service := s.Labels[discovery.LabelServiceName]
	if service == "" || s.AddressType == discovery.AddressTypeFQDN {
		return nil
	}
	v := &kube.Slice{
		Service:    c.Texts.Of(service),
		Controlled: s.Labels[discovery.LabelManagedBy] == sliceControllerName,
		Endpoints:  make([]kube.SliceEndpoint, 0, len(s.Endpoints)),
	}
	ports := make([]kube.SlicePort, 0, len(s.Ports))
	for _, p := range s.Ports {
		var out kube.SlicePort
		if p.Name != nil {
			out.Name = *p.Name
		}
		if p.Port != nil {
			out.Number = port(*p.Port)
		}
		ports = append(ports, out)
	}
	v.Ports = intern.Of(ports...)
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		for _, address := range e.Addresses { // the slice controller writes one; more are equally good
			if isAddress(address) {
				v.Endpoints = append(v.Endpoints, kube.SliceEndpoint{Address: address, Health: health(e.Conditions), Pod: podOf(e.TargetRef, s.Namespace), Hostname: hostnameOf(e)})
			}
		}
	}
	return v
}

// hostnameOf returns the host name of an endpoint; empty if it has none.
func hostnameOf(e *discovery.Endpoint) string {
	if e.Hostname == nil {
		return ""
	}
	return *e.Hostname
}

// podOf returns the name of the pod that an endpoint of a namespace refers to, as in kube.SliceEndpoint; empty if it refers to none.
func podOf(ref *core.ObjectReference, namespace string) string {
	switch {
	case ref == nil || ref.Kind != "Pod" || ref.Name == "":
		return ""
	case ref.Namespace != "" && ref.Namespace != namespace:
		return ref.Namespace + "/" + ref.Name
	}
	return ref.Name
}

// health returns the state of an endpoint. A condition that is not set counts as good.
func health(c discovery.EndpointConditions) kube.Health {
	unset := func(b *bool, otherwise bool) bool {
		if b == nil {
			return otherwise
		}
		return *b
	}
	switch {
	case unset(c.Ready, true):
		return kube.Ready
	case !unset(c.Terminating, false):
		return kube.NotReady
	case unset(c.Serving, true):
		return kube.Draining
	}
	return kube.Ending
}

// Pod returns the value of a Pod; nil if it has none.
func (c *Converter) Pod(p *core.Pod) *kube.Pod {
	if p.Status.Phase == core.PodSucceeded || p.Status.Phase == core.PodFailed {
		return nil
	}
	var more []string
	for _, a := range p.Status.PodIPs {
		if a.IP != p.Status.PodIP && a.IP != "" {
			more = append(more, a.IP)
		}
	}
	return &kube.Pod{
		Address:        p.Status.PodIP,
		MoreAddresses:  intern.Of(more...),
		Node:           c.Texts.Of(p.Spec.NodeName),
		ServiceAccount: c.Texts.Of(p.Spec.ServiceAccountName),
		Labels:         mesh.LabelsOf(p.Labels),
		Ports:          namedPorts(&p.Spec),
		HostNetwork:    p.Spec.HostNetwork,
		NotReady:       slices.ContainsFunc(p.Status.Conditions, isNotReady),
		Captures:       captures(p),
		Owner:          c.owner(&p.ObjectMeta),
	}
}

// captures reports whether a pod is the agent of a CNI plugin that is ready. A pod whose condition is not set yet is not, whatever NotReady says.
func captures(p *core.Pod) bool {
	return p.Labels[kube.AgentLabel] == kube.AgentValue && p.Spec.NodeName != "" && p.DeletionTimestamp == nil &&
		slices.ContainsFunc(p.Status.Conditions, func(c core.PodCondition) bool { return c.Type == core.PodReady && c.Status == core.ConditionTrue })
}

// namedPorts returns the ports with names of the containers that run as long as the pod: also of init containers that are always restarted. These come
// last, because Kubernetes takes the first port of a name.
func namedPorts(s *core.PodSpec) intern.List[kube.NamedPort] {
	var ports []kube.NamedPort
	add := func(c *core.Container) {
		for _, port := range c.Ports {
			if port.Name != "" && port.ContainerPort > 0 {
				ports = append(ports, kube.NamedPort{Name: port.Name, Number: uint32(port.ContainerPort), UDP: port.Protocol == core.ProtocolUDP})
			}
		}
	}
	for i := range s.Containers {
		add(&s.Containers[i])
	}
	for i := range s.InitContainers {
		if c := &s.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == core.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	return intern.Of(ports...)
}

// owner returns the workload that a pod belongs to. The owners of its owner are guessed by their names, so that ReplicaSets and
// Jobs need not be watched.
func (c *Converter) owner(m *metav1.ObjectMeta) kube.Workload {
	ref := metav1.GetControllerOfNoCopy(m)
	if ref == nil {
		return kube.Workload{Kind: kube.KindPod, Name: m.Name}
	}
	w := kube.Workload{Kind: ref.Kind, Name: ref.Name}
	switch ref.Kind {
	case "ReplicaSet":
		if name, ok := withoutHash(ref.Name, m.Labels[rolloutHashLabel]); ok {
			w = kube.Workload{Kind: "Rollout", Name: name}
		} else if name, ok := withoutHash(ref.Name, m.Labels[podHashLabel]); ok {
			w = kube.Workload{Kind: "Deployment", Name: name}
		}
	case "Job":
		if name, ok := cronJob(ref.Name); ok {
			w = kube.Workload{Kind: "CronJob", Name: name}
		}
	case "ReplicationController":
		if name := m.Annotations[deploymentConfigLabel]; name != "" {
			w = kube.Workload{Kind: "DeploymentConfig", Name: name}
		}
	}
	return kube.Workload{Kind: c.Texts.Of(w.Kind), Name: c.Texts.Of(strings.Clone(w.Name))}
}

// withoutHash returns the name without "-" and the hash at its end.
func withoutHash(name, hash string) (string, bool) {
	if hash == "" {
		return "", false
	}
	before, ok := strings.CutSuffix(name, "-"+hash)
	return before, ok && before != ""
}

// minTimeDigits is the number of digits of the time that the name of a CronJob's Job ends in. Time counts in minutes since 1970,
// which has had eight digits since 1989.
const minTimeDigits = 8

// cronJob returns the name of the CronJob that made a Job, if the name of the Job looks like that.
func cronJob(job string) (string, bool) {
	dash := strings.LastIndexByte(job, '-')
	if dash <= 0 || len(job)-dash-1 < minTimeDigits || strings.Trim(job[dash+1:], "0123456789") != "" {
		return "", false
	}
	return job[:dash], true
}

// Node returns the value of a Node.
func (c *Converter) Node(n *core.Node) *kube.Node {
	var addresses []string
	for _, a := range n.Status.Addresses {
		if a.Type == core.NodeExternalIP && a.Address != "" {
			addresses = append(addresses, a.Address)
		}
	}
	return &kube.Node{
		Locality:   mesh.NodeLocality(mesh.LabelsOf(n.Labels)),
		Addresses:  intern.Of(addresses...),
		Labels:     mesh.LabelsOf(n.Labels),
		Uncaptured: slices.ContainsFunc(n.Spec.Taints, func(t core.Taint) bool { return t.Key == kube.UncapturedTaint }),
	}
}

// Namespace returns the value of a Namespace.
func (c *Converter) Namespace(m *metav1.ObjectMeta) *kube.Namespace {
	return &kube.Namespace{
		Distribution: c.Texts.Of(m.Annotations[distributionAnnotation]), Network: c.Texts.Of(m.Labels[mesh.NetworkLabel]), Labels: mesh.LabelsOf(m.Labels),
	}
}
