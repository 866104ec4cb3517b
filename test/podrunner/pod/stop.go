package pod

import (
	"fmt"
	"time"
)

// stop is a container on its way down.
type stop struct {
	by      time.Time
	hooking bool // its PreStop hook runs
	asked   bool // was sent its stop signal
	killed  bool
}

// leastGrace is what a container has left for its end when its PreStop hook used up all the time.
const leastGrace = 2 * time.Second

// stopContainer begins the end of a container that is up.
func (m *Machine) stopContainer(c *container, by time.Time) {
	if c.state == idle || c.state == exited {
		return
	}
	if c.stop == nil {
		c.stop = &stop{by: by}
		if l := c.spec.Lifecycle; c.state == running && l != nil && l.PreStop != nil && by.After(m.now) {
			c.stop.hooking = true
			m.do(Run{c.name(), PreStop, by})
		}
		for _, probe := range []Probe{Startup, Liveness} {
			if c.counts[probe] != nil || c.probe(probe) != nil && c.state == running {
				m.do(Leave{c.name(), probe})
			}
		}
	}
	m.continueStop(c)
}

// continueStop takes the next step of a container's end, if its time has come.
func (m *Machine) continueStop(c *container) {
	s := c.stop
	if c.state == starting {
		return // there is no process to signal yet
	}
	if s.hooking && m.now.Before(s.by) {
		m.wakeAt(s.by)
		return
	}
	if !s.asked {
		s.asked = true
		if s.hooking {
			s.by = m.now.Add(leastGrace)
		}
		s.hooking = false
		if m.now.Before(s.by) {
			m.do(Stop{Container: c.name()})
		}
	}
	if m.now.Before(s.by) {
		m.wakeAt(s.by)
		return
	}
	if !s.killed {
		s.killed = true
		m.do(Stop{c.name(), true})
	}
}

// continueStops continues the end of containers whose pod does not end.
func (m *Machine) continueStops() {
	for _, c := range m.containers {
		if c.changed && c.stop == nil {
			m.tell(c, false, "Killing", fmt.Sprintf("Container %s definition changed, will be restarted", c.spec.Name))
			m.stopContainer(c, m.now.Add(m.grace()))
		}
		if c.stop != nil {
			m.continueStop(c)
		}
	}
}

// endInOrder ends all containers: sidecars after the others, the last first, but none later than the time given.
func (m *Machine) endInOrder(by time.Time) {
	others := false // is something up that a sidecar has to wait for?
	end := func(c *container) {
		if !c.up() {
			return
		}
		if c.stop == nil {
			m.tell(c, false, "Killing", "Stopping container "+c.spec.Name)
		}
		m.stopContainer(c, by)
	}
	for _, c := range m.each(initial, regular, ephemeral) {
		end(c)
		others = others || c.up()
	}
	sidecars := m.each(sidecar)
	for i := len(sidecars) - 1; i >= 0; i-- {
		c := sidecars[i]
		if others && m.now.Before(by) && c.stop == nil {
			m.wakeAt(by)
			continue
		}
		if c.stop == nil && !m.now.Before(by) {
			by = m.now.Add(leastGrace)
		}
		end(c)
		others = others || c.up()
	}
}

// hooked takes the end of a hook.
func (m *Machine) hooked(c *container, event Hooked) {
	failed := func(reason string) {
		m.tell(c, true, reason, fmt.Sprintf("%sHook failed: %s", event.Hook, event.Err))
	}
	switch {
	case event.Hook == PreStop && c.stop != nil:
		if event.Err != "" {
			failed("FailedPreStopHook")
		}
		c.stop.hooking = false
	case event.Hook == PostStart && c.state == hooking && event.Err != "":
		failed("FailedPostStartHook")
		c.state = running
		if c.stop == nil {
			m.stopContainer(c, m.now.Add(m.grace()))
		}
	case event.Hook == PostStart && c.state == hooking:
		m.runs(c)
	}
}
