package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pilotmesh/pilot/internal/xds/resource"
)

// stream is one client: it subscribes, and counts and acknowledges the resources it receives. Only its goroutine writes to it.
type stream struct {
	fleet  *fleet
	script *script
	id     int
	rpc    grpc.ClientStream
	asked  int // how many types of order it has asked for
	hosts  int // how many answers with virtual hosts it has: at first, one per route configuration
	begun  bool
	record *recording // nil: nothing is recorded

	resources, removed [types]atomic.Int64
	bytes, responses   atomic.Int64

	answer  answer
	names   []named
	arena   []byte
	round   *round
	got     [types]int
	replied [types]bool
	settled bool
}

// named is a resource of the response at hand. Both slices lie in the stream's arena.
type named struct{ name, version []byte }

// run opens the stream and reads it until it ends.
func (s *stream) run(ctx context.Context, conn *grpc.ClientConn) error {
	v := s.fleet.variant
	desc := &grpc.StreamDesc{StreamName: "ads", ClientStreams: true, ServerStreams: true}
	rpc, err := conn.NewStream(ctx, desc, v.method(), grpc.ForceCodecV2(rawCodec{}), grpc.WaitForReady(s.fleet.patient))
	if err != nil {
		return err
	}
	s.rpc = rpc
	if err := s.open(nodeField(v, s.fleet.split, s.script.namespace, s.script.workload, s.fleet.first+s.id)); err != nil {
		return err
	}
	for {
		var m message
		if err := rpc.RecvMsg(&m); err != nil {
			return err
		}
		err := s.receive(&m)
		m.free()
		if err != nil {
			return err
		}
	}
}

// open sends the first requests: one that begins with the node, or all of them when the client was connected before.
func (s *stream) open(node []byte) error {
	if !s.fleet.reconnect {
		return s.ask(node)
	}
	for _, t := range order {
		if err := s.rpc.SendMsg(buffers(node, s.script.reconnects[t])); err != nil {
			return err
		}
		node = nil
	}
	s.asked = len(order)
	if s.fleet.split {
		return s.rpc.SendMsg(buffers(s.script.reconnects[resource.VirtualHost]))
	}
	return nil
}

// ask sends the request for the next type, preceded by the bytes of before.
func (s *stream) ask(before []byte) error {
	t := order[s.asked]
	s.asked++
	if err := s.rpc.SendMsg(buffers(before, s.script.requests[s.fleet.variant][t])); err != nil || t != resource.Route || !s.fleet.split {
		return err
	}
	return s.rpc.SendMsg(buffers(s.script.requests[s.fleet.variant][resource.VirtualHost]))
}

func (s *stream) receive(m *message) error {
	var each func(name, version []byte)
	watch := s.fleet.watch.Load()
	if watch != nil {
		s.names, s.arena = s.names[:0], s.arena[:0]
		each = s.keep
	}
	a := &s.answer
	if err := scan(s.fleet.variant, m.data, a, each); err != nil {
		return err
	}
	if s.record != nil {
		s.record.add(a.typ, m.data.Materialize())
	}
	s.resources[a.typ].Add(int64(a.resources))
	s.removed[a.typ].Add(int64(a.removed))
	s.bytes.Add(int64(a.bytes))
	s.responses.Add(1)
	if a.typ == resource.VirtualHost {
		s.hosts++
	}
	if !s.begun {
		s.begun = true
		s.fleet.begun.done()
	}
	if watch != nil {
		(*watch)(s, a.typ, s.names)
	}
	if err := s.rpc.SendMsg(s.ack()); err != nil {
		return err
	}
	if !s.settled {
		return s.progress()
	}
	return s.inRound()
}

// keep remembers a resource for the watcher.
func (s *stream) keep(name, version []byte) {
	begin := len(s.arena)
	s.arena = append(append(s.arena, name...), version...)
	own := s.arena[begin:]
	s.names = append(s.names, named{own[:len(name):len(name)], own[len(name):]})
}

// ack acknowledges the answer at hand.
func (s *stream) ack() mem.BufferSlice {
	a := &s.answer
	v := s.fleet.variant
	field := protowire.Number(6) // response_nonce
	if v == sotw {
		field = fieldNonce
	}
	tail := make([]byte, 0, 4+len(a.nonce)+len(a.version))
	tail = protowire.AppendBytes(protowire.AppendTag(tail, field, protowire.BytesType), a.nonce)
	if v == sotw {
		tail = protowire.AppendBytes(protowire.AppendTag(tail, fieldVersion, protowire.BytesType), a.version)
	}
	return buffers(s.script.acks[v][a.typ], tail)
}

// progress goes through the first subscriptions until the client has all it asked for.
func (s *stream) progress() error {
	for {
		t := order[s.asked-1]
		if s.resources[t].Load() < int64(s.script.count[t]) {
			return nil
		}
		if s.asked == len(order) {
			if s.fleet.split && s.hosts < s.script.count[resource.Route] {
				return nil
			}
			s.settled = true
			s.fleet.settled.done()
			return nil
		}
		if s.script.count[order[s.asked]] == 0 { // nothing to ask for
			s.asked++
			continue
		}
		return s.ask(nil)
	}
}

// inRound counts the answer for the change that is waited for.
func (s *stream) inRound() error {
	r := s.fleet.round.Load()
	if r == nil || !r.member(s) {
		return nil
	}
	if r != s.round {
		s.round, s.got, s.replied = r, [types]int{}, [types]bool{}
	}
	t := s.answer.typ
	before := r.complete(&s.got)
	s.got[t] += s.answer.resources + s.answer.removed
	if reply := r.reply[t]; reply != nil && !s.replied[t] && s.got[t] >= r.need[t] {
		s.replied[t] = true
		if err := s.rpc.SendMsg(buffers(reply)); err != nil {
			return err
		}
	}
	if !before && r.complete(&s.got) {
		r.at[s.id] = time.Since(r.begin)
		r.arrivals.done()
	}
	return nil
}

// String describes the progress of the stream, for errors.
func (s *stream) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "stream %d of %s, resources and removals:", s.id, namespace(s.script.namespace))
	for _, t := range order {
		fmt.Fprintf(&text, " %s %d+%d", t, s.resources[t].Load(), s.removed[t].Load())
	}
	return text.String()
}
