package pod

import (
	"fmt"
	"slices"
	"time"
)

// reconcile compares the actual state with the desired state, and asks for the difference.
func (m *Machine) reconcile() {
	m.checkEnd()
	switch {
	case !m.stopBy.IsZero():
		m.goDown()
		return
	case m.sandbox == leaving || m.sandbox == gone:
		return // everything has run, and waits for the object to be deleted
	case m.completed():
		m.wrapUp()
		return
	}
	m.continueStops()
	if m.prepare() {
		m.startContainers()
	}
}

// checkEnd finds a reason to end the pod: its object is deleted, or its time is over.
func (m *Machine) checkEnd() {
	if limit := m.pod.Spec.ActiveDeadlineSeconds; limit != nil && m.failure == nil && m.sandbox != gone && m.stopBy.IsZero() {
		over := m.startTime.Add(time.Duration(*limit) * time.Second)
		if m.now.Before(over) {
			m.wakeAt(over)
		} else {
			m.failure = &failure{"DeadlineExceeded", "Pod was active on the node longer than the specified deadline"}
			m.tell(nil, false, "DeadlineExceeded", m.failure.message)
			m.stopBy = m.now.Add(m.grace())
		}
	}
	switch {
	case m.removed:
		// Deleted by force: the kubelet gives such a pod one second.
		m.stopSooner(m.now.Add(time.Second))
	case m.pod.DeletionTimestamp != nil:
		grace := m.grace()
		if seconds := m.pod.DeletionGracePeriodSeconds; seconds != nil {
			grace = time.Duration(*seconds) * time.Second
		}
		if m.stopBy.IsZero() || grace < m.given {
			m.stopSooner(m.now.Add(grace)) // another request may only shorten the time
		}
		m.given = grace
	}
}

func (m *Machine) stopSooner(by time.Time) {
	if !m.stopBy.IsZero() && !by.Before(m.stopBy) {
		return
	}
	m.stopBy = by
	for _, c := range m.containers {
		if c.stop != nil && by.Before(c.stop.by) {
			c.stop.by = by
		}
	}
}

// prepare gets volumes, then the sandbox, and reports whether both exist.
func (m *Machine) prepare() bool {
	if m.volumes == absent {
		m.volumes = asked
		m.do(MountVolumes{})
	}
	if m.volumes == there && m.sandbox == absent {
		if m.now.Before(m.sandboxAgain) {
			m.wakeAt(m.sandboxAgain)
			return false
		}
		m.sandbox = asked
		m.do(MakeSandbox{})
	}
	return m.sandbox == there
}

// startContainers starts the containers that may start, one after another, because each waits for the PostStart hook of the one before.
func (m *Machine) startContainers() {
	if !m.initialized && !m.initialize() {
		return
	}
	m.initialized = true
	for _, c := range m.each(sidecar, regular, ephemeral) {
		m.keepUp(c)
	}
}

// initialize brings the initial containers forward, and reports whether all have done their part.
func (m *Machine) initialize() bool {
	for _, c := range m.each(initial, sidecar) {
		if c.kind == sidecar {
			m.keepUp(c)
			if !c.passed {
				return false
			}
			continue
		}
		if c.state == exited && c.end.ExitCode == 0 {
			continue
		}
		m.keepUp(c)
		return false
	}
	return true
}

// keepUp starts a container that is not up and ought to be.
func (m *Machine) keepUp(c *container) {
	if c.up() || c.state == exited && !m.restart(c) {
		return
	}
	if m.now.Before(c.retryAt) {
		m.hold(c)
		return
	}
	for _, other := range m.containers {
		if other.state == starting || other.state == hooking {
			return // its turn comes
		}
	}
	if c.state == exited {
		c.restarts++
	}
	c.state, c.changed, c.stop = starting, false, nil
	m.do(Start{c.name()})
}

// hold shows a container as waiting for its next attempt.
func (m *Machine) hold(c *container) {
	m.wakeAt(c.retryAt)
	switch c.waiting {
	case string(NoImage):
		if shown := c.retryAt.Add(imageErrorShown - c.delay); m.now.Before(shown) {
			m.wakeAt(shown)
			return
		}
		c.waiting, c.message = "ImagePullBackOff", fmt.Sprintf("Back-off pulling image %q: %s", c.spec.Image, c.message)
		m.tell(c, false, "BackOff", c.message)
	case "":
		c.waiting = "CrashLoopBackOff"
		c.message = fmt.Sprintf("back-off %v restarting failed container=%s pod=%s_%s(%s)", c.delay, c.spec.Name, m.pod.Name, m.pod.Namespace, m.pod.UID)
		m.tell(c, true, "BackOff", "Back-off restarting failed container "+c.spec.Name)
	}
}

// imageErrorShown is how long a missing image is an error before it is a wait.
const imageErrorShown = time.Second

// completed reports whether the pod has done its work, or cannot any more.
func (m *Machine) completed() bool {
	for _, c := range m.each(initial) {
		if !m.initialized && c.state == exited && c.end.ExitCode != 0 && !m.restart(c) {
			return true
		}
	}
	for _, c := range m.each(regular) {
		if c.state != exited || m.restart(c) {
			return false
		}
	}
	return true
}

// wrapUp ends the sidecars of a pod that has completed, then the sandbox.
func (m *Machine) wrapUp() {
	if !slices.ContainsFunc(m.each(regular), func(c *container) bool { return c.state != exited }) {
		m.initialized = true // or was, in an earlier life of the node
	}
	m.endInOrder(m.now.Add(m.grace()))
	m.dropWhenEmpty()
}

// goDown ends the pod.
func (m *Machine) goDown() {
	m.endInOrder(m.stopBy)
	if m.dropWhenEmpty() && (m.pod.DeletionTimestamp != nil || m.removed) {
		m.finished = true
		m.do(Finish{Forget: m.removed})
	}
}

// dropWhenEmpty removes the sandbox when no container is left, and reports whether it is gone.
func (m *Machine) dropWhenEmpty() bool {
	for _, c := range m.containers {
		if c.up() {
			return false
		}
	}
	switch m.sandbox {
	case gone:
		return true
	case there, absent:
		m.sandbox = leaving
		m.do(DropSandbox{})
	}
	return false
}
