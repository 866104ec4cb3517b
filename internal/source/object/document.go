package object

import (
	"cmp"
	"encoding/json"
	"fmt"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pilotmesh/pilot/internal/api"
	"github.com/pilotmesh/pilot/internal/api/kube"
)

// Item is a value with the key of its object.
type Item struct {
	Key   api.Key
	Value kube.Value
}

// header is what all objects of Kubernetes have.
type header struct {
	APIVersion        string `json:"apiVersion"`
	Kind              string `json:"kind"`
	metav1.ObjectMeta `json:"metadata"`
}

// Read returns the values of a document of a kind that is not one of Istio's. read is false if no value is made of its kind. cluster is the ID
// of the cluster that the objects count for. The converter should have Written set.
func (c *Converter) Read(doc *api.Document, cluster string) (items []Item, read bool, problem *api.Problem) {
	var h header
	err := json.Unmarshal(doc.Other, &h)
	if err == nil {
		if h.Name == "" && reads(h) {
			err = fmt.Errorf("it has no metadata.name; set one")
		} else {
			items, read, err = c.read(h, doc.Other)
		}
	}
	if err != nil {
		key := doc.Key
		if key.Kind != kube.KindNamespace && key.Kind != kube.KindNode {
			key.Namespace = cmp.Or(key.Namespace, api.DefaultNamespace)
		}
		return nil, true, &api.Problem{Object: key, Position: doc.Position, Severity: api.Error, Code: "field-invalid", Reason: fmt.Sprintf(
			"the object cannot be read: %v; correct it as the API of Kubernetes describes", err)}
	}
	for i := range items {
		items[i].Key.Cluster = cluster
	}
	return items, read, nil
}

// reads reports whether values are made of the objects of a kind.
func reads(h header) bool {
	switch h.APIVersion + " " + h.Kind {
	case "v1 Service", "v1 Pod", "v1 Endpoints", "v1 Namespace", "v1 Node", "v1 ServiceAccount", "discovery.k8s.io/v1 EndpointSlice":
		return true
	}
	return isWorkload(h)
}

// read returns the values of an object without their cluster.
func (c *Converter) read(h header, data []byte) (items []Item, read bool, err error) {
	switch {
	case !reads(h):
		return nil, false, nil
	case isWorkload(h):
		items, err = c.workload(h, data)
		return items, true, err
	case h.Kind == "Endpoints":
		items, err = c.endpoints(h, data)
		return items, true, err
	}
	k := api.Key{Kind: h.Kind, Namespace: cmp.Or(h.Namespace, api.DefaultNamespace), Name: h.Name}
	var v kube.Value
	switch h.Kind {
	case kube.KindService:
		v, err = valueOf(data, c.Service)
	case kube.KindPod:
		v, err = valueOf(data, func(p *core.Pod) *kube.Pod {
			p.Spec.ServiceAccountName = cmp.Or(p.Spec.ServiceAccountName, "default")
			return c.Pod(p)
		})
	case kube.KindEndpointSlice:
		v, err = valueOf(data, func(s *discovery.EndpointSlice) *kube.Slice {
			s.Namespace = k.Namespace
			return c.Slice(s)
		})
	case kube.KindNamespace:
		k.Namespace = ""
		v = c.Namespace(&h.ObjectMeta)
	case "ServiceAccount": // nothing depends on more than its name, which is that in pods
		return nil, true, nil
	case kube.KindNode:
		k.Namespace = ""
		v, err = valueOf(data, c.Node)
	}
	if v == nil || err != nil {
		return nil, true, err
	}
	return []Item{{k, v}}, true, nil
}

// valueOf reads an object and returns its value; nil if it has none.
func valueOf[O any, V interface {
	comparable
	kube.Value
}](data []byte, convert func(*O) V) (kube.Value, error) {
	o := new(O)
	if err := json.Unmarshal(data, o); err != nil {
		return nil, err
	}
	var none V
	if v := convert(o); v != none {
		return v, nil
	}
	return nil, nil
}

// endpoints returns an Endpoints object as a slice for each of its subsets.
func (c *Converter) endpoints(h header, data []byte) (items []Item, err error) {
	var o core.Endpoints //nolint:staticcheck // files may have them
	if err := json.Unmarshal(data, &o); err != nil {
		return nil, err
	}
	for i, subset := range o.Subsets {
		s := &discovery.EndpointSlice{AddressType: discovery.AddressTypeIPv4}
		s.Namespace, s.Labels = cmp.Or(h.Namespace, api.DefaultNamespace), map[string]string{discovery.LabelServiceName: h.Name}
		for _, p := range subset.Ports {
			s.Ports = append(s.Ports, discovery.EndpointPort{Name: &p.Name, Port: &p.Port})
		}
		for ready, list := range map[bool][]core.EndpointAddress{true: subset.Addresses, false: subset.NotReadyAddresses} {
			for _, a := range list {
				s.Endpoints = append(s.Endpoints, discovery.Endpoint{
					Addresses: []string{a.IP}, TargetRef: a.TargetRef, Conditions: discovery.EndpointConditions{Ready: &ready},
				})
			}
		}
		items = append(items, Item{api.Key{Kind: kube.KindEndpointSlice, Namespace: s.Namespace, Name: fmt.Sprintf("endpoints/%s/%d", h.Name, i)}, c.Slice(s)})
	}
	return items, nil
}

// isWorkload reports whether objects of a kind have a template for pods.
func isWorkload(h header) bool {
	switch h.APIVersion + " " + h.Kind {
	case "apps/v1 Deployment", "apps/v1 StatefulSet", "apps/v1 DaemonSet", "apps/v1 ReplicaSet", "batch/v1 Job", "batch/v1 CronJob",
		"v1 ReplicationController", "argoproj.io/v1alpha1 Rollout", "apps.openshift.io/v1 DeploymentConfig":
		return true
	}
	return false
}

// templated is the part of a workload that has the template of its pods.
type templated struct {
	Spec struct {
		Template    core.PodTemplateSpec `json:"template"`
		JobTemplate struct {
			Spec struct {
				Template core.PodTemplateSpec `json:"template"`
			} `json:"spec"`
		} `json:"jobTemplate"`
	} `json:"spec"`
}

// workload returns a workload as a pod without an address. No pod has such a name.
func (c *Converter) workload(h header, data []byte) ([]Item, error) {
	var o templated
	if err := json.Unmarshal(data, &o); err != nil {
		return nil, err
	}
	t := o.Spec.Template
	if h.Kind == "CronJob" {
		t = o.Spec.JobTemplate.Spec.Template
	}
	p := &core.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
	p.Spec.ServiceAccountName = cmp.Or(p.Spec.ServiceAccountName, "default")
	v := c.Pod(p)
	v.Owner = kube.Workload{Kind: h.Kind, Name: h.Name}
	return []Item{{api.Key{Kind: kube.KindPod, Namespace: cmp.Or(h.Namespace, api.DefaultNamespace), Name: h.Kind + "/" + h.Name}, v}}, nil
}
