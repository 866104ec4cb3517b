package server

import (
	"sync/atomic"
	"time"

	"github.com/pilotmesh/pilot/internal/ads/gate"
)

const (
	// arrivalPatience is how long an arriving stream may keep its place, whatever it waits for.
	arrivalPatience = 30 * time.Second
	// arrivalSilence is how long a stream may keep its place while its client sends nothing, or less than arrivalBytes, and the server has nothing
	// to do for it. So silent streams hardly delay others.
	arrivalSilence = time.Second
	arrivalBytes   = 64 << 10
	// arrivalInterval is the time between two looks at an arriving stream.
	arrivalInterval = 50 * time.Millisecond
	// smallRequest is the largest size in bytes of a first request that names few versions, or none. Others of the stream will not be large, either.
	smallRequest = 16 << 10
)

// arrival is the part of a stream's life in which a client that connects again sends the versions of all that it has, until the server has compared
// them with the state of the client's class. The number of arrivals is bounded, because their requests fill memory.
type arrival struct {
	stream *Stream
	pass   *gate.Pass
	began  time.Time
	over   atomic.Bool
	// read is how many bytes of the connection the server had read when the client was last seen to send, and at is when that was.
	read int64
	at   time.Time
}

// arrive waits for a place among the arriving streams. It returns nil if the stream ended first.
func (s *Stream) arrive() *arrival {
	pass := s.server.arriving.Enter(s.grpc.Context(), s.client)
	if pass == nil {
		return nil
	}
	now := time.Now()
	a := &arrival{stream: s, pass: pass, began: now, read: s.conn.read.Load(), at: now}
	time.AfterFunc(arrivalInterval, a.look)
	return a
}

// end gives the place back. It may be called again.
func (a *arrival) end() {
	a.over.Store(true)
	a.stream.server.arriving.Leave(a.pass)
}

// received is called when the first request has been read. A small one ends the arrival. A large one that comes after the silent client lost its place
// waits for another place. It reports false if the stream ended first.
func (a *arrival) received(size int) bool {
	switch {
	case size <= smallRequest:
		a.end()
	case a.over.Load():
		return a.stream.arrive() != nil
	}
	return true
}

// look ends the arrival, or looks again later.
func (a *arrival) look() {
	s := a.stream
	now, read := time.Now(), s.conn.read.Load()
	if read-a.read >= arrivalBytes {
		a.read, a.at = read, now
	}
	working, arrived := s.progress()
	if a.over.Load() || s.ended.Load() || arrived || !working && now.Sub(a.at) > arrivalSilence || now.Sub(a.began) > arrivalPatience {
		a.end()
		return
	}
	time.AfterFunc(arrivalInterval, a.look)
}

// progress reports whether the server has yet to work on requests of the stream, and whether the client has sent all that it sends at first.
func (s *Stream) progress() (working, arrived bool) {
	if s.queued.Load() || len(s.requests) > 0 || !s.mu.TryLock() {
		return true, false
	}
	defer s.mu.Unlock()
	return s.core.Compares(), s.core.Arrived()
}
