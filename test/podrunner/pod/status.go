package pod

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Status is the status to report. The node's addresses are not known here, nor the fields that others own in a status.
func (m *Machine) Status() v1.PodStatus {
	start := metav1.NewTime(m.startTime)
	status := v1.PodStatus{
		ObservedGeneration:         m.pod.Generation,
		Phase:                      m.phase(),
		StartTime:                  &start,
		InitContainerStatuses:      m.statuses(initial, sidecar),
		ContainerStatuses:          m.statuses(regular),
		EphemeralContainerStatuses: m.statuses(ephemeral),
	}
	for _, ip := range m.ips {
		status.PodIPs = append(status.PodIPs, v1.PodIP{IP: ip})
		status.PodIP = m.ips[0]
	}
	if m.failure != nil {
		status.Reason, status.Message = m.failure.reason, m.failure.message
	}
	m.judge(&status)
	status.Conditions = slices.Clone(m.conditions)
	return status
}

func (m *Machine) statuses(kinds ...kind) []v1.ContainerStatus {
	var statuses []v1.ContainerStatus
	for _, c := range m.each(kinds...) {
		statuses = append(statuses, m.status(c))
	}
	return statuses
}

func (m *Machine) status(c *container) v1.ContainerStatus {
	runs := c.state == running || c.state == hooking
	started := runs && c.started
	status := v1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, ImageID: c.imageID, ContainerID: c.id,
		RestartCount: c.restarts, Started: &started,
		Ready: c.ready && c.state == running,
	}
	if c.image != "" {
		status.Image = c.image
	}
	if c.kind == initial {
		status.Ready = c.state == exited && c.end.ExitCode == 0
	}
	if c.last != nil {
		status.LastTerminationState.Terminated = c.last
	}
	switch {
	case runs:
		status.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(c.startAt)}
		status.AllocatedResources = c.spec.Resources.Requests
		status.Resources = c.spec.Resources.DeepCopy()
	case c.waiting != "":
		status.State.Waiting = &v1.ContainerStateWaiting{Reason: c.waiting, Message: c.message}
		if c.end != nil {
			status.LastTerminationState.Terminated = c.end
		}
	case c.end != nil:
		status.State.Terminated = c.end
	default:
		reason := "ContainerCreating"
		if len(m.pod.Spec.InitContainers) > 0 && !m.initialized {
			reason = "PodInitializing"
		}
		status.State.Waiting = &v1.ContainerStateWaiting{Reason: reason}
	}
	return status
}

// phase sums the containers up, in the order in which the kubelet asks its questions.
func (m *Machine) phase() v1.PodPhase {
	if m.settled != "" {
		return m.settled
	}
	down := !slices.ContainsFunc(m.containers, (*container).up)
	if m.failure != nil && down {
		return v1.PodFailed
	}
	for _, c := range m.each(initial) {
		if !m.initialized && c.state == exited && c.end.ExitCode != 0 && !m.restart(c) && down {
			return v1.PodFailed
		}
	}
	count := m.count()
	// A pod that is to go will not start anything again: the ended containers are its result.
	leaves := m.pod.DeletionTimestamp != nil && down
	switch {
	case leaves && count.good == len(m.each(regular)):
		return v1.PodSucceeded
	case leaves:
		return v1.PodFailed
	case len(m.uninitialized()) > 0 || count.waiting > 0:
		return v1.PodPending
	case count.up > 0 || count.sidecars > 0 || count.again > 0:
		return v1.PodRunning
	case count.good == count.ended:
		return v1.PodSucceeded
	}
	return v1.PodFailed
}

// counts are how many regular containers there are of each sort, and how many sidecars are up.
type counts struct {
	waiting, up, ended, good, again, sidecars int
}

func (m *Machine) count() counts {
	var n counts
	for _, c := range m.each(regular) {
		switch {
		case c.state == running || c.state == hooking:
			n.up++
		case c.end != nil:
			n.ended++
			if c.end.ExitCode == 0 {
				n.good++
			}
			if c.state == starting || m.restart(c) {
				n.again++
			}
		default:
			n.waiting++
		}
	}
	for _, c := range m.each(sidecar) {
		if c.up() {
			n.sidecars++
		}
	}
	return n
}
