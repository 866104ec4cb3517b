// Package owner finds the workload that a pod belongs to, from the pod alone, and the pod in a workload. It is pure: it has no goroutines and no state.
package owner

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Workload is the workload that a pod belongs to.
type Workload struct {
	APIVersion, Kind, Namespace, Name string
}

// ID returns the identifier of the workload in the metadata of a proxy.
func (o Workload) ID() string {
	if o.Name == "" || o.APIVersion == "" {
		return ""
	}
	namespace := o.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return "kubernetes://apis/" + o.APIVersion + "/namespaces/" + namespace + "/" + strings.ToLower(o.Kind) + "s/" + o.Name
}

// runOfCronJob is the form of the names of Jobs that a CronJob has started.
var runOfCronJob = regexp.MustCompile(`^(.+)-\d{8,10}$`)

// Of returns the workload of a pod. Controllers stand between a workload and its pods; the names and labels that they give to
// their pods lead to the workload, without a look into the cluster.
func Of(pod *corev1.Pod) Workload {
	o := Workload{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}
	controller := metav1.GetControllerOf(pod)
	if pod.GenerateName == "" || controller == nil {
		return o
	}
	o.APIVersion, o.Kind, o.Name = controller.APIVersion, controller.Kind, controller.Name
	stem := func(label string) (string, bool) {
		hash := pod.Labels[label]
		return strings.CutSuffix(o.Name, "-"+hash)
	}
	switch o.Kind {
	case "ReplicaSet":
		if name, ok := stem("rollouts-pod-template-hash"); ok && pod.Labels["rollouts-pod-template-hash"] != "" {
			o.APIVersion, o.Kind, o.Name = "v1alpha1", "Rollout", name
		} else if name, ok := stem("pod-template-hash"); ok && pod.Labels["pod-template-hash"] != "" {
			o.Kind, o.Name = "Deployment", name
		}
	case "ReplicationController":
		if name := pod.Labels["deploymentconfig"]; name != "" {
			o.Kind, o.Name = "DeploymentConfig", name
		}
	case "Job":
		if m := runOfCronJob.FindStringSubmatch(o.Name); m != nil {
			o.Kind, o.Name = "CronJob", m[1]
		}
	}
	return o
}

// TemplatePath returns where a kind of workload has the pods that it makes; nil for kinds that make none. Its elements are names of fields.
func TemplatePath(version, kind string) []string {
	switch version + " " + kind {
	case "v1 Pod":
		return []string{}
	case "v1 ReplicationController", "apps/v1 Deployment", "apps/v1 StatefulSet", "apps/v1 DaemonSet", "apps/v1 ReplicaSet", "batch/v1 Job",
		"apps.openshift.io/v1 DeploymentConfig":
		return []string{"spec", "template"}
	case "batch/v1 CronJob":
		return []string{"spec", "jobTemplate", "spec", "template"}
	}
	return nil
}
