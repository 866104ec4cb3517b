package pod

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type kind int

const (
	initial   kind = iota // runs to its end before the next one starts
	sidecar               // an initial container that keeps running
	regular               //
	ephemeral             // added to a running pod, for a look at it
)

type state int

const (
	idle     state = iota
	starting       // Start was asked for
	hooking        // runs, and its PostStart hook too
	running        //
	exited         //
)

// container is the state of one container.
type container struct {
	spec v1.Container
	kind kind

	state    state
	life     int // counts its starts, also failed ones
	restarts int32
	id       string
	image    string
	imageID  string
	startAt  time.Time
	end      *v1.ContainerStateTerminated // of this life
	last     *v1.ContainerStateTerminated // of the life before
	changed  bool                         // runs with a definition that is not its own any more

	started bool // has passed its startup probe
	passed  bool // was started once: what comes after it may start
	ready   bool
	counts  map[Probe]*count
	stop    *stop

	waiting string // why it is not started, in the kubelet's words
	message string
	falls   int // ends in a row, without a long life between
	tries   int // failed starts in a row
	delay   time.Duration
	retryAt time.Time
}

// count is how often in a row a probe said the same.
type count struct {
	good, bad int32
}

// up reports whether there is a process, or will be.
func (c *container) up() bool { return c.state == starting || c.state == hooking || c.state == running }

func (c *container) name() Container { return Container{c.spec.Name, c.life} }

// restore takes from the status what a new beginning must know: how often it ran, and how it ended.
func (c *container) restore(pod *v1.Pod, now time.Time) {
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses)
	i := slices.IndexFunc(statuses, func(s v1.ContainerStatus) bool { return s.Name == c.spec.Name })
	if i < 0 {
		return
	}
	status := statuses[i]
	c.restarts, c.last = status.RestartCount, status.LastTerminationState.Terminated
	c.id, c.imageID = status.ContainerID, status.ImageID
	c.life = int(status.RestartCount) // logs of earlier lives keep their names
	terminal := pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded
	switch {
	case status.State.Terminated != nil && (c.kind != initial || terminal):
		c.state, c.end = exited, status.State.Terminated
		c.life++
	case status.State.Running != nil || status.State.Terminated != nil:
		// The machine that ran it is not the one we know. Initial containers have their work to do again.
		c.state, c.end = exited, status.State.Terminated
		if c.end == nil {
			c.end = &v1.ContainerStateTerminated{
				ExitCode: 137, Reason: "ContainerStatusUnknown", Message: "The container could not be located when the node started again",
				ContainerID: status.ContainerID, StartedAt: status.State.Running.StartedAt, FinishedAt: metav1.NewTime(now),
			}
		}
		c.life++
		if c.kind == initial {
			c.last, c.end, c.state = c.end, nil, idle
		}
	}
}

// started takes the news that the program runs.
func (m *Machine) started(c *container, event Started) {
	if c.state != starting {
		return
	}
	if c.end != nil {
		c.last, c.end = c.end, nil
	}
	c.id, c.image, c.imageID, c.startAt = event.ID, event.Image, event.ImageID, m.now
	c.waiting, c.message, c.tries = "", "", 0
	c.counts = make(map[Probe]*count)
	m.tell(c, false, "Started", "Container started")
	if l := c.spec.Lifecycle; l != nil && l.PostStart != nil && m.stopBy.IsZero() {
		c.state = hooking
		// No time is too long for this hook; the pod's end ends it.
		m.do(Run{Container: c.name(), Hook: PostStart})
		return
	}
	m.runs(c)
}

// runs begins what a running container has: probes, and readiness when there is none.
func (m *Machine) runs(c *container) {
	c.state = running
	if c.spec.StartupProbe != nil {
		m.do(Ask{c.name(), Startup})
		return
	}
	m.passes(c)
}

// passes is what follows a startup probe that succeeded, or was not asked for.
func (m *Machine) passes(c *container) {
	c.started, c.passed = true, true
	c.ready = c.spec.ReadinessProbe == nil
	if c.spec.ReadinessProbe != nil {
		m.do(Ask{c.name(), Readiness})
	}
	if c.spec.LivenessProbe != nil && m.stopBy.IsZero() {
		m.do(Ask{c.name(), Liveness})
	}
}

func (m *Machine) startFailed(c *container, failure Failure) {
	if c.state != starting {
		return
	}
	if failure.Cause == NotRunnable {
		c.startAt, c.id = m.now, ""
		m.tell(c, true, "Failed", "Error: "+failure.Message)
		if c.end != nil {
			c.last = c.end
		}
		m.ends(c, &v1.ContainerStateTerminated{ExitCode: 128, Reason: "StartError", Message: failure.Message})
		return
	}
	c.state = idle
	if c.end != nil {
		c.state = exited // as it was
	}
	c.waiting, c.message = string(failure.Cause), failure.Message
	c.tries++
	m.delay(c, c.tries)
	if failure.Cause == NoImage {
		m.tell(c, true, "Failed", fmt.Sprintf("Failed to pull image %q: %s", c.spec.Image, failure.Message))
	}
	m.tell(c, true, "Failed", "Error: "+string(failure.Cause)+": "+failure.Message)
}

// delay sets the time of the next attempt after n failures; each one doubles the time.
func (m *Machine) delay(c *container, n int) {
	c.delay = 0
	if n > 0 {
		c.delay = m.policy.BackOff
	}
	for i := 1; i < n && c.delay < m.policy.MaxBackOff; i++ {
		c.delay *= 2
	}
	c.delay = min(c.delay, m.policy.MaxBackOff)
	c.retryAt = m.now.Add(c.delay)
}

func (m *Machine) exited(c *container, event Exited) {
	if !c.up() {
		return
	}
	reason := "Error"
	switch {
	case event.OOM:
		reason = "OOMKilled"
	case event.Code == 0:
		reason = "Completed"
	}
	m.ends(c, &v1.ContainerStateTerminated{ExitCode: int32(event.Code), Signal: int32(event.Signal), Reason: reason, Message: event.Message})
}

// ends closes a life of a container.
func (m *Machine) ends(c *container, end *v1.ContainerStateTerminated) {
	end.StartedAt, end.FinishedAt, end.ContainerID = metav1.NewTime(c.startAt), metav1.NewTime(m.now), c.id
	for _, probe := range []Probe{Startup, Liveness, Readiness} {
		if c.counts[probe] != nil || c.probe(probe) != nil {
			m.do(Leave{c.name(), probe})
		}
	}
	c.state, c.end, c.stop, c.ready, c.started = exited, end, nil, false, false
	c.waiting, c.message = "", ""
	c.life++
	// The first restart comes at once, each one after it later, until a life was long enough to forget.
	if m.now.Sub(c.startAt) >= m.policy.ResetBackOff {
		c.falls = 0
	}
	m.delay(c, c.falls)
	c.falls++
}

// restart reports whether a container that ended shall run again.
func (m *Machine) restart(c *container) bool {
	policy := m.pod.Spec.RestartPolicy
	if own := c.spec.RestartPolicy; own != nil && c.kind != sidecar {
		policy = v1.RestartPolicy(*own)
	}
	for _, rule := range c.spec.RestartPolicyRules {
		if rule.ExitCodes != nil && rule.Action == v1.ContainerRestartRuleActionRestart {
			has := slices.Contains(rule.ExitCodes.Values, c.end.ExitCode)
			if has == (rule.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn) {
				return true
			}
		}
	}
	switch {
	case c.kind == ephemeral:
		return false
	case c.kind == sidecar || c.changed:
		return true
	case c.end.ExitCode == 0 && c.kind == initial:
		return false
	case policy == v1.RestartPolicyAlways:
		return true
	case policy == v1.RestartPolicyOnFailure:
		return c.end.ExitCode != 0
	}
	return false
}

func (c *container) probe(probe Probe) *v1.Probe {
	switch probe {
	case Startup:
		return c.spec.StartupProbe
	case Liveness:
		return c.spec.LivenessProbe
	}
	return c.spec.ReadinessProbe
}

// probed counts a result, and draws the consequence when there were enough of its kind.
func (m *Machine) probed(c *container, event Probed) {
	spec := c.probe(event.Probe)
	if c.state != running || spec == nil {
		return
	}
	tally := c.counts[event.Probe]
	if tally == nil {
		tally = new(count)
		c.counts[event.Probe] = tally
	}
	if event.OK {
		tally.good, tally.bad = tally.good+1, 0
		if tally.good >= max(spec.SuccessThreshold, 1) {
			m.healthy(c, event.Probe)
		}
		return
	}
	tally.good, tally.bad = 0, tally.bad+1
	limit := max(spec.FailureThreshold, 1)
	if tally.bad == 1 || tally.bad == limit {
		// More of the same would only cost the API server.
		m.tell(c, true, "Unhealthy", string(event.Probe)+" probe failed: "+event.Output)
	}
	if tally.bad >= limit {
		m.unhealthy(c, event.Probe, spec)
	}
}

func (m *Machine) healthy(c *container, probe Probe) {
	switch {
	case probe == Startup && !c.started:
		m.do(Leave{c.name(), Startup})
		m.passes(c)
	case probe == Readiness:
		c.ready = true
	}
}

func (m *Machine) unhealthy(c *container, probe Probe, spec *v1.Probe) {
	if probe == Readiness {
		c.ready = false
		return
	}
	if c.stop != nil || !m.stopBy.IsZero() {
		return
	}
	what := "liveness"
	if probe == Startup {
		what = "startup"
	}
	m.tell(c, false, "Killing", fmt.Sprintf("Container %s failed %s probe, will be restarted", c.spec.Name, what))
	grace := m.grace()
	if spec.TerminationGracePeriodSeconds != nil {
		grace = time.Duration(*spec.TerminationGracePeriodSeconds) * time.Second
	}
	m.stopContainer(c, m.now.Add(grace))
}

func (m *Machine) grace() time.Duration {
	if seconds := m.pod.Spec.TerminationGracePeriodSeconds; seconds != nil {
		return time.Duration(*seconds) * time.Second
	}
	return 30 * time.Second
}
