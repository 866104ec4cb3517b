package pod

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Owned reports whether a condition is one that a kubelet writes; others write the rest.
func Owned(kind v1.PodConditionType) bool {
	switch kind {
	case v1.PodReadyToStartContainers, v1.PodInitialized, v1.ContainersReady, v1.PodReady:
		return true
	}
	return false
}

// mergeConditions takes over conditions that others write: readiness gates ask for them.
func (m *Machine) mergeConditions(theirs []v1.PodCondition) {
	m.conditions = slices.DeleteFunc(m.conditions, func(c v1.PodCondition) bool { return !Owned(c.Type) })
	for _, condition := range theirs {
		if !Owned(condition.Type) {
			m.conditions = append(m.conditions, condition)
		}
	}
}

// judge brings the kubelet's own conditions up to date with a status.
func (m *Machine) judge(status *v1.PodStatus) {
	ended := status.Phase == v1.PodSucceeded || status.Phase == v1.PodFailed
	m.set(v1.PodReadyToStartContainers, m.sandbox == there, "", "")
	switch lacking := m.uninitialized(); {
	case len(lacking) == 0 && status.Phase == v1.PodSucceeded:
		m.set(v1.PodInitialized, true, "PodCompleted", "")
	case len(lacking) == 0:
		m.set(v1.PodInitialized, true, "", "")
	default:
		m.set(v1.PodInitialized, false, "ContainersNotInitialized", "containers with incomplete status: ["+strings.Join(lacking, " ")+"]")
	}
	var unready []string
	for _, c := range append(slices.Clone(status.InitContainerStatuses), status.ContainerStatuses...) {
		if !c.Ready && !m.is(c.Name, initial) {
			unready = append(unready, c.Name)
		}
	}
	reason, message := "", ""
	switch {
	case status.Phase == v1.PodSucceeded:
		reason = "PodCompleted"
	case status.Phase == v1.PodFailed:
		reason = "PodFailed"
	case len(unready) > 0:
		reason, message = "ContainersNotReady", "containers with unready status: ["+strings.Join(unready, " ")+"]"
	}
	m.set(v1.ContainersReady, !ended && len(unready) == 0, reason, message)
	if reason == "" {
		if message = m.gates(); message != "" {
			reason = "ReadinessGatesNotReady"
		}
	}
	m.set(v1.PodReady, reason == "", reason, message)
}

func (m *Machine) is(name string, kind kind) bool {
	return slices.ContainsFunc(m.containers, func(c *container) bool { return c.spec.Name == name && c.kind == kind })
}

// uninitialized are the initial containers that have not done their part.
func (m *Machine) uninitialized() []string {
	if m.initialized {
		return nil
	}
	var lacking []string
	for _, c := range m.each(initial, sidecar) {
		done := c.state == exited && c.end.ExitCode == 0
		if c.kind == sidecar && !c.passed || c.kind == initial && !done {
			lacking = append(lacking, c.spec.Name)
		}
	}
	return lacking
}

// gates says which readiness gates are shut.
func (m *Machine) gates() string {
	var shut []string
	for _, gate := range m.pod.Spec.ReadinessGates {
		i := slices.IndexFunc(m.conditions, func(c v1.PodCondition) bool { return c.Type == gate.ConditionType })
		switch {
		case i < 0:
			shut = append(shut, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case m.conditions[i].Status != v1.ConditionTrue:
			shut = append(shut, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType, m.conditions[i].Status))
		}
	}
	return strings.Join(shut, ", ")
}

// set writes a condition; its time of transition moves only with its status.
func (m *Machine) set(kind v1.PodConditionType, on bool, reason, message string) {
	value := v1.ConditionFalse
	if on {
		value = v1.ConditionTrue
	}
	condition := v1.PodCondition{
		Type: kind, Status: value, Reason: reason, Message: message,
		ObservedGeneration: m.pod.Generation, LastTransitionTime: metav1.NewTime(m.now),
	}
	i := slices.IndexFunc(m.conditions, func(c v1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		m.conditions = append(m.conditions, condition)
		return
	}
	if m.conditions[i].Status == value {
		condition.LastTransitionTime = m.conditions[i].LastTransitionTime
	}
	m.conditions[i] = condition
}
