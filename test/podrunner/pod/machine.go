// Package pod is the life of a pod as a kubelet leads it, without any of the work: a Machine takes events and returns actions and the status to
// report. It owns order (volumes, sandbox, initial containers, sidecars, the others), restarts and back-off, hooks, what probes mean, and the way
// down.
//
// A Machine is a value of one pod: no clock but the times it is given, no goroutine, nothing outside. After each event it compares the actual state
// with the desired state, so no order of events can lose anything; and everything it asks for is asked once. It must not import what does the work.
package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Policy is what a cluster's administrator may tune.
type Policy struct {
	// BackOff before the second restart of a container; it doubles with each one more, up to MaxBackOff, and starts over after a container ran for
	// ResetBackOff.
	BackOff, MaxBackOff, ResetBackOff time.Duration
}

// DefaultPolicy is the kubelet's.
func DefaultPolicy() Policy {
	return Policy{BackOff: 10 * time.Second, MaxBackOff: 5 * time.Minute, ResetBackOff: 10 * time.Minute}
}

type progress int

const (
	absent progress = iota
	asked
	there
	leaving
	gone
)

// Machine is the life of one pod.
type Machine struct {
	policy     Policy
	pod        *v1.Pod
	containers []*container // in the order in which they start; ephemeral ones last
	conditions []v1.PodCondition
	startTime  time.Time

	volumes      progress
	sandbox      progress
	sandboxAgain time.Time
	ips          []string
	initialized  bool
	settled      v1.PodPhase // of a pod that had ended before we knew it
	removed      bool
	finished     bool
	failure      *failure
	stopBy       time.Time     // when everything must have ended; zero while nothing has to
	given        time.Duration // the grace that the last request to delete gave

	// of the present step
	now     time.Time
	actions []Action
	wake    time.Time
	woken   time.Time // the last time asked for
}

// failure is a reason to end the pod that is not its containers'.
type failure struct{ reason, message string }

// New begins the life of a pod, or begins it again on a machine that lost everything that its status describes.
func New(pod *v1.Pod, policy Policy, now time.Time) *Machine {
	m := &Machine{policy: policy, pod: pod, now: now, startTime: now}
	if t := pod.Status.StartTime; t != nil {
		m.startTime = t.Time
	}
	m.conditions = append(m.conditions, pod.Status.Conditions...)
	m.adopt()
	if phase := pod.Status.Phase; phase == v1.PodFailed || phase == v1.PodSucceeded {
		m.sandbox, m.initialized, m.settled = gone, true, phase
		if pod.Status.Reason != "" {
			m.failure = &failure{pod.Status.Reason, pod.Status.Message}
		}
	}
	for _, c := range m.containers {
		c.restore(pod, now)
	}
	return m
}

// Begin returns the first actions.
func (m *Machine) Begin(now time.Time) []Action { return m.Step(Retry{}, now) }

// Step takes an event and returns the actions that follow.
func (m *Machine) Step(event Event, now time.Time) []Action {
	if m.finished {
		return nil
	}
	m.now, m.actions, m.wake = now, nil, time.Time{}
	m.apply(event)
	m.reconcile()
	if !m.wake.IsZero() && !m.wake.Equal(m.woken) {
		m.do(Wake{m.wake})
	}
	m.woken = m.wake
	return m.actions
}

func (m *Machine) do(action Action) { m.actions = append(m.actions, action) }

func (m *Machine) tell(c *container, warning bool, reason, message string) {
	name := ""
	if c != nil {
		name = c.spec.Name
	}
	m.do(Record{name, warning, reason, message})
}

// wakeAt asks for a Due no later than at.
func (m *Machine) wakeAt(at time.Time) {
	if m.wake.IsZero() || at.Before(m.wake) {
		m.wake = at
	}
}

func (m *Machine) apply(event Event) {
	switch event := event.(type) {
	case Changed:
		m.pod = event.Pod
		m.mergeConditions(event.Pod.Status.Conditions)
		m.adopt()
	case Removed:
		m.removed = true
	case VolumesReady:
		m.volumes = there
	case SandboxUp:
		m.sandbox, m.ips = there, event.IPs
	case SandboxFailed:
		m.sandbox, m.sandboxAgain = absent, m.now.Add(5*time.Second)
		m.tell(nil, true, "FailedCreatePodSandBox", "Failed to create pod sandbox: "+event.Message)
	case SandboxDown:
		m.sandbox, m.volumes = gone, absent
	case Started:
		m.with(event.Container, func(c *container) { m.started(c, event) })
	case StartFailed:
		m.with(event.Container, func(c *container) { m.startFailed(c, event.Failure) })
	case Exited:
		m.with(event.Container, func(c *container) { m.exited(c, event) })
	case Hooked:
		m.with(event.Container, func(c *container) { m.hooked(c, event) })
	case Probed:
		m.with(event.Container, func(c *container) { m.probed(c, event) })
	case Retry:
		for _, c := range m.containers {
			if c.state == idle && c.waiting == string(BadConfig) {
				c.retryAt = time.Time{}
			}
		}
	}
}

// with calls f with the container, if it is in that life still.
func (m *Machine) with(named Container, f func(*container)) {
	for _, c := range m.containers {
		if c.spec.Name == named.Name && c.life == named.Life {
			f(c)
		}
	}
}

// adopt takes the containers of the object: all of them at first, later on new ephemeral ones and new images.
func (m *Machine) adopt() {
	known := make(map[string]*container, len(m.containers))
	for _, c := range m.containers {
		known[c.spec.Name] = c
	}
	take := func(spec v1.Container, kind kind) {
		c := known[spec.Name]
		if c == nil {
			m.containers = append(m.containers, &container{spec: spec, kind: kind})
			return
		}
		c.changed = c.changed || c.spec.Image != spec.Image && c.up()
		c.spec = spec
	}
	for _, spec := range m.pod.Spec.InitContainers {
		kind := initial
		if p := spec.RestartPolicy; p != nil && *p == v1.ContainerRestartPolicyAlways {
			kind = sidecar
		}
		take(spec, kind)
	}
	for _, spec := range m.pod.Spec.Containers {
		take(spec, regular)
	}
	for _, spec := range m.pod.Spec.EphemeralContainers {
		take(v1.Container(spec.EphemeralContainerCommon), ephemeral)
	}
}

// each yields the containers of the kinds.
func (m *Machine) each(kinds ...kind) []*container {
	var some []*container
	for _, c := range m.containers {
		for _, kind := range kinds {
			if c.kind == kind {
				some = append(some, c)
			}
		}
	}
	return some
}
