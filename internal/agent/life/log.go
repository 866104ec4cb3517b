package life

import (
	"errors"
	"time"
)

// logTransition publishes and logs a change of state.
func (s *Supervisor) logTransition(before State, e Event) {
	now := s.machine.State()
	if now == before {
		return
	}
	s.state.Store(uint32(now))
	if e.Kind == Probed && e.Err == nil {
		s.envoy.Serves(s.machine.Serving())
	}
	log := s.log.With("state", now.String(), "was", before.String())
	switch now {
	case Idle:
	case Starting:
		log.Info("starting Envoy")
	case Ready:
		if before == Retiring {
			log.Info("the hot restart is complete: the old Envoy has ended")
			break
		}
		log.Info("Envoy is ready", "after", time.Since(s.began).Round(time.Millisecond).String())
		s.firstReady()
	case Replacing:
		s.firstReady() // with a configuration that came while Envoy started
		log.Info("hot restart: starting another Envoy, which takes over from the present one")
	case Retiring:
		log.Info("hot restart: the new Envoy is ready; the old one completes its requests", "after", time.Since(s.began).Round(time.Millisecond).String())
	case Holding:
		log.Error("hot restart: the new Envoy has failed; the old one still serves, and its admin interface is gone", "how", e.Err)
	case BackingOff:
		log.Error("Envoy has crashed and will be started again", "how", e.Err, "restart_in", s.machine.backoff().String())
	case Leaving:
		log.Info("asking clients to use other endpoints")
	case Checking:
		log.Info("asked to stop before Envoy was known to be ready; checking whether it is ready")
	case Draining:
		log.Info("draining; running requests may complete")
	case Exiting:
		log.Info("stopping Envoy")
	case Stopped:
		how := e.Err
		if e.Kind == Ended && e.Err == nil && before != Exiting && before != Draining {
			how = errStoppedByOthers
		}
		if how != nil {
			log = log.With("how", how)
		}
		log.Info("Envoy has ended")
	}
}

// firstReady closes the channel that Ready returns, once.
func (s *Supervisor) firstReady() {
	select {
	case <-s.ready:
	default:
		close(s.ready)
	}
}

// logProbe logs that Envoy is not ready if its start takes long, and that an Envoy that was ready does not answer any more.
func (s *Supervisor) logProbe(before State, err error) {
	switch now := s.machine.State(); {
	case now == Starting || now == Replacing:
		s.logSlowStart(err)
	case now != Ready || before != Ready:
		s.silent = false
	case err != nil && !s.silent:
		s.silent = true
		s.log.Error("Envoy was ready and is not any more", "because", err)
	case err == nil && s.silent:
		s.silent = false
		s.log.Info("Envoy is ready again")
	}
}

// logSlowStart logs what Envoy is waiting for if its start takes long, at growing intervals.
func (s *Supervisor) logSlowStart(why error) {
	now := time.Now()
	if now.Before(s.nextSlowLog) {
		return
	}
	waited := now.Sub(s.began)
	s.nextSlowLog = now.Add(waited)
	s.log.Warn("Envoy is still not ready", "after", waited.Round(time.Second).String(), "because", why)
}

// errStoppedByOthers is logged when Envoy exits with success and the agent has not asked it to.
var errStoppedByOthers = errors.New("another process than the agent asked Envoy to stop")
